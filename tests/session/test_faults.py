"""Faults in what a Session does beside training: each has its end for the page, and the session goes on."""

import asyncio
import gc
import weakref
from random import Random

import pytest
from posttrainllm.errors import DeviceLostError
from posttrainllm.session import tuning as tunes

from tests.session.test_session import QUICK, scenario
from tests.session.test_tuning import TUNE, listed, written
from tests.session.test_tuning_engines import on_two_engines

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")
GONE = DeviceLostError("gpu", "it stays", "it went away", "reload")


@scenario
async def test_a_tune_ends_where_its_forgetting_cannot_be_measured(asker):
    await asker.trained()
    measured = tunes.text_loss_async
    calls = []

    async def once(*args):
        calls.append(args)
        if len(calls) > 1:
            raise ValueError("made up")
        return await measured(*args)

    tunes.text_loss_async = once
    try:
        asker.ask("tune.start", **TUNE)
        stopped = await asker.wait("tune.stopped")
        failed = await asker.wait("failed")
    finally:
        tunes.text_loss_async = measured
    assert (stopped["reason"], stopped["saved"]) == ("finished", True) and "made up" in failed["message"]
    assert stopped["forgetting"] == {"note": "What it forgot could not be measured."}
    session = asker.session
    assert not session.tuning.active and session.tuning.held_id is None and not session.host.adapters.opened
    (row,) = (await listed(asker))["adapters"]
    assert row["step"] == 40 and await written(asker)


@on_two_engines
async def test_a_gpu_that_goes_away_while_forgetting_is_measured(asker):
    await asker.trained()
    await asker.call("engine.use", "engine", name="webgpu")
    measured = tunes.text_loss_async

    async def lost(model, base):
        if asker.session.tuning.trainer is None:
            return await measured(model, base)
        model.machine.fault = GONE
        raise GONE

    tunes.text_loss_async = lost
    try:
        asker.ask("tune.start", **TUNE)
        stopped = await asker.wait("tune.stopped")
        recovered = await asker.wait("recovered", "failed")
    finally:
        tunes.text_loss_async = measured
    assert (stopped["reason"], stopped["saved"], recovered["kind"]) == ("finished", True, "recovered"), recovered
    assert (await listed(asker))["chosen"] == stopped["adapter_id"] and await written(asker)


async def tuned(asker):
    """A small run on a text of which every passage stands there once, with an adapter on."""
    random = Random(1)
    words = ["".join(random.choices("abcdefghij", k=random.randint(2, 6))) for _ in range(60)]
    asker.ask("corpus.text", text=" ".join(random.choices(words, k=4000)), name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK)
    await asker.wait("stopped")
    asker.ask("tune.start", **TUNE)
    return await asker.wait("tune.stopped")


BESIDE = {
    "write": ("write.start", {"prompt": "To", "tokens": 100_000}, "token", "wrote"),
    "compare": ("compare.start", {"prompt": "To", "tokens": 100_000}, "compare.token", "compare.wrote"),
    "memorise": ("memorise.start", {"of": "base", "prefixes": 40}, "memorise.progress", "memorised"),
}


def when(asker, kind, act):
    """Do something at the first event of a kind, in the turn that it comes from: not later, however busy the machine is."""
    emit = asker.session._emit

    def first(event, buffer):
        emit(event, buffer)
        if event["kind"] == kind:
            asker.session._emit = emit
            act()

    asker.session._emit = first


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("again", [True, False], ids=["another engine", "none left"])
def test_a_gpu_that_goes_away_ends_what_is_done_beside_training(what, again):
    kind, fields, begun, ended = BESIDE[what]

    @on_two_engines
    async def test(asker):
        await tuned(asker)
        await asker.call("engine.use", "engine", name="webgpu")
        if not again:
            asker.session.engines.recoveries = 99
        when(asker, begun, lambda: setattr(asker.session.model.machine, "fault", GONE))
        reply = asker.ask(kind, **fields)
        end = await asker.wait(ended, reply_to=reply)
        assert end["reason"] == "failed" and end.get("last", True) and end.get("stopped", True)
        assert (await asker.wait("recovered", "failed"))["kind"] == ("recovered" if again else "failed")
        assert [event["kind"] for event in asker.events].count(ended) == 1, "once"
        if again:
            assert asker.session.model.strength == 1
            asker.ask(kind, **fields)
            await asker.wait(begun)

    test()


@pytest.mark.parametrize("what", BESIDE)
def test_a_fault_of_ours_ends_it_too(what):
    kind, fields, begun, ended = BESIDE[what]

    @scenario
    async def test(asker):
        await tuned(asker)
        part = {"write": asker.session.writing, "compare": asker.session.comparing, "memorise": asker.session.memorising}[what]
        when(asker, begun, lambda: setattr(part, "_steps" if what == "memorise" else "_pieces", broken()))
        reply = asker.ask(kind, **fields)
        assert (await asker.wait(ended, reply_to=reply))["reason"] == "failed"
        assert "made up" in (await asker.wait("failed", reply_to=reply))["message"]
        assert asker.session.model.strength == 1 and await written(asker)

    test()


async def broken():
    raise ValueError("made up")
    yield


@scenario
async def test_what_ends_a_comparison_or_a_check_is_told(asker):
    await tuned(asker)
    for what in ("compare", "memorise"):
        kind, fields, begun, ended = BESIDE[what]
        for stop, reason in ((f"{what}.stop", "stopped"), ("adapters.use", "interrupted")):
            more = {} if reason == "stopped" else {"adapter_id": asker.session.adapters.chosen}
            when(asker, begun, lambda stop=stop, more=more: asker.ask(stop, **more))
            asker.ask(kind, **fields)
            assert (await asker.wait(ended))["reason"] == reason
    asker.ask("write.start", prompt="To", tokens=100_000)
    await asker.wait("token")
    asker.ask("adapters.use", adapter_id="")
    assert (await asker.wait("wrote"))["reason"] == "interrupted"


@scenario
async def test_the_plain_rate_is_measured_when_a_tunes_steps_are_done(asker):
    await asker.trained()
    asker.ask("tune.start", **TUNE | {"training": {"steps": 100_000}})
    await asker.wait("tune.step")
    session, settled = asker.session, []
    settle = session.tuning.trainer.settle

    async def noted():
        settled.append(session.writing._plain_rate)
        return await settle()

    session.tuning.trainer.settle = noted
    await session.writing._measure(session.model, "To", 12, {})
    assert settled and settled[0] is None and session.writing._plain_rate > 0


@pytest.mark.parametrize("how", ["another run", "another engine"])
def test_after_a_tune_nothing_of_a_closed_model_is_kept(how):
    @on_two_engines
    async def test(asker):
        await tuned(asker)
        model = weakref.ref(asker.session.model)
        if how == "another run":
            asker.ask("train.start", preset="tiny", training=QUICK)
            await asker.wait("stopped")
        else:
            await asker.call("engine.use", "engine", name="webgpu")
        for _ in range(3):
            await asyncio.sleep(0.01)
            gc.collect()
        assert model() is None
        asker.ask("tune.start", **TUNE)
        assert (await asker.wait("tune.stopped"))["reason"] == "finished"

    test()
