"""Preference tuning on a GPU beside the float64 judge: one step's loss, margins and gradients; and a short run beside the CPU engine."""

# ruff: noqa: F811 - a fixture has the name of the arguments that ask for it
import struct

import numpy as np
import pytest
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.gpt import Layout
from posttrainllm.model.preference import BETA, preference_step, reference_slot
from posttrainllm.model.program import DLOSS, LOSS, RECIPE, SEED, pack_recipe, regions_of
from posttrainllm.tune.dpo import PreferenceStepReport, dpo

from tests.tune.making import LORA, model_on, preferences

from .hosts import IN_BROWSER
from .test_lora import EVERYWHERE, Tuned
from .test_training import ODD, _compare, recipe_of

PAIRS = 2


class Preferring(Tuned):
    """As Tuned, with a step of preference tuning on made-up pairs, one of them without an answer that counts."""

    def __init__(self, machine, config, lora, nudge=0.0):
        super().__init__(machine, config, lora, nudge)
        self.step = preference_step(config, PAIRS, lora)
        machine.allocate(regions_of((self.step,)))
        machine.upload(address(SEED), struct.pack("<Q", 42))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        machine.upload(address(BETA), struct.pack("<f", 0.5))
        rng = np.random.default_rng(8)
        machine.upload(address(reference_slot(PAIRS)), rng.normal(-20, 2, 2 * PAIRS).astype("<f4").tobytes())
        self.tokens = rng.integers(0, config.vocabulary, (2 * PAIRS, config.context)).astype("<i4")
        self.targets = np.where(rng.random(self.tokens.shape) < 0.4, -100, np.roll(self.tokens, -1, 1)).astype("<i4")
        self.targets[-1] = -100
        self.loaded = machine.load(self.step.tape)
        self.strength(1.0)

    def train(self, number):
        self.machine.upload(address(self.step.tokens), self.tokens.tobytes())
        self.machine.upload(address(self.step.targets), self.targets.tobytes())
        self.machine.upload(address(RECIPE), pack_recipe(recipe_of(number)))
        self.machine.replay(self.loaded)


def runs_of(machine, near):
    return Preferring(machine, ODD, EVERYWHERE), Preferring(ReferenceMachine(), ODD, EVERYWHERE), Preferring(ReferenceMachine(), ODD, EVERYWHERE, near)


def test_a_step_gives_the_judges_margins_and_gradients(gpu):
    runs = runs_of(gpu, 2.0**-23)
    for run in runs:
        run.train(1)
    for name in ("loss", "margins", "gradient_norm", *Layout.of(ODD, EVERYWHERE).trainable_names):
        _compare(name, *(run.read(run.step, name) for run in runs))
    margins = runs[1].read(runs[1].step, "margins")
    assert margins[0] != margins[1] and np.abs(margins).max() < 30, "no pair is decided beforehand"
    assert runs[1].number(LOSS) == pytest.approx(np.logaddexp(0, -margins).mean(), rel=1e-6)


@pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
def test_a_step_in_half_precision():
    from posttrainllm.backends.gpu.limits import DEFAULT
    from posttrainllm.backends.webgpu import WebGPUMachine, open_adapter

    from .test_half_training import HALF_EPS, compare

    machine = WebGPUMachine(open_adapter(), DEFAULT, "f16")
    runs = runs_of(machine, HALF_EPS)
    for run in runs:
        run.train(1)
    for name in ("loss", "gradient_norm", *Layout.of(ODD, EVERYWHERE).trainable_names):
        scale = machine.gradient_scale() if name.startswith("blocks") else 1.0
        got, expected, near = (run.read(run.step, name) for run in runs)
        compare(name, got / scale, expected, near)
    machine.close()


@pytest.mark.skipif(IN_BROWSER, reason="SwiftShader takes half a second for a step")
@pytest.mark.parametrize("lora, rate", [(None, 3e-3), (LORA, 2e-2)], ids=["whole", "adapter"])
def test_a_short_run_beside_the_cpu_engine(gpu, lora, rate):
    """All that is between the two engines after twenty steps is far below what a step changes."""
    from posttrainllm.backends.native import CpuMachine

    found = []
    for machine in (gpu, CpuMachine(1)):
        reports = list(dpo(model_on(machine, lora), preferences(), steps=20, learning_rate=rate))
        found.append([(r.loss_nats, r.margin) for r in reports if isinstance(r, PreferenceStepReport)])
    mine, other = map(np.array, found)
    off, fallen = np.abs(mine - other).max(), other[0, 0] - other[-1, 0]
    assert mine.shape == (20, 2) and fallen > 0.02, "the loss falls"
    assert off < 1e-3 * fallen
