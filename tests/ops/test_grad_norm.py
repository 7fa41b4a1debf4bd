"""grad_norm: a Euclidean norm through blocks of 16384."""

import numpy as np
import pytest

from posttrainllm.dims import PARTIAL_ELEMENTS
from tests.helpers.cases import over_cases
from tests.helpers.kernels import EPS, call, check_parity

N = 3 * PARTIAL_ELEMENTS + 101


@over_cases("grad_norm")
def test_parity(machine, case):
    check_parity(machine, case)


@pytest.mark.parametrize("places", [(0, 1), (5, N - 1), (PARTIAL_ELEMENTS - 1, PARTIAL_ELEMENTS)])
def test_three_four_five(any_machine, places):
    grad = np.zeros(N)
    grad[list(places)] = 3, -4
    assert call(any_machine, "grad_norm", {"N": N}, grad=grad)["norm"][0] == 5


def test_zero(any_machine):
    got = call(any_machine, "grad_norm", {"N": N}, grad=np.zeros(N))
    assert got["norm"][0] == 0 and not got["partials"].any()


def test_each_partial_is_its_own_block(any_machine):
    grad = np.random.default_rng(0).standard_normal(N).astype(np.float32)
    partials = call(any_machine, "grad_norm", {"N": N}, grad=grad)["partials"]
    for g in range(4):
        block = grad[g * PARTIAL_ELEMENTS : (g + 1) * PARTIAL_ELEMENTS]
        alone = call(any_machine, "grad_norm", {"N": block.size}, grad=block)
        assert alone["partials"][0] == partials[g]
        assert partials[g] == pytest.approx((block.astype(np.float64) ** 2).sum(), rel=8 * EPS)


def test_powers_of_two_scale_it_exactly(machine):
    grad = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    norm = call(machine, "grad_norm", {"N": N}, grad=grad)["norm"][0]
    for power in (2.0**-20, 2.0**40):
        assert call(machine, "grad_norm", {"N": N}, grad=grad * np.float32(power))["norm"][0] == norm * np.float32(
            power
        )


def test_a_gradient_that_is_not_finite_shows(any_machine):
    """The guard against spoilt steps looks at the norm: one NaN or infinity anywhere must reach it."""
    for bad in (np.nan, np.inf):
        grad = np.ones(N)
        grad[N - 2] = bad
        assert not np.isfinite(call(any_machine, "grad_norm", {"N": N}, grad=grad)["norm"][0])
