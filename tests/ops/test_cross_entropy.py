"""cross_entropy: ln V for knowing nothing, 0 for knowing all, and rows that do not count."""

import numpy as np
import pytest

from posttrainllm.errors import DataError
from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import EPS, call, check_parity

R, V = 13, 61
SIZES = {"R": R, "V": V}


def logits_and_targets(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((R, V)).astype(np.float32), rng.integers(0, V, R).astype(np.int32)


def backward(machine, logits, targets, dloss=1.0):
    made = call(machine, "cross_entropy", SIZES, logits=logits, targets=targets)
    given = {"lse": made["lse"], "loss": made["loss"], "dloss": np.array([dloss])}
    return call(machine, "cross_entropy_backward", SIZES, logits=logits, targets=targets, **given)["dlogits"]


@over_cases("cross_entropy", "cross_entropy_backward", "cross_entropy_backward_rows")
def test_parity(machine, case):
    check_parity(machine, case)


@pytest.mark.parametrize("level", [0.0, 3.0, -500.0, 1000.0])
def test_equal_logits_cost_ln_v(any_machine, level):
    made = call(any_machine, "cross_entropy", SIZES, logits=np.full((R, V), level), targets=logits_and_targets()[1])
    allowed = 4 * EPS * (np.log(V) + abs(level))
    assert np.abs(made["losses"] - np.log(V)).max() < allowed
    assert made["loss"][0] == pytest.approx(np.log(V), abs=allowed) and made["loss"][1] == R


def test_certainty_costs_nothing_and_certain_error_its_distance(any_machine):
    targets = logits_and_targets()[1]
    logits = np.zeros((R, V), np.float32)
    logits[np.arange(R), targets] = 200
    assert np.array_equal(
        call(any_machine, "cross_entropy", SIZES, logits=logits, targets=targets)["losses"], np.zeros(R)
    )
    wrong = call(any_machine, "cross_entropy", SIZES, logits=logits, targets=(targets + 1) % V)
    assert np.array_equal(wrong["losses"], np.full(R, 200))


def test_an_ignored_row_counts_for_nothing(any_machine):
    logits, targets = logits_and_targets()
    ignoring = targets.copy()
    ignoring[[0, 5, 12]] = [-100, -1, -(2**31)]
    made = call(any_machine, "cross_entropy", SIZES, logits=logits, targets=ignoring)
    plain = call(any_machine, "cross_entropy", SIZES, logits=logits, targets=targets)
    kept = ignoring >= 0
    assert np.array_equal(made["losses"][kept], plain["losses"][kept]) and not made["losses"][~kept].any()
    assert made["loss"][1] == kept.sum()
    assert made["loss"][0] == pytest.approx(plain["losses"][kept].astype(np.float64).mean(), rel=8 * EPS)
    changed = logits.copy()
    changed[~kept] += 7
    assert np.array_equal(
        call(any_machine, "cross_entropy", SIZES, logits=changed, targets=ignoring)["loss"], made["loss"]
    )
    dlogits = backward(any_machine, logits, ignoring)
    assert not dlogits[~kept].any() and dlogits[kept].all()


def test_nothing_counts(any_machine):
    logits = logits_and_targets()[0]
    made = call(any_machine, "cross_entropy", SIZES, logits=logits, targets=np.full(R, -100))
    assert made["loss"].tolist() == [0, 0] and not made["losses"].any()
    assert not backward(any_machine, logits, np.full(R, -100)).any()


def test_gradient_rows_sum_to_zero_and_scale_with_dloss(any_machine):
    logits, targets = logits_and_targets(1)
    dlogits = backward(any_machine, logits, targets)
    assert np.abs(dlogits.astype(np.float64).sum(1)).max() < 8 * EPS / R * V**0.5
    assert (np.sign(dlogits[np.arange(R), targets]) == -1).all() and (dlogits < 0).sum() == R
    assert np.array_equal(backward(any_machine, logits, targets, 4.0), 4 * dlogits)


def rows_backward(machine, logits, targets, dlosses):
    lse = call(machine, "cross_entropy", SIZES, logits=logits, targets=targets)["lse"]
    given = {"lse": lse, "dlosses": dlosses}
    return call(machine, "cross_entropy_backward_rows", SIZES, logits=logits, targets=targets, **given)["dlogits"]


def test_a_row_is_scaled_by_its_own_gradient(any_machine):
    """The mean's gradient is the same in every counted row; and a row answers to its own number only."""
    logits, targets = logits_and_targets(4)
    targets[[2, 9]] = -100
    mean = backward(any_machine, logits, targets, 3.0)
    each = rows_backward(any_machine, logits, targets, np.full(R, np.float32(3) / np.float32(R - 2)))
    assert np.abs(each - mean).max() <= 2 * EPS * np.abs(mean).max()
    dlosses = np.zeros(R)
    dlosses[5] = -2.5
    one = rows_backward(any_machine, logits, targets, dlosses)
    assert one[5].all() and not one[np.arange(R) != 5].any()
    assert one[5, targets[5]] > 0 and (one[5] > 0).sum() == 1, "a negative gradient pushes the target down"


def test_a_gradient_on_an_ignored_row_goes_nowhere(any_machine):
    logits, targets = logits_and_targets(5)
    targets[::2] = -1
    dlogits = rows_backward(any_machine, logits, targets, np.full(R, 1e6))
    assert not dlogits[::2].any() and dlogits[1::2].all()


def test_probabilities_add_to_one_through_lse(any_machine):
    logits, targets = logits_and_targets(2)
    lse = call(any_machine, "cross_entropy", SIZES, logits=logits, targets=targets)["lse"]
    assert np.abs(np.exp(logits.astype(np.float64) - lse[:, None]).sum(1) - 1).max() < 8 * EPS * np.abs(lse).max()


@pytest.mark.parametrize("bad", [61, 2**31 - 1])
@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy_backward", "cross_entropy_backward_rows"])
def test_a_target_outside_the_vocabulary_is_an_error(any_machine, name, bad):
    case = base_case(name)
    inputs = inputs_for(case)
    inputs["targets"][3] = bad
    with pytest.raises(DataError, match=f"{name}.*target"):
        call(any_machine, name, case.sizes, **inputs)


def test_a_row_does_not_depend_on_the_others(machine):
    logits, targets = logits_and_targets(3)
    whole = call(machine, "cross_entropy", SIZES, logits=logits, targets=targets)
    for r in (0, 6, 12):
        alone = call(machine, "cross_entropy", {"R": 1, "V": V}, logits=logits[r : r + 1], targets=targets[r : r + 1])
        assert alone["losses"][0] == whole["losses"][r] and alone["lse"][0] == whole["lse"][r]


def test_exp_is_right_to_two_eps_everywhere(machine):
    """With lse = 0 and the target in another column, dlogits is exp(logit) itself: its relative error is seen."""
    x = np.concatenate([np.linspace(-80, 0, 4001), np.linspace(-1.5, 0, 4001)]).astype(np.float32)
    logits = np.stack([x, np.zeros_like(x)], 1)
    given = {"targets": np.ones(x.size), "lse": np.zeros(x.size), "loss": np.array([0.0, 1.0]), "dloss": np.ones(1)}
    got = call(machine, "cross_entropy_backward", {"R": x.size, "V": 2}, logits=logits, **given)["dlogits"][:, 0]
    expected = np.exp(x.astype(np.float64))
    assert np.abs(got / expected - 1).max() < 2 * EPS


def test_log_is_right_to_one_eps(machine):
    """V equal logits of 0 have lse = ln V."""
    for v in (1, 2, 3, 5, 17, 100, 1000, 4097, 65_537):
        lse = call(machine, "cross_entropy", {"R": 1, "V": v}, logits=np.zeros((1, v)), targets=np.zeros(1))["lse"][0]
        assert abs(lse - np.log(v)) <= EPS * np.log(v), v
