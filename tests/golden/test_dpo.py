"""One step of DPO against PyTorch with TRL's formula (dpo.npz, made by make_dpo.py): reference, margins, loss, every gradient, and
the losses of some steps of gradient descent. The judge to 1e-11; a float32 engine as far as a few times PyTorch's own float32."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.preference import BETA as BETA_SLOT
from posttrainllm.model.preference import preference_step, reference_slot
from posttrainllm.model.program import DLOSS, LOSS, RECIPE, Program, pack_recipe, regions_of
from tests.helpers.models import Model, recipe, text

GOLDEN = dict(np.load(Path(__file__).with_name("dpo.npz")))
ABOUT = json.loads(str(GOLDEN.pop("about")))
CONFIG = GPTConfig.from_dict(ABOUT["config"])
PAIRS, BETA, POLICY_SEED, REFERENCE_SEED, BOOST = 3, 0.3, 42, 44, 12.0
RATE, EPS, TIMES_TORCH = 0.1, 2.0**-23, 4.0


def batch():
    """As make_dpo.batch (which needs PyTorch): `reference` shows that both are the same."""
    rows, targets = [], []
    for side in range(2):
        for pair in range(PAIRS):
            prompt, answer = text(2 + pair, CONFIG.vocabulary, pair), text(3 + (pair + side) % 3, CONFIG.vocabulary, 50 + 7 * side + pair)
            tokens = np.concatenate([prompt, answer])
            row, target = np.zeros(CONFIG.context, np.int32), np.full(CONFIG.context, -100, np.int32)
            row[: len(tokens) - 1] = tokens[:-1]
            target[len(prompt) - 1 : len(tokens) - 1] = answer
            rows.append(row)
            targets.append(target)
    return np.stack(rows), np.stack(targets)


class Policy(Model):
    """A model with the golden's weights and the step's tape."""

    def __init__(self, machine, seed):
        super().__init__(machine, CONFIG, seed)
        self.tape = preference_step(CONFIG, PAIRS)
        machine.allocate(regions_of([*Program(CONFIG).passes(), self.tape]))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        for name, value in self.program.layout.values().items():
            if len(value.shape) == 2:
                self.write(value, np.float32(BOOST) * self.read(value).astype(np.float32))

    def log_probabilities(self):
        return -self.evaluate(*batch())[0].reshape(2 * PAIRS, -1).sum(1)

    def prefer(self, reference, rate=0.0):
        """A step: loss, margins and gradients; weights move against the gradient."""
        self.write(reference_slot(PAIRS), reference)
        self.write(BETA_SLOT, np.array([BETA]))
        self.machine.upload(address(RECIPE), pack_recipe(recipe(1, 0.0, clip=0.0)))
        self._feed(self.tape, *batch())
        self.machine.replay(self.machine.load(self.tape.tape))
        found = {name: self.read(value) for name, value in self.tape.outputs.items() if value.region == "grads"}
        made = {"loss": self.read(LOSS)[0], "margins": self.read(self.tape.outputs["margins"])}
        made |= {f"gradient/{name}": value for name, value in found.items()}
        if rate:
            for name, value in self.program.layout.values().items():
                self.write(value, self.read(value) - rate * found[name])
        return made


def everything(machine):
    """What the golden file holds, from an engine."""
    reference = Policy(machine, REFERENCE_SEED).log_probabilities()
    policy = Policy(machine, POLICY_SEED)
    policy.machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    made = policy.prefer(reference, RATE)
    losses = [made["loss"], *(policy.prefer(reference, RATE)["loss"] for _ in range(len(GOLDEN["losses"]) - 1))]
    return made | {"reference": reference, "losses": np.array(losses)}


def compare(got, allowed):
    wrong = []
    for name, golden in GOLDEN.items():
        assert np.shape(got[name]) == golden.shape, name
        error = float(np.abs(np.asarray(got[name]) - golden).max())
        if not error <= allowed(name):
            wrong.append(f"{name}: off by {error:.3g}, allowed {allowed(name):.3g}")
    assert not wrong, "; ".join(wrong)


def exact(name):
    return 1e-11 * float(np.abs(GOLDEN[name]).max())


def single(name):
    return TIMES_TORCH * max(ABOUT["float32_error"][name], EPS * float(np.abs(GOLDEN[name]).max()))


def test_the_weights_are_those_the_golden_was_made_from():
    weights = Policy(ReferenceMachine(), POLICY_SEED).weights()
    data = b"".join(np.ascontiguousarray(value, "<f4").tobytes() for value in weights.values())
    assert hashlib.sha256(data).hexdigest() == ABOUT["weights_sha256"]


def test_golden_values_say_something():
    margins, losses = GOLDEN["margins"], GOLDEN["losses"]
    assert margins.min() < -0.1 and margins.max() > 0.5 and (np.diff(losses) < -0.005).all()
    gradients = [value for name, value in GOLDEN.items() if name.startswith("gradient/")]
    assert len(gradients) == 12 + 4 and all(np.abs(value).max() > 1e-4 for value in gradients)


def test_the_judge_agrees():
    compare(everything(ReferenceMachine()), exact)


def test_an_engine_errs_like_pytorch(machine):
    compare(everything(machine), single)


@pytest.mark.parametrize("name", ["margins", "loss", "gradient/wte.weight"])
def test_another_beta_is_noticed(monkeypatch, name):
    monkeypatch.setattr("tests.golden.test_dpo.BETA", 0.3001)
    with pytest.raises(AssertionError, match=name):
        compare(everything(ReferenceMachine()), exact)
