"""Runs that save memory in a Session: planned with choices, begun, moved to another engine and continued, in the same steps."""

import pytest
from posttrainllm.model.choosing import RESERVE_BYTES, planned
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.saving import Saving

from tests.session.test_session import QUICK, TEXT, scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")
PLAIN = {"micro_batches": 1, "recompute": 0, "moments": "f32"}
TINY = GPTConfig.preset("tiny")


def room_for(saving):
    """What a page has, where a run with this Saving just fits."""
    return planned(TINY, None, saving).total_bytes + RESERVE_BYTES


@scenario
async def test_a_plan_lists_what_could_be_chosen(asker):
    found = await asker.call("plan", "planned", preset="tiny")
    assert found["fits"] and found["saving"] == PLAIN and (found["layers"], found["batch"]) == (2, 16)
    assert found["choices"][0]["name"] == "plain" and all(each["fits"] for each in found["choices"])
    assert {"recompute", "micro_batches", "bf16", "8bit", "smallest"} < {each["name"] for each in found["choices"]} | {"more"}
    assert found["memory"]["scratch_bytes"] > 0
    asked = await asker.call("plan", "planned", preset="tiny", saving={"recompute": 2})
    assert asked["saving"] == PLAIN | {"recompute": 2} and asked["memory"]["total_bytes"] < found["memory"]["total_bytes"]
    assert [each["saving"] for each in asked["choices"]] == [each["saving"] for each in found["choices"]]
    for told in (found, asked):
        [taken] = [each for each in told["choices"] if each["saving"] == told["saving"]]
        assert taken["total_bytes"] == told["memory"]["total_bytes"], "the sum that is shown and the choice that is taken agree"
    refused = await asker.call("plan", "failed", preset="tiny", saving={"micro_batches": 5})
    assert "divides the batch of 16" in refused["message"]
    refused = await asker.call("plan", "failed", preset="tiny", saving="all")
    assert "auto" in refused["message"]


@scenario
async def test_the_cheapest_that_fits_is_taken_where_nobody_chose(asker):
    asker.session.host.reach_bytes = room_for(Saving(recompute=1))
    found = await asker.call("plan", "planned", preset="tiny")
    assert found["fits"] and found["saving"] == PLAIN | {"micro_batches": 2}
    assert not found["choices"][0]["fits"]
    plain = await asker.call("plan", "planned", preset="tiny", saving=PLAIN)
    assert not plain["fits"] and "It fits with" in plain["reason"]
    asker.ask("corpus.text", text=TEXT)
    started = await asker.call("train.start", "started", preset="tiny", training=QUICK)
    assert started["saving"] == PLAIN | {"micro_batches": 2}
    await asker.wait("stopped")
    asker.session.host.reach_bytes = 1000
    assert (await asker.call("plan", "planned", preset="tiny"))["fits"] is False


@scenario
async def test_a_run_goes_on_with_another_saving_in_the_same_bits(asker):
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK)
    stopped = await asker.wait("stopped")
    started = await asker.call("runs.continue", "started", run_id=stopped["run_id"], steps=10, saving={"recompute": 2})
    assert started["saving"]["recompute"] == 2 and started["step"] == QUICK["steps"]
    await asker.wait("stopped")
    recomputed = asker.session.model.weights_sha256()
    asker.ask("train.start", preset="tiny", training=QUICK)
    again = await asker.wait("stopped")
    await asker.call("runs.continue", "started", run_id=again["run_id"], steps=10)
    await asker.wait("stopped")
    assert asker.session.model.weights_sha256() == recomputed and asker.session.model.program.saving == Saving()


@scenario
async def test_moments_stay_as_a_run_has_them(asker):
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK, saving={"moments": "8bit", "micro_batches": 2})
    stopped = await asker.wait("stopped")
    asker.session.drop_model()
    started = await asker.call("runs.continue", "started", run_id=stopped["run_id"], steps=2)
    assert started["saving"] == PLAIN | {"moments": "8bit", "micro_batches": 2}, "parts are kept too"
    await asker.wait("stopped")
