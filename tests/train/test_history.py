"""The history stays small, keeps every validation loss, and does not depend on where a run was cut."""

import pytest

from posttrainllm.train import history
from posttrainllm.train.history import append, stride


def row(step, loss=None):
    return {"step": step, "loss_nats": 1.0, "validation_loss_nats": loss}


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(history, "FULL_STEPS", 8)


def grown(steps, evaluated=(), rows=None):
    rows = [] if rows is None else rows
    for step in steps:
        append(rows, row(step))
        if step in evaluated:
            rows[-1]["validation_loss_nats"] = 2.0
    return rows


def test_strides_double(short):
    assert [stride(step) for step in (1, 8, 9, 16, 17, 32, 33, 64, 65)] == [1, 1, 2, 2, 4, 4, 8, 8, 16]


def test_a_short_run_keeps_every_step(short):
    assert [r["step"] for r in grown(range(1, 9))] == list(range(1, 9))


def test_a_long_run_keeps_every_nth_and_the_newest(short):
    assert [r["step"] for r in grown(range(1, 10))] == [2, 4, 6, 8, 9]
    assert [r["step"] for r in grown(range(1, 12))] == [2, 4, 6, 8, 10, 11]
    assert [r["step"] for r in grown(range(1, 18))] == [4, 8, 12, 16, 17]
    rows = grown(range(1, 5000))
    assert len(rows) <= 11 and rows[-1]["step"] == 4999


def test_rows_with_a_validation_loss_stay(short):
    rows = grown(range(1, 100), evaluated={5, 33, 77})
    assert {5, 33, 77} <= {r["step"] for r in rows}
    assert [r["step"] for r in rows if r["validation_loss_nats"]] == [5, 33, 77]


def test_a_run_that_was_cut_anywhere_has_the_same_rows(short):
    straight = grown(range(1, 60), evaluated={7, 21})
    for cut in range(1, 59):
        first = [dict(r) for r in grown(range(1, cut + 1), evaluated={7, 21})]
        assert grown(range(cut + 1, 60), evaluated={7, 21}, rows=first) == straight


def test_an_hour_of_fast_steps_is_a_few_thousand_rows():
    rows = grown(range(1, 100_001), evaluated=range(0, 100_001, 100))
    assert len(rows) < 8192 + 1000
