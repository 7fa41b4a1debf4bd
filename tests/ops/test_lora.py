"""lora: nothing at strength 0 or from a zero `up`, the merged linear at any other; adjoint; each row on its own."""

import numpy as np
import pytest

from posttrainllm.errors import DeviceError
from posttrainllm.ops import kernel
from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import EPS, call, check_parity, run_kernel

SIZES = {"R": 19, "I": 23, "O": 41, "K": 5, "J": 13}


@over_cases("lora", "lora_backward_hidden", "lora_backward_input", "lora_backward_weight")
def test_parity(machine, case):
    check_parity(machine, case)


def forward(machine, sizes=SIZES, first=7, **inputs):
    return call(machine, "lora", sizes, (first,), **inputs)


def whole_numbers(sizes=SIZES, seed=0):
    """Small enough that every sum is exact in float32."""
    rng = np.random.default_rng(seed)
    shapes = {"x": "RI", "down": "IK", "up": "KJ", "y": "RO"}
    inputs = {name: rng.integers(-4, 5, [sizes[letter] for letter in dims]) for name, dims in shapes.items()}
    return inputs | {"strength": np.array([2.0])}


@pytest.mark.parametrize("first", [0, 7, 28])
def test_small_integers_are_exact_and_other_columns_stay(any_machine, first):
    inputs = whole_numbers()
    made = forward(any_machine, first=first, **inputs)
    expected = inputs["y"].astype(np.float64)
    expected[:, first : first + 13] += 2 * (inputs["x"] @ inputs["down"] @ inputs["up"])
    assert np.array_equal(made["y"], expected)
    assert np.array_equal(made["hidden"], inputs["x"] @ inputs["down"])


def test_gradients_of_small_integers_are_exact(any_machine):
    inputs, rng = whole_numbers(), np.random.default_rng(1)
    x, down, up, strength = (inputs[name] for name in ("x", "down", "up", "strength"))
    dy, dx = rng.integers(-4, 5, (19, 41)), rng.integers(-4, 5, (19, 23))
    prior = {"ddown": rng.integers(-4, 5, (23, 5)), "dup": rng.integers(-4, 5, (5, 13))}
    sizes = {letter: SIZES[letter] for letter in "ROKJ"}
    dhidden = call(any_machine, "lora_backward_hidden", sizes, (7,), dy=dy, up=up, strength=strength)["dhidden"]
    assert np.array_equal(dhidden, 2 * dy[:, 7:20] @ up.T)
    sizes = {letter: SIZES[letter] for letter in "RIK"}
    for accumulate in (0, 1):
        got = call(any_machine, "lora_backward_input", sizes, (accumulate,), dhidden=dhidden, down=down, dx=dx)["dx"]
        assert np.array_equal(got, accumulate * dx + dhidden @ down.T)
    given = {"x": x, "hidden": x @ down, "dhidden": dhidden, "dy": dy, "strength": strength}
    got = call(any_machine, "lora_backward_weight", SIZES, (7,), **given, **prior)
    assert np.array_equal(got["ddown"], prior["ddown"] + x.T @ dhidden)
    assert np.array_equal(got["dup"], prior["dup"] + 2 * (x @ down).T @ dy[:, 7:20])


@pytest.mark.parametrize(("columns", "rank"), [(1, 1), (1, 5), (3, 2), (16, 4), (67, 1)])
def test_it_may_cover_every_column(any_machine, columns, rank):
    sizes = SIZES | {"O": columns, "J": columns, "K": rank}
    inputs = whole_numbers(sizes)
    made = forward(any_machine, sizes, 0, **inputs)
    assert np.array_equal(made["y"], inputs["y"] + 2 * (inputs["x"] @ inputs["down"] @ inputs["up"]))


@pytest.mark.parametrize("changes", [{"strength": 0.0}, {"up": 0.0}, {"strength": 0.0, "up": np.nan, "down": np.inf}])
def test_it_may_be_nothing(any_machine, changes):
    """Strength 0 (whatever the adapter holds), or an `up` of zeros: y keeps its bits."""
    inputs = inputs_for(base_case("lora"))
    inputs |= {name: np.full_like(inputs[name], value) for name, value in changes.items()}
    assert forward(any_machine, **inputs)["y"].tobytes() == inputs["y"].tobytes()


def test_it_is_the_merged_linear(any_machine):
    """x·W + strength·x·A·B against x·(W + strength·A·B)."""
    inputs, weight = inputs_for(base_case("lora")), np.random.default_rng(3).standard_normal((23, 41))
    merged = weight.copy()
    merged[:, 7:20] += inputs["strength"] * (inputs["down"].astype(np.float64) @ inputs["up"])
    zero, sizes = np.zeros(41), {"R": 19, "I": 23, "O": 41}
    y = call(any_machine, "linear", sizes, x=inputs["x"], weight=weight, bias=zero)["y"]
    got = forward(any_machine, **inputs | {"y": y})["y"]
    expected = call(any_machine, "linear", sizes, x=inputs["x"], weight=merged, bias=zero)["y"]
    assert np.abs(got - expected).max() < 16 * EPS * np.abs(expected).max()
    assert np.abs(got - y).max() > 1


def test_the_backward_is_the_adjoint(any_machine):
    """⟨change, dy⟩ = ⟨x, dx⟩ = ⟨down, ddown⟩ = ⟨up, dup⟩: the change is linear in each."""
    inputs = inputs_for(base_case("lora")) | {"y": np.zeros((19, 41), np.float32)}
    dy = np.random.default_rng(2).standard_normal((19, 41)).astype(np.float32)
    made = forward(any_machine, **inputs)
    whole = (made["y"].astype(np.float64) * dy).sum()
    given = {"dy": dy, "up": inputs["up"], "strength": inputs["strength"]}
    sizes = {letter: SIZES[letter] for letter in "ROKJ"}
    dhidden = call(any_machine, "lora_backward_hidden", sizes, (7,), **given)["dhidden"]
    sizes = {letter: SIZES[letter] for letter in "RIK"}
    dx = np.zeros((19, 23))
    dx = call(any_machine, "lora_backward_input", sizes, (0,), dhidden=dhidden, down=inputs["down"], dx=dx)["dx"]
    given = {"x": inputs["x"], "hidden": made["hidden"], "dhidden": dhidden, "dy": dy, "strength": inputs["strength"]}
    given |= {"ddown": np.zeros((23, 5)), "dup": np.zeros((5, 13))}
    got = call(any_machine, "lora_backward_weight", SIZES, (7,), **given)
    allowed = 32 * EPS * np.sqrt((made["y"].astype(np.float64) ** 2).sum() * (dy.astype(np.float64) ** 2).sum())
    assert abs(whole) > 1000 * allowed
    for weight, gradient in ((inputs["x"], dx), (inputs["down"], got["ddown"]), (inputs["up"], got["dup"])):
        assert abs((weight.astype(np.float64) * gradient).sum() - whole) < allowed


@pytest.mark.parametrize("changes", [{}, {"R": 131, "I": 300, "O": 67, "J": 60}, {"R": 131, "K": 33, "O": 520, "J": 500}])
def test_a_row_does_not_depend_on_the_others(machine, changes):
    """Decoding one token, verifying a draft and training give the same bits."""
    case = base_case("lora", **({"R": 67} | changes))
    inputs = inputs_for(case)
    whole = call(machine, "lora", case.sizes, case.params, **inputs)
    for first, count in ((0, 1), (66, 1), (10, 4), (5, 20), (13, 33), (1, 65)):
        part = slice(first, first + count)
        some = inputs | {"x": inputs["x"][part], "y": inputs["y"][part]}
        got = call(machine, "lora", case.sizes | {"R": count}, case.params, **some)
        for name in ("y", "hidden"):
            assert np.array_equal(got[name], whole[name][part]), f"{name}, rows {first}..{first + count - 1}"


@pytest.mark.parametrize("changes", [{"J": 42}, {"J": 35}, {"K": 4097}])
def test_columns_that_do_not_exist_are_refused(machine, changes):
    if machine.name != "cpu":
        pytest.skip("the C++ engine checks its tapes")
    sizes = SIZES | changes
    shapes = {"x": "RI", "down": "IK", "up": "KJ", "y": "RO"}
    inputs = {name: np.zeros([sizes[letter] for letter in dims]) for name, dims in shapes.items()}
    with pytest.raises(DeviceError, match="lora: (columns|rank)"):
        run_kernel(machine, kernel("lora"), sizes, (7,), strength=np.ones(1), **inputs)
