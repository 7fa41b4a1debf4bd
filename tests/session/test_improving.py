"""Learning from corrections in a Session: recorded, improved, judged, put on, rolled back; and whatever comes in between."""

import asyncio
import json

import pytest
from posttrainllm.errors import DeviceError, StoreError
from posttrainllm.session import Host
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore
from posttrainllm.tune.continual.history import adapter_sha256

from tests.session.test_session import running, scenario
from tests.tune.continual.making import CONFIG, QUICK, follows, noise, prompts, styled, text

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

TRAIN = {"steps": 400, "learning_rate": 6e-3, "warmup_steps": 20, "decay_steps": 400, "evaluate_every_steps": 400, "evaluation_tokens": 4096}
CONFIG = {name: value for name, value in CONFIG.to_dict().items() if name != "vocabulary"} | {"vocabulary": 256}


async def based(asker, **training):
    """A run whose text has questions and plain answers."""
    asker.ask("corpus.text", text=text(), name="questions")
    asker.ask("train.start", config=CONFIG, training=TRAIN | training)
    return (await asker.wait("stopped"))["run_id"]


def lines(kept=styled, count=40):
    """JSONL of a user's answers to `count` prompts."""
    rows = [{"id": f"c{at}", "what": "edit", "prompt": prompt, "offered": "Hm.", "kept": kept(prompt)} for at, prompt in enumerate(prompts(count))]
    return "".join(json.dumps(row) + "\n" for row in rows)


async def taught(asker, jsonl=None):
    await asker.call("improve.import", "improve.imported", text=jsonl or lines())


async def improved(asker, **settings):
    asker.ask("improve.start", settings=QUICK | {"gate": {"recital_rise": 0.2}} | settings)  # of 16 beginnings one more is 6 %
    return await asker.wait("improve.ended")


async def answer(asker, prompt):
    reply, said = asker.ask("write.start", prompt=prompt, tokens=60, temperature=0, ask=True), ""
    while True:
        event = await asker.wait("token", "wrote", reply_to=reply)
        if event["kind"] == "wrote":
            return said
        said += event["text"]


def last(asker, kind):
    return [event for event in asker.events if event["kind"] == kind][-1]


@scenario
async def test_from_a_record_to_a_promoted_version_and_back(asker):
    run_id = await based(asker)
    plain = await answer(asker, "Where is the vase?")
    recorded = await asker.call("improve.record", "improve.recorded", what="correct", prompt="Where is the vase?", offered=plain, kept=styled("Where is the vase?"))
    row = recorded["record"]
    assert recorded["saved"]
    assert row["sampler"] == {"tokens": 60, "temperature": 0, "ask": True} and row["version"] is None and row["adapter_id"] == ""
    assert row["base_sha256"] == await asker.session.adapters.base_sha256()
    short = await asker.call("improve.plan", "improve.planned")
    assert "at least 8 answers" in short["problem"] and short["learned"] == 0
    failed = await asker.call("improve.start", "failed")
    assert "at least 8 answers" in failed["message"] and not asker.session.improving.active
    await taught(asker)
    plan = await asker.call("improve.plan", "improve.planned")
    assert plan["learned"] + plan["held_out"] == 41 and not plan["problem"]
    told = await asker.call("improve.list", "improve.records", count=5)
    assert (told["total"], told["fresh"], len(told["rows"]), told["rows"][0]["id"]) == (41, 41, 5, "c39")

    ended = await improved(asker)
    gate = last(asker, "improve.gate")
    assert gate["passed"] and ended["promoted"] and (ended["reason"], ended["version"]) == ("finished", 1), (gate, ended)
    rows = [each for event in asker.events if event["kind"] == "improve.step" for each in event["rows"]]
    assert [each[0] for each in rows] == list(range(1, 141)) and {event["phase"] for event in asker.events if event["kind"] == "improve.step"} == {"sft", "dpo"}
    assert follows(await answer(asker, "Who has seen the plough?"))
    listed = await asker.call("adapters.list", "adapters")
    assert listed["chosen"] == f"{run_id}.version-1" and listed["adapters"][0]["name"] == "version 1"
    assert (await asker.call("improve.list", "improve.records"))["fresh"] == 0
    history = asker.session.improving.records.kept.history
    assert adapter_sha256(await asker.session.model.adapter_async()) == history[1].adapter_sha256

    asker.ask("compare.start", prompt="Where is the vase?", tokens=40, temperature=0, ask=True)
    while not (await asker.wait("compare.wrote"))["last"]:
        pass
    versions = await asker.call("improve.use", "improve.versions", version=0)
    assert (versions["in_use"], versions["on"]) == (None, None)
    assert await answer(asker, "Where is the vase?") == plain, "the base alone"
    await asker.call("improve.use", "improve.versions", version=1)
    assert adapter_sha256(await asker.session.model.adapter_async()) == history[1].adapter_sha256, "byte for byte"

    # A second set of nonsense is kept aside, and what is in use stays so.
    await asker.call("improve.clear", "improve.records")
    await taught(asker, lines(lambda prompt: noise(len(prompt) * 7 + ord(prompt[-3]))))
    ended = await improved(asker)
    assert not ended["promoted"] and ended["version"] == 2 and ended["reasons"] and "kept aside" in ended["message"]
    versions = await asker.call("improve.history", "improve.versions")
    assert (versions["in_use"], versions["on"], [each["number"] for each in versions["versions"]]) == (1, 1, [2, 1])
    assert adapter_sha256(await asker.session.model.adapter_async()) == history[1].adapter_sha256
    assert "kept aside" in (await asker.call("improve.use", "failed", version=2))["message"]

    # The run opened anew has its version on; a copy has the records and versions too; a deleted one leaves nothing.
    await asker.call("runs.duplicate", "runs", run_id=run_id)
    asker.ask("runs.open", run_id=run_id)
    versions = await asker.wait("improve.versions")
    assert (versions["in_use"], versions["on"], versions["unfinished"]) == (1, 1, "")
    assert follows(await answer(asker, "Who has seen the plough?"))
    copy = next(row["run_id"] for row in (await asker.call("runs.list", "runs"))["runs"] if row["run_id"] != run_id)
    asker.ask("runs.open", run_id=copy)
    assert (await asker.wait("improve.versions"))["on"] == 1
    assert (await asker.call("improve.list", "improve.records"))["total"] == 40
    await asker.call("runs.delete", "runs", run_id=copy)
    assert (await asker.call("improve.list", "improve.records"))["total"] == 0

    # Trained on, its versions are of other weights: said, and the base alone is on.
    asker.ask("runs.continue", run_id=run_id, steps=5)
    await asker.wait("stopped")
    asker.ask("runs.open", run_id=run_id)
    versions = await asker.wait("improve.versions")
    assert versions["on"] is None and "other weights" in versions["note"]
    assert "other" in (await asker.call("improve.use", "failed", version=1))["message"]


@scenario
async def test_records_are_edited_deleted_and_moved_without_storage(asker):
    assert "a model" in (await asker.call("improve.record", "failed", what="accept", prompt="a", offered="b"))["message"]
    assert (await asker.call("improve.list", "improve.records"))["total"] == 0
    asker.session.runs.store.create = refusing
    asker.ask("corpus.text", text=text(), name="questions")
    asker.ask("train.start", preset="tiny", training={"steps": 2})
    await asker.wait("failed")
    await asker.wait("stopped")
    first = await asker.call("improve.record", "improve.recorded", what="retry", prompt="a <b>?", offered="no")
    await asker.call("improve.record", "improve.recorded", what="accept", prompt="a <b>?", offered="yes")
    assert first["saved"] is False and asker.session.improving.records.kept.saved is False
    edited = await asker.call("improve.edit", "improve.records", record_id=first["record"]["id"], what="edit", kept="<i>perhaps</i>")
    assert edited["rows"][1]["kept"] == "<i>perhaps</i>"
    exported = await asker.call("improve.export", "exported")
    data = bytes(exported["buffer"])
    assert exported["name"].endswith("corrections.jsonl") and [json.loads(each)["kept"] for each in data.decode().splitlines()] == ["<i>perhaps</i>", "yes"]
    assert (await asker.call("improve.delete", "improve.records", record_ids=[first["record"]["id"]]))["total"] == 1
    assert (await asker.call("improve.clear", "improve.records"))["total"] == 0
    assert (await asker.call("improve.import", "improve.imported", buffer=data))["added"] == 2
    assert "line 1" in (await asker.call("improve.import", "failed", text="{", name="x.jsonl"))["message"]


async def refusing(*_):
    raise StoreError("store", "a place to keep it", "there is none", "nothing")


@scenario
async def test_stop_requests_and_idle(asker):
    await based(asker, steps=40)
    await taught(asker)
    before = asker.session.model.weights_sha256()
    long = {"sft_steps": 100_000}
    asker.ask("improve.start", settings=QUICK | long)
    await asker.wait("improve.step")
    for kind, fields in (("write.start", {"prompt": "a"}), ("tune.start", {"how": "text", "text": "a"}), ("train.extend", {"steps": 2}), ("improve.use", {"version": 0})):
        assert "improvement is going" in (await asker.call(kind, "failed", **fields))["message"], kind
    await asker.call("improve.record", "improve.recorded", what="accept", prompt="meanwhile", offered="yes")
    asker.ask("improve.stop")
    ended = await asker.wait("improve.ended")
    assert (ended["reason"], ended["version"], ended["promoted"]) == ("stopped", None, False)
    assert asker.session.model.weights_sha256() == before and asker.session.adapters.chosen is None
    assert (await asker.wait("improve.versions"))["unfinished"] == ""

    assert "leave to begin by itself" in (await asker.call("improve.start", "failed", by_itself=True))["message"]
    await asker.call("improve.idle", "improve.idle", on=True)
    asker.ask("improve.start", settings=QUICK | long, by_itself=True)
    assert (await asker.wait("improve.started"))["by_itself"] is True
    await asker.wait("improve.step")
    assert await answer(asker, "Where is the owl?") is not None, "it gave way, and the text was written"
    ended = last(asker, "improve.ended")
    assert ended["reason"] == "gave_way" and ended["by_itself"] and asker.session.model.weights_sha256() == before


@scenario
async def test_a_lost_engine_leaves_what_was_on(asker):
    await based(asker, steps=40)
    await taught(asker)
    asker.ask("improve.start", settings=QUICK | {"sft_steps": 100_000})
    await asker.wait("improve.step")
    machine, replay = asker.session.model.machine, asker.session.model.machine.replay

    def lost(*_, **__):
        raise DeviceError("engine", "it answers", "it does not", "reload")

    machine.replay = lost
    ended = await asker.wait("improve.ended", "failed")
    while ended["kind"] == "failed":
        ended = await asker.wait("improve.ended", "failed")
    assert ended["reason"] == "error" and "corrections are kept" in ended["message"] and not asker.session.improving.active
    machine.replay = replay


def test_a_tab_closed_in_the_middle_is_told_of_at_the_next_opening():
    volume = MemoryVolume()

    async def go():
        host = Host(device="cpu", threads=1, store=RunStore(volume))
        async with running(host) as asker:
            run_id = await based(asker, steps=40)
            await taught(asker)
            asker.ask("improve.start", settings=QUICK | {"sft_steps": 100_000})
            await asker.wait("improve.step")
            marks = [each.facts["kind"] for each in asker.session.improving.records.kept.journal.records()][-1]
            assert marks == "improving"
            # The tab goes here: what the journal holds now is what the next one finds.
            asker.session.improving._mark = lambda kind: None
        async with running(Host(device="cpu", threads=1, store=RunStore(volume))) as asker:
            asker.ask("runs.open", run_id=run_id)
            versions = await asker.wait("improve.versions")
            assert versions["unfinished"] and versions["on"] is None
            assert (await asker.call("improve.list", "improve.records"))["total"] == 40

    asyncio.run(go())
