"""adamw_8bit: the laws of adamw.py, and codes that are right on average."""

import numpy as np
import pytest

from posttrainllm.ops import adamw_8bit
from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity

from .test_adamw_bf16 import recipe

N = 64 * 63 + 17
SIZES = {"N": N}


def packed(values, signed):
    return adamw_8bit.pack(np.asarray(values, np.float32), signed).view(np.int32)


def state(m=None, v=None):
    zero = np.zeros(N, np.float32)
    param = np.random.default_rng(0).standard_normal(N).astype(np.float32)
    return {"param": param, "m": packed(zero if m is None else m, True), "v": packed(zero if v is None else v, False)}


def values(after, name):
    return adamw_8bit.unpack(after[name].view(np.uint32), N, name == "m").astype(float)


def step(machine, grad, settings, before, norm=1.0, decayed=0):
    return call(machine, "adamw_8bit", SIZES, (decayed,), grad=grad, norm=np.array([norm]), recipe=settings, **before)


def some_gradient():
    return np.random.default_rng(1).standard_normal(N).astype(np.float32)


@over_cases("adamw_8bit")
def test_parity(machine, case):
    check_parity(machine, case)


def test_the_weights_step_is_that_of_moments_in_full(any_machine):
    """From moments that the codes hold, the weight moves as adamw's, to a few roundings: it is made before they are rounded."""
    grad = some_gradient()
    before = state(some_gradient()[::-1] * 0.1, some_gradient()[::-1] ** 2)
    settings = recipe(weight_decay=0.5, clip=0.5)
    after = step(any_machine, grad, settings, before, decayed=1)
    plain = before | {name: values(before, name) for name in ("m", "v")}
    right = call(any_machine, "adamw", SIZES, (1,), grad=grad, norm=np.array([1.0]), recipe=settings, **plain)
    assert np.abs(after["param"] - right["param"]).max() < 16 * EPS * np.abs(right["param"]).max()


def test_codes_are_near_what_they_stand_for(any_machine):
    """At most a code away: 2·share/127 of the block's largest for m, and the fourth root of v's share within 1/255."""
    grad = some_gradient()
    after = step(any_machine, grad, recipe(), state())
    for name, right, power, most in (("m", np.float32(0.1) * grad, 2, 127), ("v", np.float32(0.05) * grad * grad, 4, 255)):
        blocks = np.append(right, np.zeros(-N % 64)).reshape(-1, 64)
        largest = np.repeat(np.abs(blocks).max(axis=1), 64)[:N]
        got = values(after, name)
        assert (np.abs((np.abs(got) / largest) ** (1 / power) - (np.abs(right) / largest) ** (1 / power)) < 1.001 / most).all()
        assert (np.sign(got) == np.sign(right))[got != 0].all()
        assert np.abs(got).max() > 0.999 * np.abs(right).max()


def test_the_largest_of_a_block_keeps_its_value_and_zero_stays_zero(any_machine):
    m = np.zeros(N, np.float32)
    m[::64], m[5::64] = -3.0, 1.0
    after = step(any_machine, np.zeros(N), recipe(beta1=0.5, beta2=0.5), state(m, np.abs(m)))
    assert (values(after, "m")[::64] == -1.5).all() and (values(after, "v")[::64] == 1.5).all()
    assert not values(after, "m")[1:5].any()
    empty = step(any_machine, np.zeros(N), recipe(), state())
    assert not empty["m"].any() and not empty["v"].any()


def test_a_small_v_is_never_zero(any_machine):
    """Beside a gradient 10⁶ times larger it keeps a code, so that its weight's step is not divided by eps alone."""
    grad = np.full(N, 1e-3, np.float32)
    grad[::64] = 1e3
    after = step(any_machine, grad, recipe(), state())
    assert (values(after, "v") > 0).all()


def test_rounding_is_right_on_average(any_machine):
    """v less 0.1 %: the fourth root falls by a twentieth of a code at most, and so do a twentieth of the elements."""
    v = np.full(N, 0.5, np.float32)
    v[::64] = 1.0
    before, grad = state(None, v), np.zeros(N)
    grad[::64] = 1.0  # which keeps the block's scale
    old = values(before, "v")
    after = values(step(any_machine, grad, recipe(beta2=0.999), before), "v")
    rest = np.arange(N) % 64 != 0
    assert len(set(after[rest])) == 2
    assert abs(np.mean(after[rest]) / np.mean(old[rest]) - 0.999) < 4e-4


def test_blocks_do_not_touch_each_other(any_machine):
    grad = some_gradient()
    once = step(any_machine, grad, recipe(), state())
    grad[64:128] *= 1000
    other = step(any_machine, grad, recipe(), state())
    for name in ("m", "v"):
        changed = np.flatnonzero((once[name] != other[name]).reshape(-1, 17).any(axis=1))
        assert changed.tolist() == [1]


@pytest.mark.parametrize("norm", [np.nan, np.inf, -np.inf])
def test_a_norm_that_is_not_finite_changes_nothing(any_machine, norm):
    before = state(some_gradient(), some_gradient() ** 2)
    before["m"][-1] = 0x12345678  # also past the last element
    after = step(any_machine, some_gradient(), recipe(clip=1.0, weight_decay=0.5), before, norm=norm, decayed=1)
    for name in ("param", "m", "v"):
        assert after[name].tobytes() == before[name].tobytes(), name


def test_what_lies_past_the_last_element_counts_as_zero_and_becomes_it(any_machine):
    before = state(some_gradient(), some_gradient() ** 2)
    clean = step(any_machine, some_gradient(), recipe(), before)
    for name in ("m", "v"):
        before[name][-1] = 0x7F7F7F7F
    after = step(any_machine, some_gradient(), recipe(), before)
    for name in ("param", "m", "v"):
        assert after[name].tobytes() == clean[name].tobytes(), name


@pytest.mark.parametrize("size", [1e-36, 1e-25, 1.0, 1e30])
def test_every_size_has_its_scale(any_machine, size):
    v = np.float32(size) * np.linspace(0.1, 1, N, dtype=np.float32)
    after = step(any_machine, np.zeros(N), recipe(beta2=0.5), state(None, v))
    assert np.abs(values(after, "v") / (0.5 * v.astype(float)) - 1).max() < 0.05


def test_a_block_below_the_least_normal_number_is_zero():
    assert not adamw_8bit.pack(np.full(64, 1e-39, np.float32), False).any()


@pytest.mark.parametrize("signed", [True, False])
def test_packing_again_changes_no_bit(signed):
    """What the codes hold is theirs: a run that is converted to float32 and back goes on as it was."""
    numbers = np.random.default_rng(3).standard_normal(64 * 500).astype(np.float32)
    words = adamw_8bit.pack(numbers if signed else numbers**2, signed)
    again = adamw_8bit.pack(adamw_8bit.unpack(words, numbers.size, signed), signed)
    assert np.array_equal(words, again)
