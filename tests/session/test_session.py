"""The Session natively: what a page may ask, in any order, and what it hears. e2e/ asks the same of the tab."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from posttrainllm.model.live import GPT
from posttrainllm.session import Host, Session
from posttrainllm.session.host import STOP
from posttrainllm.session.messages import REQUESTS, checked, finite
from posttrainllm.errors import ConfigError

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

TEXT = "To be, or not to be, that is the question. " * 300
QUICK = {"steps": 30, "warmup_steps": 5, "learning_rate": 3e-3, "evaluate_every_steps": 10}


class Asker:
    """A session with its loop running; `ask` sends, `wait` takes events in order."""

    def __init__(self, host=None):
        self.events, self._number, self._read = [], 0, 0
        self.session = Session(self._emit, host or Host(device="cpu", threads=1))

    def _emit(self, event, buffer):
        json.dumps(event, allow_nan=False)  # what cannot travel as JSON must fail here
        self.events.append(event | ({"buffer": buffer} if buffer is not None else {}))

    def ask(self, kind, **fields):
        self._number += 1
        self.session.receive({"kind": kind, "id": self._number} | fields)
        return self._number

    async def wait(self, *kinds, reply_to=None, seconds=60.0):
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            while self._read < len(self.events):
                event = self.events[self._read]
                self._read += 1
                if event["kind"] == "failed" and "failed" not in kinds:
                    raise AssertionError(event["message"])
                if event["kind"] in kinds and reply_to in (None, event.get("reply_to")):
                    return event
            await asyncio.sleep(0.002)
        raise AssertionError(f"no {kinds}; last {self.events[-2:]}")

    async def call(self, kind, *answers, **fields):
        return await self.wait(*answers, reply_to=self.ask(kind, **fields))

    async def trained(self, **training):
        self.ask("corpus.text", text=TEXT, name="hamlet")
        self.ask("train.start", preset="tiny", training=QUICK | training)
        return await self.wait("stopped")


@asynccontextmanager
async def running(host=None):
    asker = Asker(host)
    await asker.session.begin()
    await asker.wait("ready")
    task = asyncio.create_task(asker.session.serve())
    try:
        yield asker
    finally:
        await asker.session.close()
        await asyncio.wait_for(task, 30)


def giving(value):
    """A method to await that gives this."""

    async def give(*_):
        return value

    return give


def scenario(body):
    """Run an async test body with a fresh session."""

    def test():
        async def go():
            async with running() as asker:
                await body(asker)

        asyncio.run(go())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@scenario
async def test_a_run_from_start_to_saved(asker):
    stopped = await asker.trained()
    assert (stopped["reason"], stopped["step"]) == ("finished", 30)
    kinds = [event["kind"] for event in asker.events]
    for kind in ("corpus", "started", "eval", "step", "saved"):
        assert kind in kinds
    rows = [row for event in asker.events if event["kind"] == "step" for row in event["rows"]]
    assert [row[0] for row in rows] == list(range(1, 31))  # every step once, in order, however they were bundled
    assert rows[-1][1] < rows[0][1] - 2
    evals = [event["step"] for event in asker.events if event["kind"] == "eval"]
    assert evals == [0, 10, 20, 30]


@scenario
async def test_extending_an_ended_run_and_one_in_progress(asker):
    await asker.trained()
    asker.ask("train.extend", steps=400)
    assert (await asker.wait("started"))["steps"] == 430
    asker.ask("train.extend", steps=10)
    assert (await asker.wait("stopped"))["step"] == 440


@scenario
async def test_stop_saves_at_once_and_continue_goes_on_from_there(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")
    asker.ask("train.stop")
    stopped = await asker.wait("stopped")
    assert stopped["reason"] == "stopped" and 0 < stopped["step"] < 100_000
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert (row["step"], row["resumable"], row["live"]) == (stopped["step"], True, True)
    asker.ask("runs.continue", run_id=stopped["run_id"], steps=3)
    assert (await asker.wait("stopped"))["step"] == stopped["step"] + 3


@scenario
async def test_a_second_run_while_one_goes_is_refused_and_harms_nothing(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")
    for kind, fields in {"train.start": {}, "runs.open": {"run_id": "x"}}.items():
        assert "is going" in (await asker.call(kind, "failed", **fields))["message"]
    run_id = (await asker.call("runs.list", "runs"))["runs"][0]["run_id"]
    assert "not being trained" in (await asker.call("runs.delete", "failed", run_id=run_id))["message"]
    before = asker.session.training.trainer.step
    while (await asker.wait("step"))["step"] <= before:  # events from before may still be unread
        pass


@scenario
async def test_export_delete_import_gives_the_same_run_back(asker):
    run_id = (await asker.trained())["run_id"]
    weights = asker.session.model.weights_sha256()
    exported = await asker.call("runs.export", "exported", run_id=run_id)
    assert exported["name"].endswith(".safetensors") and exported["bytes"] == len(exported["buffer"])
    assert (await asker.call("runs.delete", "runs", run_id=run_id))["runs"] == []
    assert asker.session.model is None
    listed = await asker.call("runs.import", "runs", name="x", buffer=exported["buffer"])
    opened = await asker.wait("opened")
    assert opened["run_id"] == listed["imported"] != run_id
    assert (opened["step"], len(opened["history"]), [e[0] for e in opened["evals"]]) == (30, 30, [10, 20, 30])
    assert asker.session.model.weights_sha256() == weights
    asker.ask("write.start", prompt="To be", tokens=8)
    assert (await asker.wait("wrote"))["tokens"] == 8


@scenario
async def test_rename_duplicate_history(asker):
    run_id = (await asker.trained())["run_id"]
    assert (await asker.call("runs.rename", "runs", run_id=run_id, name="Hamlet I"))["runs"][0]["name"] == "Hamlet I"
    runs = (await asker.call("runs.duplicate", "runs", run_id=run_id))["runs"]
    assert sorted(row["name"] for row in runs) == ["Hamlet I", "Hamlet I (copy)"]
    history = await asker.call("runs.history", "exported", run_id=run_id)
    lines = [line for line in history["buffer"].decode().splitlines() if not line.startswith("#")]
    assert lines[0].split(",")[:2] == ["step", "loss_nats"] and len(lines) == 31


@scenario
async def test_writing_streams_whole_text_and_stops_when_asked(asker):
    await asker.trained()
    identity = asker.ask("write.start", prompt="To", tokens=60, temperature=0)
    text = ""
    while (event := await asker.wait("token", "wrote"))["kind"] == "token":
        assert event["reply_to"] == identity
        text += event["text"]
    assert event["reason"] == "length" and len(text.encode()) == 60 and event["first_token_seconds"] > 0
    asker.ask("write.start", prompt="To", tokens=1_000_000)
    await asker.wait("token")
    asker.ask("write.stop")
    assert (await asker.wait("wrote"))["reason"] == "stopped"


@scenario
async def test_an_engine_that_fails_ends_the_run_and_the_session_goes_on(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")

    def broken(loaded):
        raise RuntimeError("the engine is gone")

    asker.session.model.machine.replay = broken
    assert "the engine is gone" in (await asker.wait("failed"))["message"]
    assert (await asker.wait("stopped"))["reason"] == "error"
    del asker.session.model.machine.replay
    assert (await asker.trained())["reason"] == "finished"


@scenario
async def test_a_loss_that_is_not_finite_stops_the_run_with_the_last_good_weights_saved(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")
    step = asker.session.model.step_async
    asker.session.model.step_async = giving((float("nan"), float("nan")))
    stopped = await asker.wait("stopped")
    assert stopped["reason"] == "nonfinite" and "finite" in stopped["message"]
    asker.session.model.step_async = step
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert (row["step"], row["state"]) == (stopped["step"], "good")
    asker.ask("train.extend", steps=2)
    assert (await asker.wait("stopped"))["reason"] == "finished"


def test_every_request_kind_is_handled_and_nothing_else():
    handled = set(Session(lambda *_: None, Host())._handlers)
    assert handled == set(REQUESTS)


def test_requests_are_checked_by_their_table():
    assert checked({"kind": "train.extend", "id": 1, "steps": 5.0}) == {"steps": 5}
    assert checked({"kind": "plan", "id": 1, "preset": None}) == {}
    for bad in ({"kind": "train.extend"}, {"kind": "train.extend", "steps": "5"}, {"kind": "train.extend", "steps": True},
                {"kind": "plan", "colour": 1}, {"kind": "nothing"}, {}):
        with pytest.raises(ConfigError):
            checked(bad)


def test_numbers_that_json_has_not_become_none():
    assert [finite(value) for value in (1.5, float("nan"), float("inf"), -float("inf"), None)] == [1.5, None, None, None, None]


@scenario
async def test_a_save_that_the_page_asks_for_is_made_between_steps(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")
    asker.ask("train.save")
    saved = await asker.wait("saved")
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert (row["step"], row["steps"]) == (saved["step"], 100_000)


@scenario
async def test_a_run_whose_text_is_not_here_is_not_continued_and_the_live_model_stays(asker):
    run_id = (await asker.trained())["run_id"]
    exported = (await asker.call("runs.export", "exported", run_id=run_id))["buffer"]
    async with running() as other:
        await other.call("runs.import", "runs", name="x", buffer=exported)
        imported = await other.wait("opened")
        assert imported["corpus"]["available"] is False
        before = other.session.model
        failed = await other.call("runs.continue", "failed", "opened", "started", run_id=imported["run_id"], steps=5)
        assert failed["kind"] == "failed" and "text" in failed["message"] and other.session.model is before
        other.ask("train.stop")
        assert (await other.wait("stopped"))["message"] == "No run was going."


@scenario
async def test_a_refused_import_leaves_the_live_model_alone(asker):
    run_id = (await asker.trained())["run_id"]
    data = (await asker.call("runs.export", "exported", run_id=run_id))["buffer"]
    model, weights = asker.session.model, asker.session.model.weights_sha256()
    for right, wrong in ((b'\\"layers\\":2', b'\\"layers\\":3'), (b'\\"clip\\":1.0', b'\\"clip\\":-1.'), (b'\\"epoch\\":', b'\\"epohc\\":')):
        assert right in data
        failed = await asker.call("runs.import", "failed", "opened", name="x", buffer=data.replace(right, wrong))
        assert failed["kind"] == "failed"
        assert asker.session.model is model and model.weights_sha256() == weights
    assert [row["run_id"] for row in (await asker.call("runs.list", "runs"))["runs"]] == [run_id]
    asker.ask("train.extend", steps=2)
    assert (await asker.wait("stopped"))["step"] == 32


@scenario
async def test_weights_that_give_no_finite_loss_are_told_and_what_is_saved_is_good(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000, "evaluate_every_steps": 50})
    await asker.wait("saved")
    await asker.wait("eval")  # step 0
    asker.session.model.evaluate_batches_async = giving(float("nan"))
    assert (await asker.wait("eval"))["validation_loss_nats"] is None
    stopped = await asker.wait("stopped")
    assert (stopped["reason"], stopped["saved"], stopped["step"]) == ("nonfinite", True, 0) and stopped["validation_loss_nats"] > 0
    assert "tried 3 times" in stopped["message"]
    assert [event["step"] for event in asker.events if event["kind"] == "recovered"] == [0, 0, 0]
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert row["state"] == "good" and row["step"] == stopped["step"]


@scenario
async def test_a_fault_in_a_handler_is_told_and_the_session_goes_on(asker):
    async def faulty(identity):
        raise KeyError("x")

    asker.session._handlers["runs.list"] = faulty
    assert "KeyError" in (await asker.call("runs.list", "failed"))["message"]
    assert (await asker.trained())["reason"] == "finished"


@scenario
async def test_a_finished_run_ends_with_a_sample_of_the_finished_model(asker):
    await asker.trained()
    sample = await asker.wait("sample")
    while sample["first_step"] != 30:
        sample = await asker.wait("sample")
    assert sample["step"] == 30 and len(sample["text"]) > 20


@scenario
async def test_a_text_of_ones_own_is_kept_with_its_name_while_a_run_needs_it(asker):
    run_id = (await asker.trained())["run_id"]
    await asker.call("corpus.text", "corpus", text="Something else. " * 100, name="other")
    opened = await asker.call("runs.open", "opened", run_id=run_id)
    assert opened["corpus"] == {"name": "hamlet", "sha256": opened["corpus"]["sha256"], "available": True}
    assert asker.session.corpus.name == "hamlet"
    assert (await asker.call("runs.list", "runs"))["storage"]["bytes"] > len(TEXT)
    await asker.call("corpus.text", "corpus", text="Something else. " * 100, name="other")
    await asker.call("runs.delete", "runs", run_id=run_id)
    assert await asker.session.host.texts_bytes() == 0


@scenario
async def test_a_run_can_be_opened_from_its_first_moment(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    assert (await asker.wait("saved"))["step"] == 0


@scenario
async def test_a_model_that_goes_is_gone_at_once(asker):
    """Without a garbage collection: in a tab an engine's memory lasts as long as anything holds its machine."""
    import gc
    import weakref

    await asker.trained()
    first = weakref.ref(asker.session.model.machine)
    gc.collect()
    gc.disable()
    try:
        await asker.trained()
        assert asker.session.model.machine is not first() and first() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("by", ["flag", "request"])
@pytest.mark.parametrize("at", [0, 20])
def test_a_stop_ends_the_evaluation_under_way_and_the_run_is_saved(monkeypatch, at, by):
    """By the page's flag, or by a request that has come."""
    whole = GPT.losses_async

    async def go():
        async with running() as asker:
            ran, job, flag = [], asker.session.training, 0
            asker.session.host.flag = lambda: flag

            async def losses(model, *batch):
                nonlocal flag
                if job.trainer.step == at:
                    ran.append(batch)
                    if by == "flag":
                        flag = STOP
                    elif len(ran) == 1:
                        asker.ask("train.stop")
                return await whole(model, *batch)

            monkeypatch.setattr(GPT, "losses_async", losses)
            stopped = await asker.trained(steps=40, evaluate_every_steps=20, evaluation_tokens=4096)
            assert len(ran) == 1 and (stopped["step"], stopped["reason"], stopped["saved"]) == (at, "stopped", True)
            assert [event["step"] for event in asker.events if event["kind"] == "eval"] == [0][: at > 0]
            await asker.call("runs.list", "runs")
            assert len([event for event in asker.events if event["kind"] == "stopped"]) == 1

    asyncio.run(go())


@scenario
async def test_a_stopped_run_is_not_measured_where_that_takes_long(asker):
    asker.ask("corpus.text", text=TEXT)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000, "evaluate_every_steps": 100_000})
    await asker.wait("eval")
    asker.session.training._evaluation_seconds = 60.0
    asker.ask("train.stop")
    stopped = await asker.wait("stopped")
    assert stopped["reason"] == "stopped" and stopped["saved"]
    assert [event["step"] for event in asker.events if event["kind"] == "eval"] == [0]
