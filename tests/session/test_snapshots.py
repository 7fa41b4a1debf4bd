"""A Session's runs keep snapshots of their weights, and the Inside view shows how the lens sharpened over them."""

import pytest

from posttrainllm import study
from posttrainllm.errors import StoreQuotaError
from posttrainllm.train.state import set_weights
from tests.session.test_session import QUICK, TEXT, scenario

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")


async def bytes_of(asker):
    """What the list says the held run takes."""
    told = await asker.call("runs.list", "runs")
    return next(row["bytes"] for row in told["runs"] if row["live"])


@scenario
async def test_a_run_keeps_snapshots_of_its_weights_unless_the_model_is_large(asker):
    await asker.trained(steps=40)
    runs = asker.session.runs
    assert runs._held.snapshots.steps() == [0, 16, 32]
    kept = await bytes_of(asker)
    asker.ask("runs.continue", run_id=runs.held_id, steps=1)
    await asker.wait("stopped")
    assert runs._held.snapshots.steps() == [0, 16, 32]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("posttrainllm.session.training.MOST_SNAPSHOT_BYTES", 1000)
        await asker.trained(steps=20)
    assert runs._held.snapshots.steps() == []
    assert await bytes_of(asker) < kept / 1.5


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


@scenario
async def test_how_the_lens_sharpened(asker):
    await asker.trained(steps=40)
    weights = asker.session.model.weights_sha256()
    told = await asker.call("inside.sharpening", "inside.sharpening", text="To be, or not")
    assert (told["steps"], told["rows"], told["damaged"]) == ([0, 16, 32, 40], ["embed", "blocks.0", "blocks.1"], [])
    model = asker.session.model
    assert told["loss_nats"][-1] == pytest.approx(study.logit_lens(model, "To be, or not").loss_nats.tolist())
    assert told["loss_nats"][0][-1] > told["loss_nats"][-1][-1] + 1 and told["probability"][0][-1] < told["probability"][-1][-1]
    assert model.weights_sha256() == weights, "the live model stays as it is"
    set_weights(model, asker.session.runs._held.snapshots.load(16))
    assert told["loss_nats"][1] == pytest.approx(study.logit_lens(model, "To be, or not").loss_nats.tolist(), abs=1e-5)


@scenario
async def test_how_it_sharpened_while_it_trains_without_snapshots_and_of_too_little(asker):
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 5000})
    await asker.wait("step")
    told = await asker.call("inside.sharpening", "inside.sharpening", text="To be")
    assert told["steps"][0] == 0 and told["steps"][-1] == told["step"] and len(told["loss_nats"]) == len(told["steps"]) > 1
    asker.ask("train.stop")
    await asker.wait("stopped")
    assert "two tokens or more" in (await asker.call("inside.sharpening", "failed", text="T"))["message"]
    exported = b"".join([bytes(chunk) async for chunk in asker.session.runs.store.export(asker.session.runs.held_id)])
    asker.ask("runs.import", buffer=exported, name="again")
    await asker.wait("opened")
    told = await asker.call("inside.sharpening", "inside.sharpening", text="To be")
    assert told["steps"] == [told["step"]] and len(told["loss_nats"]) == 1


@scenario
async def test_how_it_sharpened_with_an_adapter_on(asker):
    """The snapshots are of the base, and nothing is kept of an adapter on its way: the last row is told to be with it."""
    await asker.trained(steps=40)
    plain = await asker.call("inside.sharpening", "inside.sharpening", text="To be, or not")
    asker.ask("tune.start", how="text", text="Nor this nor that. " * 200, training={"steps": 20, "learning_rate": 0.01})
    await asker.wait("tune.stopped")
    tuned = await asker.call("inside.sharpening", "inside.sharpening", text="To be, or not")
    assert (plain["adapter"], tuned["adapter"]) == (False, True) and tuned["steps"] == plain["steps"]
    assert tuned["loss_nats"][:-1] == plain["loss_nats"][:-1] and tuned["loss_nats"][-1] != plain["loss_nats"][-1]
    asker.ask("adapters.use", adapter_id="")
    await asker.wait("adapters")
    bare = await asker.call("inside.sharpening", "inside.sharpening", text="To be, or not")
    assert not bare["adapter"] and bare["loss_nats"][-1] == pytest.approx(plain["loss_nats"][-1], abs=1e-6)
