"""layernorm: mean 0 and variance 1; a gradient without the directions that normalising takes away."""

import numpy as np
import pytest

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import EPS, call, check_parity

R, C = 9, 131
SIZES = {"R": R, "C": C}


def rows(seed=0):
    return np.random.default_rng(seed).standard_normal((R, C)).astype(np.float32) * 3 + 1


def forward(machine, x, weight=None, bias=None):
    weight = np.ones(C) if weight is None else weight
    return call(machine, "layernorm", SIZES, x=x, weight=weight, bias=np.zeros(C) if bias is None else bias)


@over_cases("layernorm", "layernorm_backward", "layernorm_backward_input")
def test_parity(machine, case):
    check_parity(machine, case)


def test_rows_have_mean_0_and_variance_1(any_machine):
    y = forward(any_machine, rows())["y"].astype(np.float64)
    assert np.abs(y.mean(1)).max() < 8 * EPS
    variance = rows().astype(np.float64).var(1)
    assert np.abs(y.var(1) - variance / (variance + 1e-5)).max() < 16 * EPS


def test_a_shift_and_a_power_of_two_change_little_and_nothing(any_machine):
    """Adding a constant leaves y; multiplying by 1024 only makes eps smaller beside the variance."""
    y = forward(any_machine, rows())["y"]
    shifted = forward(any_machine, rows() + np.float32(16))["y"]
    assert np.abs(shifted - y).max() < 16 * 8 * EPS
    huge, larger = forward(any_machine, rows() * np.float32(2**20)), forward(any_machine, rows() * np.float32(2**21))
    assert np.array_equal(huge["y"], larger["y"])
    assert np.array_equal(huge["mean"] * 2, larger["mean"])


def test_zero_gain_gives_the_bias(any_machine):
    bias = np.arange(C) / 7
    y = forward(any_machine, rows(), np.zeros(C), bias)["y"]
    assert np.array_equal(y, np.broadcast_to(bias.astype(np.float32), (R, C)))


def test_dx_is_orthogonal_to_ones_and_to_xhat(any_machine):
    """With a gain of 1, y does not change along 1 (the mean is taken out) and hardly along x (the scale is)."""
    x = rows()
    made = forward(any_machine, x)
    dy = np.random.default_rng(3).standard_normal((R, C))
    zeros = {"dx": np.zeros((R, C)), "dweight": np.zeros(C), "dbias": np.zeros(C)}
    got = call(
        any_machine,
        "layernorm_backward",
        SIZES,
        (0,),
        dy=dy,
        x=x,
        weight=np.ones(C),
        mean=made["mean"],
        rstd=made["rstd"],
        **zeros,
    )
    dx = got["dx"].astype(np.float64)
    size = np.abs(dx).sum(1)
    assert np.abs(dx.sum(1) / size).max() < 4 * EPS
    assert np.abs((dx * made["y"]).sum(1) / size).max() < 1e-5 + 16 * EPS
    assert size.min() > 1


@pytest.mark.parametrize("changes", [{}, {"R": 67, "C": 16}, {"C": 1}])
def test_accumulating_adds_to_what_was_there(machine, changes):
    """dx of accumulate=1 is one rounded addition away from dx of accumulate=0; without it the old dx is not read."""
    case = base_case("layernorm_backward", params=(0,), **changes)
    inputs = inputs_for(case)
    alone = call(machine, "layernorm_backward", case.sizes, (0,), **inputs | {"dx": np.full_like(inputs["dx"], np.nan)})
    added = call(machine, "layernorm_backward", case.sizes, (1,), **inputs)
    assert np.array_equal(added["dx"], inputs["dx"] + alone["dx"])
    assert np.array_equal(added["dweight"], alone["dweight"]) and np.array_equal(added["dbias"], alone["dbias"])


def test_a_row_does_not_depend_on_the_others(machine):
    case = base_case("layernorm", R=67)
    inputs = inputs_for(case)
    y = call(machine, "layernorm", case.sizes, **inputs)["y"]
    for r in (0, 40, 66):
        alone = call(machine, "layernorm", {"R": 1, "C": 37}, **inputs | {"x": inputs["x"][r : r + 1]})["y"]
        assert np.array_equal(alone[0], y[r])


@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("changes", [{}, {"R": 67, "C": 16}, {"R": 131, "C": 257}, {"C": 1}])
def test_the_input_gradient_alone_has_the_same_bits(machine, changes, accumulate):
    """Freezing gain and bias changes no bit of what flows on."""
    case = base_case("layernorm_backward", params=(accumulate,), **changes)
    inputs = inputs_for(case)
    both = call(machine, "layernorm_backward", case.sizes, (accumulate,), **inputs)["dx"]
    inputs = {name: value for name, value in inputs.items() if name not in ("dweight", "dbias")}
    alone = call(machine, "layernorm_backward_input", case.sizes, (accumulate,), **inputs)["dx"]
    assert alone.tobytes() == both.tobytes()
