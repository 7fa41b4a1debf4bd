"""Makes small_curve.json: 50 training steps of the preset small on the float64 judge, which takes too long for a tab.

    PYTHONPATH=pysrc python -m tests.golden.make_curve

One start (its hash is kept), one sequence of batches, and beside the losses how far they sway when every starting weight
moves by one float32 rounding: what any float32 engine may be expected to do to them. Once with the preset's batch, and once
with a batch of 2 for SwiftShader, where a step of the whole one takes nine seconds of a core.
"""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import (
    DLOSS,
    LOSS,
    NORM,
    RECIPE,
    SEED,
    initial_weights,
    pack_recipe,
    regions_of,
    training_step,
)

from tests.helpers.models import batch, recipe

FILE = Path(__file__).with_name("small_curve.json")
CONFIGS = {batch_size: GPTConfig.preset("small", batch=batch_size) for batch_size in (16, 2)}
STEPS, WARM_UP, PEAK, MODEL_SEED = 50, 10, 4e-3, 42
EPS = 2.0**-23


def rate(number):
    """The learning rate of step 1, 2, …: up over ten steps, then down to a sixth."""
    return PEAK * min(number / WARM_UP, (STEPS + WARM_UP - number) / STEPS)


class Curve:
    """The run on any machine: train(1), train(2), … `nudge` moves every starting weight by that much of its own size."""

    def __init__(self, machine, config, nudge=0.0):
        self.machine, self.config, self.step = machine, config, training_step(config)
        initial = initial_weights(config)
        machine.allocate(regions_of((initial, self.step)))
        values = list(Layout.of(config).values().values())
        self.start, self.nbytes = address(values[0]) - values[0].offset_bytes, Layout.of(config).total_bytes
        machine.upload(self.start, bytes(self.nbytes))  # tests share a machine: the gaps between weights are not empty
        machine.upload(address(SEED), struct.pack("<Q", MODEL_SEED))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        machine.replay(machine.load(initial.tape))
        self.weights = machine.download(self.start, self.nbytes)
        if nudge:
            weights = np.frombuffer(self.weights, "<f4")
            signs = np.random.default_rng(5).choice([-1.0, 1.0], weights.size)
            machine.upload(self.start, (weights * (1 + nudge * signs)).astype("<f4").tobytes())
        self.loaded = machine.load(self.step.tape)

    def train(self, number):
        """(loss, norm) of step `number`, in float64 on the judge."""
        tokens, targets = batch(self.config, number)
        self.machine.upload(address(self.step.tokens), np.ascontiguousarray(tokens, "<i4").tobytes())
        self.machine.upload(address(self.step.targets), np.ascontiguousarray(targets, "<i4").tobytes())
        self.machine.upload(address(RECIPE), pack_recipe(recipe(number, rate(number))))
        self.machine.replay(self.loaded)
        return self.number(LOSS), self.number(NORM)

    def number(self, value):
        if hasattr(self.machine, "download_f64"):
            return float(self.machine.download_f64(address(value), 4)[0])
        return struct.unpack("<f", self.machine.download(address(value), 4))[0]


def golden(config):
    """Both curves of the judge at a batch size."""
    judge, near = Curve(ReferenceMachine(), config), Curve(ReferenceMachine(), config, nudge=EPS)
    rows = [(*judge.train(number), *near.train(number)) for number in range(1, STEPS + 1)]
    losses, norms, near_losses, near_norms = (list(column) for column in zip(*rows))
    return {
        "config": config.to_dict(),
        "initial_sha256": hashlib.sha256(judge.weights).hexdigest(),
        "losses": losses,
        "norms": norms,
        "loss_sway": [abs(a - b) for a, b in zip(losses, near_losses)],
        "norm_sway": [abs(a - b) for a, b in zip(norms, near_norms)],
    }


def main():
    made = {batch_size: golden(config) for batch_size, config in CONFIGS.items()}
    FILE.write_text(json.dumps(made, indent=0) + "\n")
    for batch_size, each in made.items():
        print(
            f"batch {batch_size}: loss {each['losses'][0]:.3f} to {each['losses'][-1]:.3f}, norm {min(each['norms']):.2f} to "
            f"{max(each['norms']):.2f}, sway at most {max(each['loss_sway']):.2g} and {max(each['norm_sway']):.2g}"
        )


if __name__ == "__main__":
    main()
