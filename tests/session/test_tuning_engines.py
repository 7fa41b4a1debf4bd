"""An adapter and a tune on another engine: switched in the middle, and after a GPU went away. The GPU is the CPU engine under its name."""

import asyncio

import pytest
from posttrainllm.errors import DeviceLostError

from tests.session.test_engines import TwoEngines
from tests.session.test_session import running
from tests.session.test_tuning import TUNE, compared, listed, tuned, written

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")
LONG = TUNE | {"training": {"steps": 100_000, "evaluate_every_steps": 100_000}}


def on_two_engines(body):
    """Run a test with a session that has the cpu engine, on which it is, and a GPU that can be told to fail."""

    def test():
        async def go():
            async with running(TwoEngines("cpu", 1)) as asker:
                await body(asker)

        asyncio.run(go())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@on_two_engines
async def test_a_tune_goes_on_on_another_engine(asker):
    await asker.trained()
    base = asker.session.model.weights_sha256()
    asker.ask("tune.start", **LONG)
    await asker.wait("tune.step")
    moved = await asker.call("engine.use", "engine", name="webgpu")
    assert moved["engine"]["name"] == "webgpu"
    step = asker.session.tuning.trainer.step
    while (await asker.wait("tune.step"))["step"] <= step:
        pass
    asker.ask("tune.stop")
    stopped = await asker.wait("tune.stopped")
    assert stopped["reason"] == "stopped" and stopped["step"] > step and stopped["forgetting"]["after_nats"]
    rows = [row[0] for event in asker.events if event["kind"] == "tune.step" for row in event["rows"]]
    assert rows == list(range(1, len(rows) + 1)), "every step once"
    model = asker.session.model
    assert model.weights_sha256([parameter.name for parameter in model.program.layout.frozen]) == base


@on_two_engines
async def test_preferences_go_on_on_another_engine(asker):
    await asker.trained()
    rows = [{"prompt": f"say {n}", "chosen": f"it is {n}", "rejected": f"no {n} at all"} for n in range(24)]
    asker.ask("tune.start", how="preferences", rows=rows, training={"steps": 100_000, "evaluate_every_steps": 100_000})
    await asker.wait("tune.step")
    await asker.call("engine.use", "engine", name="webgpu")
    step = asker.session.tuning.trainer.step
    while (await asker.wait("tune.step"))["step"] <= step:
        pass
    asker.ask("tune.stop")
    assert (await asker.wait("tune.stopped"))["reason"] == "stopped"


@on_two_engines
async def test_an_adapter_that_is_on_comes_along(asker):
    await tuned(asker)
    adapter_id = (await listed(asker))["chosen"]
    await asker.call("adapters.strength", "adapters.strength", strength=0.5)
    before, sides = await written(asker), await compared(asker)
    await asker.call("engine.use", "engine", name="webgpu")
    assert await written(asker) == before and await compared(asker) == sides
    told = await listed(asker)
    assert (told["chosen"], told["strength"]) == (adapter_id, 0.5)
    await asker.call("adapters.use", "adapters", adapter_id="")
    base = await written(asker)
    await asker.call("engine.use", "engine", name="cpu")
    assert await written(asker) == base == sides[0], "none on stays none"
    await asker.call("adapters.use", "adapters", adapter_id=adapter_id)
    await asker.call("adapters.strength", "adapters.strength", strength=0.5)
    assert await written(asker) == before


@on_two_engines
async def test_a_gpu_that_goes_away_in_a_tune(asker):
    await asker.trained()
    await asker.call("engine.use", "engine", name="webgpu")
    asker.ask("tune.start", **LONG)
    await asker.wait("tune.step")
    asker.ask("tune.save")
    saved = (await asker.wait("tune.saved"))["step"]
    while (await asker.wait("tune.step"))["step"] <= saved:
        pass
    asker.session.model.machine.fault = DeviceLostError("gpu", "it stays", "it went away", "reload")
    recovered = await asker.wait("tune.recovered", "failed")
    assert recovered["kind"] == "tune.recovered" and recovered["step"] == saved and "The tune goes on" in recovered["message"]
    while (await asker.wait("tune.step"))["step"] <= saved:
        pass
    asker.ask("tune.stop")
    stopped = await asker.wait("tune.stopped")
    assert stopped["reason"] == "stopped" and stopped["saved"]
    assert (await listed(asker))["chosen"] == stopped["adapter_id"]


@on_two_engines
async def test_a_gpu_that_goes_away_for_good_in_a_tune(asker):
    await asker.trained()
    await asker.call("engine.use", "engine", name="webgpu")
    asker.ask("tune.start", **LONG)
    await asker.wait("tune.step")
    asker.session.engines.recoveries = 99
    asker.session.model.machine.fault = DeviceLostError("gpu", "it stays", "it went away", "reload")
    stopped = await asker.wait("failed")
    stopped = await asker.wait("tune.stopped", "failed")
    assert (stopped["kind"], stopped["reason"], stopped["saved"]) == ("tune.stopped", "error", False)
    assert asker.session.model is None and not asker.session.tuning.active
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    await asker.call("runs.open", "opened", run_id=row["run_id"])
    assert len((await listed(asker))["adapters"]) == 1, "what was saved of it is there"
