"""adamw_bf16: the laws of adamw.py, and rounding that is right on average."""

import numpy as np
import pytest

from posttrainllm.ops import adamw_bf16
from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity

N = 4001
SIZES = {"N": N}


def recipe(lr=0.25, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.0, clip=0.0, step=1):
    return np.array([lr, beta1, beta2, eps, weight_decay, clip, 1 / (1 - beta1**step), 1 / (1 - beta2**step)])


def state(m=0.0, v=0.0):
    return {
        "param": np.random.default_rng(0).standard_normal(N).astype(np.float32),
        "m": adamw_bf16.pack(np.full(N, m, np.float32)).view(np.int32),
        "v": adamw_bf16.pack(np.full(N, v, np.float32)).view(np.int32),
    }


def values(after, name):
    return adamw_bf16.unpack(after[name].view(np.uint32), N).astype(float)


def step(machine, grad, settings, before, norm=1.0, decayed=0):
    return call(machine, "adamw_bf16", SIZES, (decayed,), grad=grad, norm=np.array([norm]), recipe=settings, **before)


def some_gradient():
    return np.random.default_rng(1).standard_normal(N).astype(np.float32)


@over_cases("adamw_bf16")
def test_parity(machine, case):
    check_parity(machine, case)


def test_the_weights_step_is_that_of_moments_in_full(any_machine):
    """From moments that bfloat16 holds, the weight moves as adamw's, to a few roundings: it is made before they are rounded."""
    before, grad = state(0.125, 0.5), some_gradient()
    after = step(any_machine, grad, recipe(weight_decay=0.5, clip=0.5), before, decayed=1)
    plain = before | {"m": np.full(N, 0.125), "v": np.full(N, 0.5)}
    right = call(any_machine, "adamw", SIZES, (1,), grad=grad, norm=np.array([1.0]), recipe=recipe(weight_decay=0.5, clip=0.5), **plain)
    assert np.abs(after["param"] - right["param"]).max() < 8 * EPS * np.abs(right["param"]).max()
    for name in ("m", "v"):
        assert (np.abs(values(after, name) - right[name]) <= 2.0**-7 * np.abs(right[name])).all()


def test_what_bfloat16_holds_is_kept_and_zero_stays_zero(any_machine):
    after = step(any_machine, np.zeros(N), recipe(beta1=0.5, beta2=0.5), state(0.375, 0.75))
    assert (values(after, "m") == 0.1875).all() and (values(after, "v") == 0.375).all()
    assert not step(any_machine, np.zeros(N), recipe(), state())["m"].any()


def test_rounding_is_up_or_down_and_right_on_average(any_machine):
    """1.0 less 0.1 %, a quarter of bfloat16's step there: a quarter of the elements move, as far as moves them all on average."""
    after = values(step(any_machine, np.zeros(N), recipe(beta2=0.999), state(0.0, 1.0)), "v")
    assert set(after) == {1.0, 1.0 - 2.0**-8}
    assert abs(np.mean(after) - 0.999) < 4 * 2.0**-8 * np.sqrt(0.25 * 0.75 / N)


def test_v_does_not_stand_still(any_machine):
    """Ten steps of another norm each: 1 % less in all, which rounding to the nearest would have refused ten times."""
    now = state(0.0, 1.0)
    for number in range(10):
        now = step(any_machine, np.zeros(N), recipe(beta2=0.999), now, norm=1.0 + number)
    assert abs(np.mean(values(now, "v")) - 0.999**10) < 4e-4
    assert adamw_bf16.unpack(adamw_bf16.pack(np.float32([0.999])), 1)[0] == 1.0


def test_another_norm_draws_other_chances(any_machine):
    once, same, other = (step(any_machine, some_gradient(), recipe(), state(), norm=norm) for norm in (1.0, 1.0, 1.5))
    assert np.array_equal(once["v"], same["v"]) and not np.array_equal(once["v"], other["v"])
    assert np.array_equal(once["param"], other["param"])


@pytest.mark.parametrize("norm", [np.nan, np.inf, -np.inf])
def test_a_norm_that_is_not_finite_changes_nothing(any_machine, norm):
    before = state(0.3, 0.7)
    before["m"][-1] |= np.int32(0x7F0F0000)  # also past the last element
    after = step(any_machine, some_gradient(), recipe(clip=1.0, weight_decay=0.5), before, norm=norm, decayed=1)
    for name in ("param", "m", "v"):
        assert after[name].tobytes() == before[name].tobytes(), name


def test_what_lies_past_an_odd_number_of_elements_becomes_zero(any_machine):
    before = state(0.3, 0.7)
    for name in ("m", "v"):
        before[name][-1] |= np.int32(0x7F0F0000)
    after = step(any_machine, some_gradient(), recipe(), before)
    assert not (after["m"][-1] >> 16) and not (after["v"][-1] >> 16)


def test_pack_rounds_to_the_nearest_and_to_even():
    halves = np.float32([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-9, 3e38, 0])
    expected = [1, 1, 1 + 2**-6, 1 + 2**-7, -1, np.float32(3e38), 0]
    got = adamw_bf16.unpack(adamw_bf16.pack(halves), halves.size)
    assert np.array_equal(got[:5], np.float32(expected[:5])) and got[6] == 0 and abs(got[5] / expected[5] - 1) < 2**-8


def test_chances_are_even_and_those_of_m_and_v_differ():
    for norm in (1.0, 1.0000001, 123.5):
        for drawn in adamw_bf16.chances(norm, 1 << 16):
            counts = np.bincount(drawn >> 8, minlength=256)
            assert abs(drawn.mean() - 32767.5) < 400 and counts.min() > 170 and counts.max() < 350
    first, second = (drawn.astype(float) for drawn in adamw_bf16.chances(1.0, 1 << 16))
    other = adamw_bf16.chances(np.nextafter(np.float32(1), np.float32(2)), 1 << 16)[0].astype(float)
    for one, two in ((first, second), (first, other), (first[1:], first[:-1])):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.02
