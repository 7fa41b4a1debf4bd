"""linear: exact where the arithmetic is; adjoint; each row on its own."""

import numpy as np
import pytest

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import EPS, call, check_parity


@over_cases("linear", "linear_backward_input", "linear_backward_weight")
def test_parity(machine, case):
    check_parity(machine, case)


def test_small_integers_are_exact(any_machine):
    """Products and sums of small whole numbers fit 24 bits, so every engine must give them exactly."""
    rng = np.random.default_rng(0)
    x, weight, bias = rng.integers(-8, 9, (21, 300)), rng.integers(-8, 9, (300, 67)), rng.integers(-8, 9, 67)
    y = call(any_machine, "linear", {"R": 21, "I": 300, "O": 67}, x=x, weight=weight, bias=bias)["y"]
    assert np.array_equal(y, x @ weight + bias)
    dy = rng.integers(-8, 9, (21, 67))
    dx = call(any_machine, "linear_backward_input", {"R": 21, "I": 300, "O": 67}, dy=dy, weight=weight)["dx"]
    assert np.array_equal(dx, dy @ weight.T)
    prior = {"dweight": rng.integers(-8, 9, (300, 67)), "dbias": rng.integers(-8, 9, 67)}
    got = call(any_machine, "linear_backward_weight", {"R": 21, "I": 300, "O": 67}, x=x, dy=dy, **prior)
    assert np.array_equal(got["dweight"], prior["dweight"] + x.T @ dy)
    assert np.array_equal(got["dbias"], prior["dbias"] + dy.sum(0))


def test_the_identity_and_a_permutation(any_machine):
    case = base_case("linear", I=41, O=41)
    x, zero = inputs_for(case)["x"], np.zeros(41)
    assert np.array_equal(call(any_machine, "linear", case.sizes, x=x, weight=np.eye(41), bias=zero)["y"], x)
    order = np.random.default_rng(1).permutation(41)
    moved = call(any_machine, "linear", case.sizes, x=x, weight=np.eye(41)[:, order], bias=zero)["y"]
    assert np.array_equal(moved, x[:, order])


def test_the_backward_is_the_adjoint(any_machine):
    """⟨x·W, dy⟩ = ⟨x, dx⟩ = ⟨W, dW⟩."""
    sizes = {"R": 19, "I": 23, "O": 41}
    inputs = inputs_for(base_case("linear")) | {"bias": np.zeros(41)}
    dy = np.random.default_rng(2).standard_normal((19, 41)).astype(np.float32)
    y = call(any_machine, "linear", sizes, **inputs)["y"].astype(np.float64)
    dx = call(any_machine, "linear_backward_input", sizes, dy=dy, weight=inputs["weight"])["dx"]
    zeros = {"dweight": np.zeros((23, 41)), "dbias": np.zeros(41)}
    dweight = call(any_machine, "linear_backward_weight", sizes, x=inputs["x"], dy=dy, **zeros)["dweight"]
    whole = (y * dy).sum()
    allowed = 16 * EPS * np.sqrt((y**2).sum() * (dy.astype(np.float64) ** 2).sum())
    assert abs(whole) > 1000 * allowed
    assert abs((inputs["x"].astype(np.float64) * dx).sum() - whole) < allowed
    assert abs((inputs["weight"].astype(np.float64) * dweight).sum() - whole) < allowed


@pytest.mark.parametrize("name", ["linear", "linear_backward_input"])
@pytest.mark.parametrize("changes", [{}, {"R": 131, "I": 300, "O": 67}, {"R": 131, "I": 67, "O": 520}])
def test_a_row_does_not_depend_on_the_others(machine, name, changes):
    """Same bits for a row alone, in a few, and in many: the engines change their way of working in between."""
    case = base_case(name, **({"R": 67} | changes))
    inputs = inputs_for(case)
    given, made = ("x", "y") if name == "linear" else ("dy", "dx")
    whole = call(machine, name, case.sizes, **inputs)[made]
    for first, count in ((0, 1), (66, 1), (10, 4), (5, 20), (13, 33), (1, 65)):
        some = inputs | {given: inputs[given][first : first + count]}
        part = call(machine, name, case.sizes | {"R": count}, **some)[made]
        assert np.array_equal(part, whole[first : first + count]), f"rows {first}..{first + count - 1}"
