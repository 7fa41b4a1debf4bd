"""A small GPT against PyTorch: logits, loss, every gradient, and 20 training steps (gpt.npz, made by make_golden.py).

The judge must agree with PyTorch's float64 to 1e-11 (it does to 1e-14). A float32 engine may stray as far as a few
times PyTorch's own float32 does from its float64, tensor by tensor.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.config import GPTConfig
from posttrainllm.ops import gelu, layernorm
from tests.helpers.models import Model, batch, recipe

GOLDEN = dict(np.load(Path(__file__).with_name("gpt.npz")))
ABOUT = json.loads(str(GOLDEN.pop("about")))
CONFIG = GPTConfig.from_dict(ABOUT["config"])
RATES = GOLDEN.pop("rates")
BATCHES = 2
GRADIENTS = [name for name in GOLDEN if name.startswith("gradient/")]
STEP, CURVE = ["logits", "loss", *GRADIENTS], [name for name in GOLDEN if name.startswith(("curve", "trained_norm"))]
EPS = 2.0**-23
TIMES_TORCH = 4.0


def one_step(machine):
    """Logits, loss and gradients of the first batch."""
    model = Model(machine, CONFIG)
    tokens, targets = batch(CONFIG, 0)
    _, loss, logits = model.evaluate(tokens, targets)
    model.step(tokens, targets, recipe(1, 0.0))
    return {"logits": logits, "loss": loss[0]} | {
        f"gradient/{name}": value for name, value in model.gradients().items()
    }


def twenty_steps(machine):
    """Losses, norms, and each weight's size afterwards."""
    model = Model(machine, CONFIG)
    rows = [model.step(*batch(CONFIG, n % BATCHES), recipe(n + 1, float(rate))) for n, rate in enumerate(RATES)]
    losses, norms = np.array(rows).T
    sizes = {f"trained_norm/{name}": np.linalg.norm(value) for name, value in model.weights().items()}
    return {"curve_losses": losses, "curve_norms": norms} | sizes


def exact(name):
    """What the judge may differ by."""
    return 1e-11 * float(np.abs(GOLDEN[name]).max())


def single(name):
    """What float32 may differ by: a few times PyTorch's own error, or a few roundings where that was lucky."""
    return TIMES_TORCH * max(ABOUT["float32_error"][name], EPS * float(np.abs(GOLDEN[name]).max()))


def compare(got, names, allowed):
    """Assert that every named value is near its golden one."""
    wrong = []
    for name in names:
        error = float(np.abs(np.asarray(got[name]) - GOLDEN[name]).max())
        assert np.shape(got[name]) == GOLDEN[name].shape, name
        if not error <= allowed(name):
            wrong.append(f"{name}: off by {error:.3g}, allowed {allowed(name):.3g}")
    assert not wrong, "; ".join(wrong)


def test_the_starting_weights_are_those_the_golden_was_made_from(any_machine):
    assert hashlib.sha256(Model(any_machine, CONFIG).weights_bytes()).hexdigest() == ABOUT["initial_sha256"]


def test_golden_values_say_something():
    """Every gradient is there and not flat, the loss falls, and clipping is on in some steps and off in others."""
    assert len(GRADIENTS) == len(ABOUT["float32_error"]) - 4 - len(GRADIENTS) == 2 * 12 + 4
    assert all(np.abs(GOLDEN[name]).max() > 1e-4 for name in GRADIENTS)
    assert GOLDEN["curve_losses"][0] > 4 and GOLDEN["curve_losses"][-1] < 2.5
    assert {bool(norm > 1) for norm in GOLDEN["curve_norms"]} == {True, False}
    assert len(set(ABOUT["config"].values())) == len(ABOUT["config"]) - 1, "only batch and heads are alike"


def test_the_judge_agrees_on_one_step():
    compare(one_step(ReferenceMachine()), STEP, exact)


def test_the_judge_agrees_on_twenty_steps():
    compare(twenty_steps(ReferenceMachine()), CURVE, exact)


def test_an_engine_errs_like_pytorch_on_one_step(machine):
    compare(one_step(machine), STEP, single)


def test_an_engine_errs_like_pytorch_on_twenty_steps(machine):
    compare(twenty_steps(machine), CURVE, single)


@pytest.mark.parametrize(
    ("module", "name", "value"), [(layernorm, "EPS", 1.0001e-5), (gelu, "CUBIC", 0.0447), (gelu, "ROOT", 0.79788)]
)
def test_a_constant_slightly_off_is_noticed(monkeypatch, module, name, value):
    monkeypatch.setattr(module, name, value)
    with pytest.raises(AssertionError, match="gradient/blocks"):
        compare(one_step(ReferenceMachine()), STEP, exact)
    with pytest.raises(AssertionError, match="curve_losses"):
        compare(twenty_steps(ReferenceMachine()), CURVE, exact)
