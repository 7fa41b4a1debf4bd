"""Bits per byte as a session tells them: in steps, evaluations, the list of runs, and what turns an opened run's losses into them."""

import math

import pytest

from tests.session.test_session import scenario
from tests.session.test_tokens import learned, trained

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")


def last(asker, kind):
    return [event for event in asker.events if event["kind"] == kind][-1]


async def check(asker, stopped):
    started, step, evaluated = (last(asker, kind) for kind in ("started", "step", "eval"))
    assert step["bits_per_byte"] == pytest.approx(step["loss_nats"] / started["bytes_per_token"] / math.log(2))
    assert evaluated["bits_per_byte"] == pytest.approx(evaluated["validation_loss_nats"] / started["evaluated_bytes_per_token"] / math.log(2))
    (row,) = (await asker.call("runs.list", "runs"))["runs"]
    assert row["bits_per_byte"] == pytest.approx(evaluated["bits_per_byte"])
    opened = await asker.call("runs.open", "opened", run_id=stopped["run_id"])
    for name in ("bytes_per_token", "evaluated_bytes_per_token"):
        assert opened[name] == started[name]
    return started, row


@scenario
async def test_of_a_run_on_bytes(asker):
    started, row = await check(asker, await asker.trained())
    assert started["bytes_per_token"] == started["evaluated_bytes_per_token"] == 1
    assert (row["tokenizer"], row["vocabulary"]) == ("bytes", 256)


@scenario
async def test_of_a_run_on_bpe(asker):
    vocabulary = (await learned(asker))["vocabulary"]
    started, row = await check(asker, await trained(asker))
    assert started["bytes_per_token"] > 1.5 and started["evaluated_bytes_per_token"] > 1.5
    assert (row["tokenizer"], row["vocabulary"]) == ("bpe", vocabulary)
