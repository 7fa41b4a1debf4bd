"""Changing the engine of a live run, and going on after a GPU went away. The GPU here is the CPU engine under its name."""

import asyncio

import pytest
from posttrainllm.backends.native import CpuMachine
from posttrainllm.errors import DeviceError, DeviceLostError, DeviceUnavailableError
from posttrainllm.session import Host

from tests.session.test_session import QUICK, TEXT, running

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")
LONG = QUICK | {"steps": 100_000, "evaluate_every_steps": 100_000}


class FakeGPU(CpuMachine):
    """Once `fault` is set, whatever is asked of it raises that."""

    name = "webgpu"
    fault = None

    def __init__(self):
        super().__init__(1)
        self.description, self.fault = "WebGPU, made up", None

    def replay(self, loaded):
        self._answer()
        super().replay(loaded)

    def view(self, address, nbytes):
        self._answer()
        return super().view(address, nbytes)

    def download(self, address, nbytes):
        self._answer()
        return super().download(address, nbytes)

    def _answer(self):
        if self.fault:
            raise self.fault


class TwoEngines(Host):
    """cpu and a GPU; `broken` says why there is no GPU."""

    broken = ""

    async def open_machine(self, total_bytes):
        if self.device == "webgpu" and not self.broken:
            return FakeGPU()
        return CpuMachine(1)

    def why(self, machine):
        return self.broken or "Because."

    def offers(self):
        return [{"name": name, "description": name, "available": True, "why": ""} for name in ("cpu", "webgpu")]


def scenario(body):
    def test():
        async def go():
            async with running(TwoEngines(device="cpu", threads=1)) as asker:
                await body(asker)

        asyncio.run(go())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


async def begin(asker, **training):
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", preset="tiny", training=LONG | training)
    await asker.wait("step")


async def step_after(asker, step):
    while (event := await asker.wait("step"))["step"] <= step:
        pass
    return event


@scenario
async def test_switching_in_mid_run_goes_on_at_the_step_and_changes_no_number(asker):
    await begin(asker, steps=400)
    moved = await asker.call("engine.use", "engine", name="webgpu")
    assert moved["engine"]["name"] == "webgpu" and [e["name"] for e in moved["engines"]] == ["webgpu", "cpu"]
    assert 0 < moved["step"] < 400 and moved["memory"]["weights_bytes"] > 0
    assert (await asker.wait("stopped"))["step"] == 400
    rows = [row for event in asker.events if event["kind"] == "step" for row in event["rows"]]
    assert [row[0] for row in rows] == list(range(1, 401)), "every step once, in order"
    sha256 = asker.session.model.weights_sha256()
    async with running() as other:
        other.ask("corpus.text", text=TEXT, name="hamlet")
        other.ask("train.start", preset="tiny", training=LONG | {"steps": 400})
        await other.wait("stopped")
        assert other.session.model.weights_sha256() == sha256


@scenario
async def test_an_engine_that_cannot_be_had_changes_nothing(asker):
    await begin(asker)
    asker.session.host.broken = "This browser has no WebGPU."
    failed = await asker.call("engine.use", "failed", "engine", name="webgpu")
    assert failed["kind"] == "failed" and "has no WebGPU" in failed["message"]
    assert asker.session.engine["name"] == "cpu" and asker.session.host.preference == ("cpu", "f32")
    step = asker.session.training.trainer.step
    assert (await step_after(asker, step))["step"] > step
    for bad in ({"name": "abacus"}, {"name": "cpu", "precision": "f8"}):
        assert (await asker.call("engine.use", "failed", **bad))["kind"] == "failed"


@scenario
async def test_switching_with_a_model_that_is_not_training_and_without_one(asker):
    await asker.call("engine.use", "engine", name="webgpu")
    await asker.trained()
    weights = asker.session.model.weights_sha256()
    assert asker.session.model.machine.name == "webgpu"
    await asker.call("engine.use", "engine", name="cpu")
    assert asker.session.model.machine.name == "cpu" and asker.session.model.weights_sha256() == weights
    asker.ask("train.extend", steps=2)
    assert (await asker.wait("stopped"))["step"] == 32


@scenario
async def test_the_largest_sizes_come_and_go_with_the_gpu(asker):
    asker.session.host.reach_bytes = 1 << 30  # a page's memory
    for name, offered in (("webgpu", True), ("cpu", False), ("webgpu", True)):
        told = await asker.call("engine.use", "engine", name=name)
        assert ("gpt2" in told["presets"], "behemoth" in told["presets"]) == (offered, offered), name
        assert told["presets"]["medium"]["parameters"] > 1e5


class HalfGPU(FakeGPU):
    """Says that it stores in half precision, and has a loss scale."""

    precision, features, scale = "f16", {"shader-f16"}, (2.0**15, 7.0)

    def loss_scale(self):
        return self.scale

    def set_loss_scale(self, scale, good_steps):
        self.scale = (scale, good_steps)


class Halves(TwoEngines):
    """cpu, and a GPU of either precision."""

    features = frozenset({"shader-f16"})

    async def open_machine(self, total_bytes):
        machine = await super().open_machine(total_bytes)
        if machine.name == "webgpu":
            machine = HalfGPU() if self.precision == "f16" else machine
            machine.features = self.features
        return machine


def test_a_run_in_half_precision_goes_on_in_it_where_the_engine_has_it():
    async def go():
        async with running(Halves(device="cpu", threads=1)) as asker:
            await asker.call("engine.use", "engine", name="webgpu", precision="f16")
            await asker.trained()
            run_id = asker.session.runs.held_id
            asker.session.model.machine.scale = (2.0**12, 3.0)
            asker.ask("train.extend", steps=2)
            await asker.wait("stopped")
            await asker.call("engine.use", "engine", name="webgpu", precision="f32")
            opened = await asker.call("runs.open", "opened", run_id=run_id)
            told = await asker.wait("engine")
            assert told["engine"]["precision"] == "f16" and opened["note"] == ""
            assert asker.session.model.machine.scale == (2.0**12, 3.0)
            asker.session.host.features = frozenset()
            for name in ("webgpu", "cpu"):
                await asker.call("engine.use", "engine", name=name, precision="f32")
                opened = await asker.call("runs.open", "opened", run_id=run_id)
                assert "half precision (f16)" in opened["note"] and asker.session.engine["precision"] == "f32"

    asyncio.run(go())


async def on_a_gpu(asker, **training):
    await asker.call("engine.use", "engine", name="webgpu")
    await begin(asker, **training)
    asker.ask("train.save")
    saved = await asker.wait("saved")
    await step_after(asker, saved["step"])
    return saved["step"]


@scenario
async def test_a_lost_device_goes_on_from_the_last_save_on_a_fresh_one_then_on_the_cpu(asker):
    saved = await on_a_gpu(asker)
    first = asker.session.model.machine
    first.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
    event = await asker.wait("recovered")
    assert event["step"] == saved and event["lost_steps"] > 0 and "it went away" in event["message"]
    assert (await asker.wait("engine"))["engine"]["name"] == "webgpu" and asker.session.model.machine is not first
    assert (await step_after(asker, 0))["step"] > saved
    asker.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away again", "go on")
    assert (await asker.wait("recovered"))["engine"]["name"] == "cpu"
    assert asker.session.training.trainer.model is asker.session.model and asker.session.model.machine.name == "cpu"
    asker.ask("train.stop")
    stopped = await asker.wait("stopped")
    assert stopped["reason"] == "stopped" and stopped["saved"] and stopped["step"] > saved


@scenario
async def test_any_other_fault_of_a_gpu_goes_on_on_the_cpu(asker):
    saved = await on_a_gpu(asker)
    asker.session.model.machine.fault = DeviceError("webgpu", "the GPU takes every command", "it reported: wrong", "report it")
    recovered = await asker.wait("recovered")
    assert (recovered["step"], recovered["engine"]["name"]) == (saved, "cpu") and "it reported: wrong" in recovered["message"]
    await step_after(asker, saved)


@scenario
async def test_a_fault_that_nothing_survives_ends_the_run_and_keeps_the_save(asker):
    saved = await on_a_gpu(asker)

    async def nothing(total_bytes):
        raise DeviceUnavailableError("cpu", "an engine", "there is none left")

    opening, asker.session.host.open_machine = asker.session.host.open_machine, nothing
    asker.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
    stopped = await asker.wait("stopped", "failed")
    while stopped["kind"] == "failed":
        stopped = await asker.wait("stopped", "failed")
    assert stopped["reason"] == "error" and "went away" in stopped["message"]
    asker.session.host.open_machine = opening
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert (row["state"], row["step"]) == ("good", saved)
    asker.ask("runs.continue", run_id=row["run_id"], steps=3)
    assert (await asker.wait("stopped"))["step"] == saved + 3


@scenario
async def test_a_device_lost_while_writing_is_found_another(asker):
    saved = (await asker.call("engine.use", "engine", name="webgpu"), await asker.trained())[1]["step"]
    asker.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
    asker.ask("write.start", prompt="To", tokens=5)
    assert (await asker.wait("recovered"))["step"] == saved
    asker.ask("write.start", prompt="To", tokens=5)
    assert (await asker.wait("wrote"))["tokens"] == 5


@scenario
async def test_a_device_lost_while_paused_lets_the_run_go_on_on_the_cpu(asker):
    await on_a_gpu(asker, steps=600)
    asker.ask("train.pause")
    paused = (await asker.wait("paused"))["step"]
    asker.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
    moved = await asker.call("engine.use", "engine", "failed", name="cpu")
    assert (moved["kind"], moved["engine"]["name"], moved["step"]) == ("engine", "cpu", paused)
    asker.ask("train.resume")
    assert (await asker.wait("stopped"))["step"] == 600


@scenario
async def test_a_model_without_a_trainer_survives_a_lost_device_too(asker):
    run_id = (await asker.trained())["run_id"]
    exported = (await asker.call("runs.export", "exported", run_id=run_id))["buffer"]
    async with running(TwoEngines(device="cpu", threads=1)) as other:
        await other.call("engine.use", "engine", name="webgpu")
        await other.call("runs.import", "runs", name="x", buffer=exported)
        await other.wait("opened")
        assert other.session.training.trainer is None and other.session.model.machine.name == "webgpu"
        other.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
        other.ask("write.start", prompt="To", tokens=5)
        assert (await other.wait("recovered"))["lost_steps"] == 0
        other.ask("write.start", prompt="To", tokens=5)
        assert (await other.wait("wrote"))["tokens"] == 5


@scenario
async def test_a_fault_in_recovering_does_not_end_the_session(asker):
    await on_a_gpu(asker)

    def broken():
        raise KeyError("the list")

    asker.session.runs.last_save = broken
    asker.session.model.machine.fault = DeviceLostError("webgpu", "the GPU stays", "it went away", "go on")
    while (await asker.wait("stopped", "failed"))["kind"] != "stopped":
        pass
    del asker.session.runs.last_save
    asker.session.host.prefer("cpu")
    assert (await asker.trained())["reason"] == "finished"
