"""When a run that trains keeps a snapshot of its weights. The rule and the file are in store/snapshots.py."""

from __future__ import annotations

from ..model.live import GPT
from ..store.buffers import Tensor
from ..store.snapshots import Snapshots, due


class Kept:
    """The snapshots of a run in progress. After one that failed no more are taken: where there is no room, a save needs it more."""

    def __init__(self, snapshots: Snapshots):
        self._snapshots, self._steps, self.failed = snapshots, snapshots.steps(), False

    def due(self, step: int) -> bool:
        """Whether one is to be taken now; cheap, it reads nothing."""
        return not self.failed and due(step, self._steps)

    def keep(self, model: GPT, step: int) -> int:
        """Keep the model's weights, which `fetch` has brought; bytes written. Raises StoreError, with training as it was."""
        shapes = {parameter.name: parameter.shape for parameter in model.program.layout.trainable}
        weights = {name: Tensor("F32", shape, model.weight_view(name)) for name, shape in shapes.items()}
        try:
            nbytes = self._snapshots.keep(step, weights)
        except BaseException:
            self.failed = True
            raise
        self._steps = self._snapshots.steps()
        return nbytes
