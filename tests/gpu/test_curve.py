"""The preset small, trained for 50 steps on a GPU beside the float64 judge: one start, one sequence of batches.

Natively with the preset's batch of 16. In the tab with a batch of 2: SwiftShader takes nine seconds of a core for a whole step.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from posttrainllm.backends.reference import ReferenceMachine

from tests.golden.make_curve import CONFIGS, EPS, STEPS, Curve

from .hosts import IN_BROWSER

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "small_curve.json").read_text())
TIMES_SWAY = 32


def allowed(golden, name, number):
    """What float32 may do to a number of step 1, 2, …: 32 times what one rounding of every starting weight has done to it
    so far, or 32 roundings of its own where that is more."""
    sway = max(golden[f"{name}_sway"][:number])
    return TIMES_SWAY * max(sway, EPS * golden[NUMBERS[name]][number - 1])


NUMBERS = {"loss": "losses", "norm": "norms"}


@pytest.mark.parametrize("batch", CONFIGS)
def test_the_golden_file_holds_what_the_judge_says(batch):
    golden, curve = GOLDEN[str(batch)], Curve(ReferenceMachine(), CONFIGS[batch])
    assert golden["config"] == CONFIGS[batch].to_dict() and len(golden["losses"]) == STEPS
    assert hashlib.sha256(curve.weights).hexdigest() == golden["initial_sha256"]
    for number in (1, 2):
        for name, value in zip(NUMBERS, curve.train(number)):
            expected = golden[NUMBERS[name]][number - 1]
            assert abs(value - expected) <= 1e-11 * expected, f"step {number}: {name}"


@pytest.mark.parametrize("batch", CONFIGS)
def test_the_golden_curve_says_something(batch):
    golden = GOLDEN[str(batch)]
    losses = np.array(golden["losses"])
    assert losses[0] > 5.5 and losses[-5:].mean() < 3.5, "the loss falls"
    for name in NUMBERS:
        assert all(allowed(golden, name, number) < 5e-4 for number in range(1, STEPS + 1)), (
            "the bound sees a wrong digit"
        )


def test_fifty_steps_of_small(gpu):
    batch = 2 if IN_BROWSER else 16
    golden, curve = GOLDEN[str(batch)], Curve(gpu, CONFIGS[batch])
    assert hashlib.sha256(curve.weights).hexdigest() == golden["initial_sha256"], "another start than the judge's"
    for number in range(1, STEPS + 1):
        for name, value in zip(NUMBERS, curve.train(number)):
            error, limit = abs(value - golden[NUMBERS[name]][number - 1]), allowed(golden, name, number)
            assert error <= limit, f"step {number}: {name} off by {error:.3g}, allowed {limit:.3g}"
