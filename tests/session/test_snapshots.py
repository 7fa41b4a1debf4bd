"""A Session's runs keep snapshots of their weights, and the Inside view shows how the lens sharpened over them."""

import pytest

from posttrainllm.errors import StoreQuotaError
from tests.session.test_session import QUICK, TEXT, scenario

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")


@scenario
async def test_a_run_keeps_snapshots_of_its_weights_unless_the_model_is_large(asker):
    await asker.trained(steps=40)
    runs = asker.session.runs
    assert runs._held.snapshots.steps() == [0, 16, 32]
    kept = (await asker.call("runs.list", "runs"))["runs"][0]["bytes"]
    asker.ask("runs.continue", run_id=runs.held_id, steps=1)
    await asker.wait("stopped")
    assert runs._held.snapshots.steps() == [0, 16, 32]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posttrainllm.session.training.MOST_SNAPSHOT_BYTES", 1000)
        await asker.trained(steps=20)
    assert runs._held.snapshots.steps() == []
    assert (await asker.call("runs.list", "runs"))["runs"][0]["bytes"] < kept / 1.5


@scenario
async def test_a_snapshot_that_finds_no_room_is_told_and_the_run_goes_on(asker):
    def full(self, step, weights):
        raise StoreQuotaError("snapshot", "there is room", "there is none", "delete a run")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posttrainllm.store.snapshots.Snapshots.keep", full)
        asker.ask("corpus.text", text=TEXT, name="hamlet")
        asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 40})
        assert "there is room" in (await asker.wait("failed"))["message"]
        stopped = await asker.wait("stopped")
        assert (stopped["step"], stopped["reason"], stopped["saved"]) == (40, "finished", True)
        assert sum(event["kind"] == "failed" for event in asker.events) == 1
