"""Training: settings, schedule, the Trainer and its reports, and a run's state as a checkpoint.

The package can be called, since `pt.train(model, corpus, steps=1000)` and the package have one name.
"""

import sys
from types import ModuleType


class _Train(ModuleType):
    def __call__(self, model, corpus, **settings):
        """Train `model` on `corpus`: trainer.train."""
        from .trainer import train

        return train(model, corpus, **settings)


sys.modules[__name__].__class__ = _Train
