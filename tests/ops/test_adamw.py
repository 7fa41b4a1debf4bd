"""adamw: closed forms of its steps."""

import numpy as np
import pytest

from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity

N = 131
SIZES = {"N": N}
BETA1, BETA2 = 0.9, 0.95


def recipe(lr=0.25, eps=1e-8, weight_decay=0.0, clip=0.0, step=1):
    return np.array([lr, BETA1, BETA2, eps, weight_decay, clip, 1 / (1 - BETA1**step), 1 / (1 - BETA2**step)])


def state(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "param": rng.standard_normal(N).astype(np.float32),
        "m": np.zeros(N, np.float32),
        "v": np.zeros(N, np.float32),
    }


def some_gradient(seed=1):
    return np.random.default_rng(seed).standard_normal(N).astype(np.float32)


def step(machine, decayed, grad, norm, settings, before):
    return call(machine, "adamw", SIZES, (decayed,), grad=grad, norm=np.array([norm]), recipe=settings, **before)


@over_cases("adamw")
def test_parity(machine, case):
    check_parity(machine, case)


def test_the_first_step_is_lr_against_the_sign(any_machine):
    """m·correction1 = g and v·correction2 = g², so the step is lr·sign(g) whatever the gradient's size."""
    before, grad = state(), some_gradient()
    for size in (1.0, 1000.0):
        after = step(any_machine, 0, size * grad, 1.0, recipe(), before)
        assert np.abs(after["param"] - (before["param"] - 0.25 * np.sign(grad))).max() < 1e-5


def test_a_constant_gradient_keeps_stepping_by_lr(any_machine):
    """Bias correction holds at every step: after n steps the weight has moved by n·lr."""
    before, grad = state(), some_gradient()
    now = before
    for number in range(1, 6):
        now = step(any_machine, 1, grad, 1.0, recipe(step=number), now)
    assert np.abs(now["param"] - (before["param"] - 5 * 0.25 * np.sign(grad))).max() < 5e-5
    assert np.abs(now["m"] / grad - (1 - BETA1**5)).max() < 8 * EPS
    assert np.abs(now["v"] / grad**2 - (1 - BETA2**5)).max() < 8 * EPS


def test_without_a_gradient_only_decay_is_left(any_machine):
    before = state()
    zero = np.zeros(N)
    after = step(any_machine, 1, zero, 0.0, recipe(weight_decay=0.5), before)
    assert np.abs(after["param"] - before["param"] * (1 - 0.25 * 0.5)).max() < EPS * np.abs(before["param"]).max()
    kept = step(any_machine, 0, zero, 0.0, recipe(weight_decay=0.5), before)
    assert np.array_equal(kept["param"], before["param"])


def test_decay_is_decoupled_from_the_gradient(any_machine):
    """Decay scales the weight itself: the two steps differ by lr·wd·param, and the moments not at all."""
    before, grad = state(), some_gradient()
    plain, decayed = (step(any_machine, d, grad, 1.0, recipe(weight_decay=0.5), before) for d in (0, 1))
    assert np.abs(plain["param"] - decayed["param"] - 0.125 * before["param"]).max() < 4 * EPS
    assert np.array_equal(plain["m"], decayed["m"]) and np.array_equal(plain["v"], decayed["v"])


def test_a_rate_of_zero_moves_no_bit(any_machine):
    before = state()
    after = step(any_machine, 1, some_gradient(), 1.0, recipe(lr=0.0, weight_decay=0.5), before)
    assert np.array_equal(after["param"], before["param"]) and after["m"].all()


@pytest.mark.parametrize(
    ("norm", "clip", "scale"), [(8.0, 2.0, 0.25), (2.0, 2.0, 1.0), (1.0, 2.0, 1.0), (8.0, 0.0, 1.0)]
)
def test_clipping_scales_the_whole_gradient(any_machine, norm, clip, scale):
    """A scale that is a power of two must act exactly as the scaled gradient does."""
    before, grad = state(), some_gradient()
    clipped = step(any_machine, 1, grad, norm, recipe(clip=clip), before)
    scaled = step(any_machine, 1, np.float32(scale) * grad, 1.0, recipe(), before)
    for name in ("param", "m", "v"):
        assert np.array_equal(clipped[name], scaled[name]), name


def test_eps_stands_outside_the_root(any_machine):
    """lr·g/(|g| + eps) with |g| = eps = 1: half a step; under the root it would be 1/sqrt(2)."""
    before = state()
    after = step(any_machine, 0, np.ones(N), 1.0, recipe(eps=1.0), before)
    assert np.abs(before["param"] - after["param"] - 0.125).max() < 8 * EPS


@pytest.mark.parametrize("norm", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_a_norm_that_is_not_finite_changes_nothing(any_machine, norm, clip):
    before = state() | {"m": some_gradient(2), "v": some_gradient(3) ** 2}
    after = step(any_machine, 1, some_gradient(), norm, recipe(clip=clip, weight_decay=0.5), before)
    for name in ("param", "m", "v"):
        assert np.array_equal(after[name], before[name]), name
