"""gelu, the tanh form: known values, its symmetry, its ends."""

from decimal import Decimal

import numpy as np
import pytest

from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity

PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def by_decimals(x: float) -> float:
    """x/2·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³))) in decimal arithmetic, to 28 digits."""
    big = Decimal(x)
    power = (2 * (2 / PI).sqrt() * (big + Decimal("0.044715") * big**3)).exp()
    return float(big / 2 * (1 + (power - 1) / (power + 1)))


def gelu(machine, x):
    x = np.asarray(x, np.float32)
    return call(machine, "gelu", {"N": x.size}, x=x)["y"].astype(np.float64)


def slope(machine, x):
    x = np.asarray(x, np.float32)
    return call(machine, "gelu_backward", {"N": x.size}, dy=np.ones(x.size), x=x)["dx"].astype(np.float64)


@over_cases("gelu", "gelu_backward")
def test_parity(machine, case):
    check_parity(machine, case)


def test_known_values(any_machine):
    x = np.array([-5, -3, -1, -0.1, -1e-3, 0, 1e-6, 0.5, 1, 3, 5], np.float32)
    expected = np.array([by_decimals(float(value)) for value in x])
    assert np.abs(gelu(any_machine, x) - expected).max() < 8 * EPS
    assert gelu(any_machine, x)[5] == 0 and expected[8] == pytest.approx(0.8411919906082767, rel=1e-15)


def test_gelu_of_x_less_gelu_of_minus_x_is_x(any_machine):
    x = np.linspace(-6, 6, 1001).astype(np.float32)
    assert np.abs(gelu(any_machine, x) - gelu(any_machine, -x) - x).max() < 6 * 4 * EPS
    assert np.abs(slope(any_machine, x) + slope(any_machine, -x) - 1).max() < 32 * EPS


def test_far_out_it_is_x_or_0(any_machine):
    x = np.array([20, 1e4, 3e38, -20, -1e4, -3e38], np.float32)
    assert np.array_equal(gelu(any_machine, x)[:3], x[:3])
    assert np.array_equal(slope(any_machine, x)[:3], np.ones(3))
    # At -3e38 an engine may clamp inside tanh, but what is left must be nothing beside x.
    assert np.abs(gelu(any_machine, x)[3:] / x[3:]).max() < 1e-30
    assert np.abs(slope(any_machine, x)[3:]).max() < 1e-30


def test_it_rises_from_its_one_minimum(any_machine):
    """The minimum lies near -0.75246."""
    x = np.linspace(-5, 5, 2001).astype(np.float32)
    rising = slope(any_machine, x) > 0
    assert not rising[(x > -5) & (x < -0.7535)].any() and rising[x > -0.7515].all()
    assert slope(any_machine, [0.0])[0] == 0.5


def test_small_values_are_right_too(machine):
    """Relative error, where 1 + tanh u would cancel: gelu(-5) is -2e-7, and must still have its digits. The exponent
    2u reaches 17 and is rounded to half an eps of itself, so that much is lost."""
    x = np.linspace(-5, 5, 4001).astype(np.float32)
    x = x[x != 0]
    big = x.astype(np.float64)
    exponent = 2 * 0.7978845608028654 * (big + 0.044715 * big**3)
    expected = big / (1 + np.exp(-exponent))
    assert (np.abs(gelu(machine, x) / expected - 1) < (4 + 2 * np.abs(exponent)) * EPS).all()
