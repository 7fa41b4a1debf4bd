"""Tiny models that learned a little, so that their greedy text says something and one guesses what another writes."""

import functools

import numpy as np

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from tests.helpers.machines import open_once
from tests.helpers.models import recipe

TEXT = """Full fathom five thy father lies; Of his bones are coral made; Those are pearls that were his eyes:
Nothing of him that doth fade, But doth suffer a sea-change Into something rich and strange.
Sea-nymphs hourly ring his knell: Hark! now I hear them, Ding-dong, bell. — Où sont les neiges d'antan? 🙂
"""
TARGET = GPTConfig(layers=2, channels=32, heads=2, context=24, vocabulary=256, batch=8)
DRAFT = GPTConfig(layers=1, channels=24, heads=2, context=18, vocabulary=256, batch=8)
DRAFT_STEPS = 600
"""After so many the draft guesses every other token of a target of 1,000."""


@functools.cache
def _weights(machine_name: str, config: GPTConfig, steps: int) -> dict[str, bytes]:
    model = GPT(config, open_once(machine_name), Program(config))
    model.initialise(7)
    data, rng = np.frombuffer(TEXT.encode(), np.uint8).astype("<i4"), np.random.default_rng(1)
    for step in range(1, steps + 1):
        starts = rng.integers(0, len(data) - config.context - 1, config.batch)
        rows = np.stack([data[start : start + config.context + 1] for start in starts])
        model.step(rows[:, :-1].tobytes(), rows[:, 1:].tobytes(), recipe(min(step, 40), 0.01))
    return {name: model.weight_bytes(name) for name in model.weight_names()}


def trained(machine, config=TARGET, steps=1000, source="cpu-1"):
    """A model of `config` on a machine after `steps` steps on TEXT, trained on the engine `source` at its first use."""
    weights = _weights(source, config, steps)
    model = GPT(config, machine, Program(config, False))
    for name, data in weights.items():
        model.set_weight_bytes(name, data)
    return model
