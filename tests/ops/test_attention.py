"""attention: convex combinations of the past, and of nothing else."""

import numpy as np
import pytest

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import EPS, call, check_parity

SIZES = {"B": 2, "T": 67, "H": 3, "D": 20}
B, T, H, D = SIZES.values()
C = H * D


def packed(seed=0, sizes=SIZES, sharp=1.0):
    """qkv [R,3C] float32; `sharp` scales q, so that weights concentrate."""
    rng = np.random.default_rng(seed)
    qkv = rng.standard_normal((sizes["B"] * sizes["T"], 3, sizes["H"] * sizes["D"])).astype(np.float32)
    qkv[:, 0] *= np.float32(sharp)
    return qkv.reshape(len(qkv), -1)


def heads(rows, sizes=SIZES):
    """[R,C] as [B,H,T,D]."""
    return rows.reshape(sizes["B"], sizes["T"], sizes["H"], sizes["D"]).transpose(0, 2, 1, 3)


def backward(machine, sizes, qkv, dy):
    made = call(machine, "attention", sizes, qkv=qkv)
    return call(machine, "attention_backward", sizes, qkv=qkv, y=made["y"], lse=made["lse"], dy=dy)


@over_cases("attention", "attention_backward")
def test_parity(machine, case):
    check_parity(machine, case)


@pytest.mark.parametrize("sharp", [1.0, 30.0])
def test_outputs_are_convex_combinations_of_the_past(any_machine, sharp):
    qkv = packed(sharp=sharp)
    y, v = heads(call(any_machine, "attention", SIZES, qkv=qkv)["y"]), heads(np.ascontiguousarray(qkv[:, 2 * C :]))
    slack = 16 * EPS * np.abs(v).max()
    assert (y <= np.maximum.accumulate(v, 2) + slack).all()
    assert (y >= np.minimum.accumulate(v, 2) - slack).all()
    assert np.abs(y[:, :, 0] - v[:, :, 0]).max() <= slack


def test_queries_of_zero_give_the_running_mean(any_machine):
    qkv = packed(1)
    qkv[:, :C] = 0
    made = call(any_machine, "attention", SIZES, qkv=qkv)
    v = heads(np.ascontiguousarray(qkv[:, 2 * C :])).astype(np.float64)
    count = np.arange(1, T + 1)
    assert np.abs(heads(made["y"]) - v.cumsum(2) / count[:, None]).max() < 16 * EPS * np.abs(v).max()
    assert np.abs(made["lse"] - np.log(count)).max() < 8 * EPS * np.log(T)


def test_overwhelming_scores_pick_one_value(any_machine):
    """Scores near a million: without subtracting the largest, exp would overflow."""
    qkv = packed(2)
    qkv[:, :C], qkv[:, C : 2 * C] = 1000, 1000
    qkv[7::T, C : 2 * C] = 1010  # token 7 of each row of the batch wins by 1000·10·sqrt(D)
    y, v = heads(call(any_machine, "attention", SIZES, qkv=qkv)["y"]), heads(np.ascontiguousarray(qkv[:, 2 * C :]))
    assert np.array_equal(y[:, :, 7:], np.broadcast_to(v[:, :, 7:8], y[:, :, 7:].shape))


@pytest.mark.parametrize("changed", [1, 16, 32, 63, 64, 66])
def test_a_later_token_changes_no_earlier_bit(any_machine, changed):
    qkv = packed(3)
    other = qkv.copy()
    other.reshape(B, T, -1)[:, changed:] += np.float32(5.0)
    dy = np.random.default_rng(4).standard_normal((B * T, C)).astype(np.float32)
    one, two = call(any_machine, "attention", SIZES, qkv=qkv), call(any_machine, "attention", SIZES, qkv=other)
    assert np.array_equal(heads(one["y"])[:, :, :changed], heads(two["y"])[:, :, :changed])
    assert np.array_equal(one["lse"][:, :, :changed], two["lse"][:, :, :changed])
    assert not np.isclose(heads(one["y"])[:, :, changed], heads(two["y"])[:, :, changed]).any()
    dq_one, dq_two = (
        backward(any_machine, SIZES, each, dy)["dqkv"].reshape(B, T, 3, C)[:, :changed, 0] for each in (qkv, other)
    )
    assert np.array_equal(dq_one, dq_two)


def test_an_earlier_gradient_reaches_no_later_token(any_machine):
    """With dy nonzero only at time 20, nothing after 20 gets a gradient, to the bit."""
    dy = np.zeros((B, T, C), np.float32)
    dy[:, 20] = 1
    dqkv = backward(any_machine, SIZES, packed(5), dy.reshape(B * T, C))["dqkv"].reshape(B, T, 3, C)
    assert np.array_equal(dqkv[:, 21:], np.zeros_like(dqkv[:, 21:]))
    assert np.array_equal(dqkv[:, :20, 0], np.zeros_like(dqkv[:, :20, 0]))
    assert np.abs(dqkv[:, :21, 1:]).max(-1).all()


def test_rows_and_batch_entries_stand_alone(machine):
    """Same bits for a batch entry alone, and for a text cut shorter: decoding may stop where it likes."""
    qkv = packed(6)
    made = call(machine, "attention", SIZES, qkv=qkv)
    last = call(machine, "attention", SIZES | {"B": 1}, qkv=qkv[T:])
    assert np.array_equal(last["y"], made["y"][T:]) and np.array_equal(last["lse"][0], made["lse"][1])
    for time in (1, 31, 33, 64, 66):
        short = call(machine, "attention", SIZES | {"B": 1, "T": time}, qkv=qkv[:time])
        assert np.array_equal(short["y"], made["y"][:time]), f"T = {time}"


def test_heads_do_not_see_each_other(any_machine):
    qkv = packed(7)
    order = [2, 0, 1]
    moved = np.ascontiguousarray(qkv.reshape(B * T, 3, H, D)[:, :, order]).reshape(B * T, 3 * C)
    dy = np.random.default_rng(8).standard_normal((B * T, C)).astype(np.float32)
    moved_dy = np.ascontiguousarray(dy.reshape(B * T, H, D)[:, order]).reshape(B * T, C)
    y, moved_y = (call(any_machine, "attention", SIZES, qkv=each)["y"] for each in (qkv, moved))
    assert np.array_equal(y.reshape(B * T, H, D)[:, order], moved_y.reshape(B * T, H, D))
    dqkv, moved_dqkv = (
        backward(any_machine, SIZES, qkv, dy)["dqkv"],
        backward(any_machine, SIZES, moved, moved_dy)["dqkv"],
    )
    assert np.array_equal(dqkv.reshape(B * T, 3, H, D)[:, :, order], moved_dqkv.reshape(B * T, 3, H, D))


def test_gradients_sum_as_softmax_says(any_machine):
    """Weights sum to 1, so dv sums to dy over time; a common shift of all keys changes nothing, so Σ_t dk = 0."""
    dy = np.random.default_rng(9).standard_normal((B * T, C)).astype(np.float32)
    dqkv = backward(any_machine, SIZES, packed(10), dy)["dqkv"].reshape(B, T, 3, C).astype(np.float64)
    assert (
        np.abs(dqkv[:, :, 2].sum(1) - dy.reshape(B, T, C).astype(np.float64).sum(1)).max()
        < 64 * EPS * np.abs(dy).sum(0).max()
    )
    # Σ_j ds_ij = 0 for each i: with all keys equal to k, dq_i = k·Σ_j ds_ij
    qkv = packed(11)
    qkv[:, C : 2 * C] = 1
    dqkv = backward(any_machine, SIZES, qkv, dy)["dqkv"].reshape(B, T, 3, C)
    assert np.abs(dqkv[:, :, 0]).max() < 32 * EPS * np.abs(dy).max() * D < 0.01 * np.abs(dqkv[:, :, 1]).max()


def test_delta_is_the_row_sum_of_dy_times_y(machine):
    case = base_case("attention_backward")
    inputs = inputs_for(case)
    delta = call(machine, "attention_backward", case.sizes, **inputs)["delta"]
    expected = heads(inputs["dy"].astype(np.float64) * inputs["y"], case.sizes).sum(-1)
    assert np.abs(delta - expected).max() < 8 * EPS * np.abs(expected).max()
