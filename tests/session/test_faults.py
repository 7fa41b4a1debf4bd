"""Faults in what a Session does beside training: each has its end for the page, and the session goes on."""

import asyncio

import pytest
from posttrainllm.errors import DeviceLostError
from posttrainllm.session import tuning as tunes

from tests.session.test_engines import TwoEngines
from tests.session.test_session import running, scenario
from tests.session.test_tuning import TUNE, listed, written

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")
GONE = DeviceLostError("gpu", "it stays", "it went away", "reload")


def on_two_engines(body):
    """Run a test with a session that has the cpu engine and a GPU that can be told to fail."""

    def test():
        async def go():
            async with running(TwoEngines("cpu", 1)) as asker:
                await body(asker)

        asyncio.run(go())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


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
