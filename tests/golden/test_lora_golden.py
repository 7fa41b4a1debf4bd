"""Adapters against PyTorch and peft: files that peft saved, and its logits, loss and gradients (lora.npz, made by make_lora_golden.py).

The judge must agree with their float64 to 1e-11; a float32 engine may stray as far as a few times PyTorch's own float32 does.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.config import GPTConfig
from posttrainllm.ops import lora
from posttrainllm.store.peft import CONFIG as PEFT_CONFIG
from posttrainllm.store.peft import WEIGHTS, from_files
from tests.helpers.models import Model, batch, recipe

GOLDEN = dict(np.load(Path(__file__).with_name("lora.npz")))
ABOUT = json.loads(str(GOLDEN.pop("about")))
CONFIG = GPTConfig.from_dict(json.loads(str(np.load(Path(__file__).with_name("gpt.npz"))["about"]))["config"])
EPS, TIMES_TORCH = 2.0**-23, 4.0
CASES = ("qv", "all")


def adapter_of(case):
    return from_files(GOLDEN[f"{case}/file/{WEIGHTS}"], GOLDEN[f"{case}/file/{PEFT_CONFIG}"], case)


def got(machine, case):
    """Logits, loss and every gradient of the first batch."""
    model = Model(machine, CONFIG, adapter=adapter_of(case))
    tokens, targets = batch(CONFIG, 0)
    _, loss, logits = model.evaluate(tokens, targets)
    model.step(tokens, targets, recipe(1, 0.0))
    found = {"logits": logits, "loss": loss[0]} | {f"gradient/{name}": value for name, value in model.gradients().items()}
    return {f"{case}/{name}": value for name, value in found.items()}


def compare(found, allowed):
    wrong = []
    for name, value in found.items():
        error = float(np.abs(value - GOLDEN[name]).max())
        assert np.shape(value) == GOLDEN[name].shape, name
        if not error <= allowed(name):
            wrong.append(f"{name}: off by {error:.3g}, allowed {allowed(name):.3g}")
    assert not wrong, "; ".join(wrong)


def exact(name):
    return 1e-11 * float(np.abs(GOLDEN[name]).max())


def single(name):
    return TIMES_TORCH * max(ABOUT["float32_error"][name], EPS * float(np.abs(GOLDEN[name]).max()))


def test_golden_values_say_something():
    """Every gradient is there and not flat; the two adapters are of different kinds; the base gives another loss."""
    for case, count in (("qv", 8), ("all", 16)):
        found = [name for name in GOLDEN if name.startswith(f"{case}/gradient/")]
        assert len(found) == count and all(np.abs(GOLDEN[name]).max() > 1e-4 for name in found)
    qv, every = (adapter_of(case).config for case in CASES)
    assert (qv.rank, qv.alpha, qv.targets, qv.rslora) == (4, 8, ("attn.q", "attn.v"), False)
    assert (every.rank, every.alpha, every.rslora) == (3, 5, True) and len(every.targets) == 4
    base = Model(ReferenceMachine(), CONFIG).evaluate(*batch(CONFIG, 0))[1][0]
    assert all(abs(base - GOLDEN[f"{case}/loss"]) > 1e-3 for case in CASES)


@pytest.mark.parametrize("case", CASES)
def test_the_judge_agrees(case):
    compare(got(ReferenceMachine(), case), exact)


@pytest.mark.parametrize("case", CASES)
def test_an_engine_errs_like_pytorch(machine, case):
    compare(got(machine, case), single)


def no_strength(sizes, params, x, hidden, dhidden, dy, strength, ddown, dup):
    """A dup without the scaling."""
    lora._backward_weight(sizes, params, x, hidden, dhidden, dy, np.ones(1), ddown, dup)


def one_column_off(sizes, params, dy, up, strength, dhidden):
    first = max(0, params[0] - 1)
    dhidden[...] = strength[0] * (dy[:, first : first + sizes["J"]] @ up.T)


@pytest.mark.parametrize(
    ("kernel", "wrong"), [("LORA_BACKWARD_WEIGHT", no_strength), ("LORA_BACKWARD_HIDDEN", one_column_off)]
)
def test_a_wrong_gradient_is_noticed(monkeypatch, kernel, wrong):
    made_of = getattr(lora, kernel)
    monkeypatch.setitem(made_of.__dict__, "run", wrong)
    with pytest.raises(AssertionError, match="gradient/blocks"):
        compare(got(ReferenceMachine(), "qv"), exact)
