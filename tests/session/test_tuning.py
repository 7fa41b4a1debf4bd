"""Tuning in a Session: an adapter learns beside a run, is kept, put on and off, compared, merged, moved; and nothing is lost meanwhile."""

import asyncio
import io
import zipfile
from random import Random

import pytest
from posttrainllm.errors import StoreQuotaError
from posttrainllm.session import Host
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore

from tests.session.test_session import QUICK, TEXT, running, scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

SECOND = "The rain in Spain stays mainly in the plain, and the wind blows cold again. " * 200
TUNE = {"how": "text", "text": SECOND, "name": "rain", "training": {"steps": 40, "evaluate_every_steps": 20, "learning_rate": 0.01}}
PROMPT = {"prompt": "To be", "tokens": 40, "temperature": 0, "seed": 3}


async def written(asker, kind="write.start", **changes):
    """What the live model writes, greedily."""
    reply = asker.ask(kind, **PROMPT | changes)
    text = ""
    while True:
        event = await asker.wait("token", "wrote", reply_to=reply)
        if event["kind"] == "wrote":
            return text
        text += event["text"]


async def compared(asker, **changes):
    """(base, tuned) of a comparison."""
    reply, texts = asker.ask("compare.start", **PROMPT | changes), {"base": "", "tuned": ""}
    while True:
        event = await asker.wait("compare.token", "compare.wrote", reply_to=reply)
        if event["kind"] == "compare.token":
            texts[event["side"]] += event["text"]
        elif event["last"]:
            return texts["base"], texts["tuned"]


async def tuned(asker, **changes):
    """A small run with an adapter tuned on another text: the event that it ended with."""
    await asker.trained(steps=60, decay_steps=60)
    asker.ask("tune.start", **TUNE | changes)
    return await asker.wait("tune.stopped")


async def listed(asker):
    return await asker.call("adapters.list", "adapters")


@scenario
async def test_a_second_text_from_start_to_saved(asker):
    await asker.trained(steps=60, decay_steps=60)
    before = await written(asker)
    weights = asker.session.model.weights_sha256()
    planned = await asker.call("tune.plan", "tune.planned", adapter={"rank": 2})
    assert planned["trainable"] == 2 * 2 * 2 * 48 * 2 and planned["trainable"] / planned["parameters"] < 0.02
    asker.ask("tune.start", **TUNE)
    started = await asker.wait("tune.started")
    assert (started["name"], started["steps"], started["trainable"]) == ("rain", 40, 2 * 4 * 2 * 48 * 2)
    stopped = await asker.wait("tune.stopped")
    assert (stopped["reason"], stopped["step"], stopped["saved"]) == ("finished", 40, True)
    rows = [row for event in asker.events if event["kind"] == "tune.step" for row in event["rows"]]
    assert [row[0] for row in rows] == list(range(1, 41)) and rows[-1][1] < rows[0][1] - 0.3
    assert [event["step"] for event in asker.events if event["kind"] == "tune.eval"] == [0, 20, 40]
    lost = stopped["forgetting"]
    assert lost["text"] == "hamlet" and lost["after_nats"] > lost["before_nats"] > 0
    assert lost["after_bits_per_byte"] == pytest.approx(lost["after_nats"] / 0.693147, rel=1e-4)
    (row,) = (await listed(asker))["adapters"]
    assert (row["name"], row["rank"], row["how"], row["step"], row["fits"], row["note"]) == ("rain", 4, "text", 40, True, "")
    model = asker.session.model
    assert model.weights_sha256([parameter.name for parameter in model.program.layout.frozen]) == weights, "the base's bytes are as they were"
    base, with_adapter = await compared(asker)
    assert base == before and with_adapter != base and with_adapter == await written(asker)


@scenario
async def test_hot_swap_strength_and_none(asker):
    await tuned(asker)
    first = (await listed(asker))["chosen"]
    rain = await written(asker)
    asker.ask("tune.start", **TUNE | {"text": "0123456789 " * 900, "name": "digits", "adapter": {"rank": 2, "targets": ["mlp.fc", "attn.qkv"]}})
    await asker.wait("tune.stopped")
    digits, second = await written(asker), (await listed(asker))["chosen"]
    assert first != second and digits != rain
    await asker.call("adapters.use", "adapters", adapter_id=first)
    assert await written(asker) == rain, "another shape, and back: what it wrote before"
    await asker.call("adapters.strength", "adapters.strength", strength=0)
    base = await written(asker)
    await asker.call("adapters.use", "adapters", adapter_id="")
    assert await written(asker) == base == (await compared_with(asker, second))[0]
    assert await written(asker) == digits
    assert "a number from 0 to 2" in (await asker.call("adapters.strength", "failed", strength=3))["message"]
    await asker.call("adapters.delete", "adapters", adapter_id=second)
    told = await listed(asker)
    assert told["chosen"] is None and [row["name"] for row in told["adapters"]] == ["rain"] and await written(asker) == base
    assert "there is none" in (await asker.call("compare.start", "failed", prompt="x"))["message"]


async def compared_with(asker, adapter_id):
    await asker.call("adapters.use", "adapters", adapter_id=adapter_id)
    return await compared(asker)


@scenario
async def test_answers_typed_in_and_from_a_file(asker):
    rows = [{"prompt": f"say {n}", "response": f"it is {n}"} for n in range(12)]
    stopped = await tuned(asker, how="pairs", text=None, rows=rows, name="", training={"steps": 150, "learning_rate": 0.02})
    assert stopped["reason"] == "finished" and stopped["name"] == "answers"
    _, answer = await compared(asker, prompt="say 3", ask=True, tokens=60)
    assert answer.startswith("it is") and "\n\n" not in answer, answer
    data = b"prompt,response\n" + b"".join(b"a%d,b%d\n" % (n, n) for n in range(12))
    asker.ask("tune.start", how="pairs", buffer=data, file_name="some.csv", training={"steps": 3})
    assert (await asker.wait("tune.started"))["name"] == "some.csv"
    await asker.wait("tune.stopped")
    assert {row["how"] for row in (await listed(asker))["adapters"]} == {"pairs"}
    failed = await asker.call("tune.start", "failed", how="pairs", buffer=b"\xff\xfe", file_name="odd.csv")
    assert "UTF-8" in failed["message"]


@scenario
async def test_preferences(asker):
    rows = [{"prompt": f"say {n}", "chosen": f"it is {n}", "rejected": f"no {n} at all"} for n in range(24)]
    stopped = await tuned(asker, how="preferences", text=None, rows=rows, training={"steps": 30, "learning_rate": 0.002, "beta": 0.2})
    assert stopped["reason"] == "finished" and stopped["forgetting"]["before_nats"] > 0
    steps = [event for event in asker.events if event["kind"] == "tune.step"]
    losses = [row[1] for event in steps for row in event["rows"]]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3) and losses[-1] < 0.6 and steps[-1]["accuracy"] > 0.9
    assert [row["how"] for row in (await listed(asker))["adapters"]] == ["preferences"]
    text = await written(asker)
    assert "beta is a number" in (await asker.call("tune.start", "failed", how="preferences", rows=rows, training={"beta": -1}))["message"]
    assert (await listed(asker))["chosen"] == stopped["adapter_id"] and await written(asker) == text != (await compared(asker))[0], "it is on as it was"


@scenario
async def test_what_cannot_be_tuned_says_why_and_harms_nothing(asker):
    assert "there is none yet" in (await asker.call("tune.start", "failed", **TUNE))["message"]
    await asker.trained()
    before = await written(asker)
    for changes, words in (({"text": ""}, "empty"), ({"text": None}, "nothing came"), ({"how": "songs"}, "songs"),
                           ({"adapter": {"rank": 0}}, "rank"), ({"adapter": {"rang": 1}}, "rang"), ({"training": {"steps": 0}}, "steps"), ({"text": "too short"}, "short"),
                           ({"how": "pairs", "text": None, "rows": [{"prompt": "x"}]}, "response")):
        failed = await asker.call("tune.start", "failed", **TUNE | changes)
        assert words in failed["message"], failed["message"]
    assert await written(asker) == before
    assert (await listed(asker))["adapters"] == []
    asker.ask("train.extend", steps=5)
    assert (await asker.wait("stopped"))["step"] == 35, "the run goes on from its save"


@scenario
async def test_a_tune_and_a_run_exclude_each_other(asker):
    await asker.trained()
    run_id = (await asker.call("runs.list", "runs"))["runs"][0]["run_id"]
    asker.ask("tune.start", **TUNE | {"training": {"steps": 100_000}})
    await asker.wait("tune.step")
    for kind, fields in {"train.start": {}, "runs.open": {"run_id": run_id}, "tune.start": TUNE, "runs.continue": {"run_id": run_id},
                         "adapters.use": {"adapter_id": ""}, "adapters.strength": {"strength": 1}, "compare.start": {"prompt": "a"},
                         "memorise.start": {}}.items():
        assert "a tune is going" in (await asker.call(kind, "failed", **fields))["message"], kind
    assert "not being trained" in (await asker.call("runs.delete", "failed", run_id=run_id))["message"]
    await written(asker)  # one may write meanwhile
    asker.ask("tune.stop")
    stopped = await asker.wait("tune.stopped")
    assert stopped["reason"] == "stopped" and 0 < stopped["step"] < 100_000
    assert (await listed(asker))["adapters"][0]["step"] == stopped["step"]


def test_a_reload_in_the_middle_keeps_the_last_save():
    store, adapters = RunStore(MemoryVolume()), RunStore(MemoryVolume())

    async def go():
        async with running(Host("cpu", 1, store, adapters)) as asker:
            await asker.trained()
            run_id = asker.session.runs.held_id
            asker.ask("tune.start", **TUNE | {"training": {"steps": 100_000}})
            while (await asker.wait("tune.step"))["step"] < 150:
                pass
            asker.ask("tune.save")
            step = (await asker.wait("tune.saved"))["step"]
            for held in list(store.opened.values()) + list(adapters.opened.values()):  # the tab is gone without a word
                held.close()
            asker.session.tuning._held = asker.session.runs._held = None
            asker.session.tuning.end()
        async with running(Host("cpu", 1, store, adapters)) as asker:
            await asker.call("runs.open", "opened", run_id=run_id)
            told = await asker.wait("adapters")
            (row,) = told["adapters"]
            assert (row["step"], row["steps"], told["chosen"]) == (step, 100_000, None) and step > 0
            await asker.call("adapters.use", "adapters", adapter_id=row["adapter_id"])
            base, with_adapter = await compared(asker)
            assert base != with_adapter
            assert (await asker.call("runs.list", "runs"))["runs"][0]["adapters"] == 1
            await asker.call("corpus.text", "corpus", text=TEXT, name="hamlet")
            await asker.call("runs.continue", "opened", run_id=run_id, steps=3)
            await asker.wait("stopped")
            (row,) = (await listed(asker))["adapters"]
            assert row["fits"] and "other weights" in row["note"], "its base has been trained since"
            await asker.call("adapters.use", "adapters", adapter_id=row["adapter_id"])
            await asker.call("runs.delete", "runs", run_id=run_id)
            assert await adapters.list() == [], "its adapters go with a run"

    asyncio.run(go())


@scenario
async def test_exported_imported_and_merged(asker):
    await tuned(asker)
    (row,) = (await listed(asker))["adapters"]
    rain = await written(asker)
    exported = await asker.call("adapters.export", "exported", adapter_id=row["adapter_id"])
    assert exported["name"] == "rain.zip"
    with zipfile.ZipFile(io.BytesIO(exported["buffer"])) as archive:
        assert sorted(archive.namelist()) == ["adapter_config.json", "adapter_model.safetensors"]
        weights = archive.read("adapter_model.safetensors")
    await asker.call("adapters.use", "adapters", adapter_id="")
    base = await written(asker)
    told = await asker.call("adapters.import", "adapters", buffer=exported["buffer"], name="back.zip")
    back = next(each for each in told["adapters"] if each["name"] == "back")
    assert (back["how"], back["rank"], back["fits"]) == ("imported", 4, True)
    await asker.call("adapters.use", "adapters", adapter_id=back["adapter_id"])
    assert await written(asker) == rain
    await asker.call("adapters.import", "adapters", buffer=weights, name="adapter_model.safetensors")
    for data, words in ((b"PK nothing", "sound .zip"), (b"\0" * 50, ""), (b"", "")):
        assert words in (await asker.call("adapters.import", "failed", buffer=data, name="x"))["message"]
    merged = await asker.call("adapters.merge", "adapters.merged", adapter_id=back["adapter_id"])
    assert merged["name"] == "hamlet, tiny with back"
    row = {row["name"]: row for row in (await asker.call("runs.list", "runs"))["runs"]}[merged["name"]]
    assert (row["step"], row["resumable"], row["adapters"]) == (60, False, 0)
    assert await written(asker) == rain, "the live model is as it was"
    await asker.call("runs.open", "opened", run_id=merged["run_id"])
    assert (await asker.wait("adapters"))["adapters"] == []
    assert await written(asker) == rain != base
    asker.ask("tune.start", **TUNE | {"training": {"steps": 2}})
    assert (await asker.wait("tune.stopped"))["forgetting"]["text"] == "hamlet", "a merged run knows its first text"


@scenario
async def test_the_check_for_reciting(asker):
    random = Random(1)
    words = ["".join(random.choices("abcdefghij", k=random.randint(2, 6))) for _ in range(60)]
    text, base = (" ".join(random.choices(words, k=n)) for n in (300, 600))
    asker.ask("corpus.text", text=base, name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK)
    await asker.wait("stopped")
    asker.ask("tune.start", **TUNE | {"text": text, "training": {"steps": 60, "validation_fraction": 0.3}})
    await asker.wait("tune.stopped")
    reply = asker.ask("memorise.start", prefixes=8, prefix_tokens=8, tokens=16)
    found = await asker.wait("memorised", reply_to=reply)
    assert [each["name"] for each in found["models"]] == ["Base", "Base, shown examples", "With “rain”"]
    assert found["text"] == "second text" and found["unit"] == "bytes" and found["verdict"]
    for model in found["models"]:
        for group in model["groups"]:
            assert sum(group["histogram"]) == group["count"] == 8 and len(group["histogram"]) == len(found["buckets"])
    for span in found["spans"]:
        data = span["copied"].encode()
        assert text.encode()[span["at"] : span["at"] + len(data)] == data
    assert (await asker.call("memorise.start", "memorised", of="base", prefixes=8))["text"] == "hamlet"
    asker.ask("memorise.start", prefixes=8)
    asker.ask("memorise.stop")
    assert (await asker.wait("memorised"))["stopped"]
    assert "from 8" in (await asker.call("memorise.start", "failed", prefixes=2))["message"]


@scenario
async def test_closing_in_the_middle_saves(asker):
    await asker.trained()
    asker.ask("tune.start", **TUNE | {"training": {"steps": 100_000}})
    await asker.wait("tune.step")
    await asker.session.close()
    (info,) = await asker.session.host.adapters.list()
    assert info.step > 0 and info.state == "good" and not info.open


class Full(MemoryVolume):
    """No room for anything."""

    async def open_run(self, run_id, create=False):
        raise StoreQuotaError("runs", "there is room for a run", "there is none", "delete a run")


def test_without_room_a_tune_goes_on_and_says_so():
    async def go():
        async with running(Host("cpu", 1, adapters=RunStore(Full()))) as asker:
            await asker.trained(steps=60, decay_steps=60)
            reply = asker.ask("tune.start", **TUNE)
            failed = await asker.wait("failed", reply_to=reply)
            assert "room" in failed["message"]
            stopped = await asker.wait("tune.stopped")
            assert (stopped["reason"], stopped["saved"]) == ("finished", False) and stopped["forgetting"]["after_nats"]
            base, with_adapter = await compared(asker)
            assert base != with_adapter, "it is on, though it could not be kept"
            (row,) = (await listed(asker))["adapters"]
            assert (row["name"], row["kept"]) == ("rain", False) and "not saved" in row["note"]
            await asker.call("adapters.export", "exported", adapter_id=row["adapter_id"])
            await asker.call("adapters.use", "adapters", adapter_id="")
            assert (await listed(asker))["adapters"] == []

    asyncio.run(go())
