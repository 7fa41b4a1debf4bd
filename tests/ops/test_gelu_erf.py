"""gelu_erf, the exact form: known values, its symmetry, its ends, and what its polynomial may be off."""

import math
from decimal import Decimal, localcontext

import numpy as np

from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity


def by_decimals(x: float) -> float:
    """x·Φ(x) in decimal arithmetic: Φ(x) = 1/2 + φ(x)·(x + x³/3 + x⁵/15 + …), to 60 digits."""
    with localcontext() as context:
        context.prec = 90
        big = Decimal(x)
        term = total = big
        for n in range(3, 2000, 2):
            term *= big * big / n
            total += term
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534")
        density = (-big * big / 2).exp() / (2 * pi).sqrt()
        return float(big * (Decimal("0.5") + density * total))


def gelu_erf(machine, x):
    x = np.asarray(x, np.float32)
    return call(machine, "gelu_erf", {"N": x.size}, x=x)["y"].astype(np.float64)


def slope(machine, x):
    x = np.asarray(x, np.float32)
    return call(machine, "gelu_erf_backward", {"N": x.size}, dy=np.ones(x.size), x=x)["dx"].astype(np.float64)


@over_cases("gelu_erf", "gelu_erf_backward")
def test_parity(machine, case):
    check_parity(machine, case)


def test_known_values(any_machine):
    x = np.array([-9, -5, -3, -1, -0.1, -1e-3, 0, 1e-6, 0.5, 1, 3, 5], np.float32)
    expected = np.array([by_decimals(float(value)) for value in x])
    assert abs(expected[9] - 0.8413447460685429) < 1e-15  # Φ(1)
    assert np.abs(gelu_erf(any_machine, x) - expected).max() < 8 * EPS
    assert gelu_erf(any_machine, x)[6] == 0


def test_it_is_not_the_tanh_form(any_machine):
    """They differ by 4.7e-4 at most, near |x| = 2.7; a kernel that mixes them up must not pass."""
    x = np.linspace(-4, 4, 801).astype(np.float32)
    tanh_form = call(any_machine, "gelu", {"N": x.size}, x=x)["y"].astype(np.float64)
    assert 4e-4 < np.abs(gelu_erf(any_machine, x) - tanh_form).max() < 5e-4


def test_gelu_of_x_less_gelu_of_minus_x_is_x(any_machine):
    x = np.linspace(-6, 6, 1001).astype(np.float32)
    assert np.abs(gelu_erf(any_machine, x) - gelu_erf(any_machine, -x) - x).max() < 6 * 4 * EPS
    assert np.abs(slope(any_machine, x) + slope(any_machine, -x) - 1).max() < 32 * EPS


def test_far_out_it_is_x_or_0(any_machine):
    x = np.array([20, 1e4, 3e38, np.inf, -20, -1e4, -3e38], np.float32)
    assert np.array_equal(gelu_erf(any_machine, x)[:4], x[:4])
    assert np.array_equal(slope(any_machine, x[:3]), np.ones(3))
    # At -3e38 an engine may clamp inside the tail, but what is left must be nothing beside x.
    assert np.abs(gelu_erf(any_machine, x)[4:] / x[4:]).max() < 1e-30
    assert np.abs(slope(any_machine, x[4:])).max() < 1e-30


def test_it_rises_from_its_one_minimum(any_machine):
    """The minimum lies near -0.75179."""
    x = np.linspace(-5, 5, 2001).astype(np.float32)
    rising = slope(any_machine, x) > 0
    assert not rising[(x > -5) & (x < -0.7525)].any() and rising[x > -0.751].all()
    assert slope(any_machine, [0.0])[0] == 0.5


def test_small_values_are_right_too(machine):
    """Relative error, where 1 + erf would cancel: gelu_erf(-9) is -1e-18, and must still have its digits. The polynomial is
    right to 4 eps; the exponent t²/2 is rounded to half an eps of itself twice, so that much is lost with it."""
    x = np.linspace(-12.5, 12.5, 8001).astype(np.float32)
    x = x[x != 0]
    big = x.astype(np.float64)
    expected = big * np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in big])
    assert (np.abs(gelu_erf(machine, x) / expected - 1) < (5 + big * big / 2) * EPS).all()
