"""The memory that a session plans is within 5 % of what the run then holds, on the engine in use."""

import asyncio

import pytest

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.held import predicted
from posttrainllm.model.program import Program
from posttrainllm.model.saving import Saving
from posttrainllm.session import Host
from tests.gpu.fake import fake_machine
from tests.session.test_session import TEXT, running

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ asks the same of the tab")


class Counting(Host):
    """A host whose GPU only counts; it passed its test elsewhere."""

    def __init__(self, monkeypatch, **limits):
        super().__init__(device="webgpu")
        self._patch, self._limits = monkeypatch, limits

    async def open_machine(self, total_bytes):
        machine = fake_machine(self._patch, **self._limits)
        self.opened(machine)
        return machine


@pytest.mark.parametrize("preset", ["tiny", "small", "medium"])
@pytest.mark.parametrize("engine", ["cpu", "webgpu"])
def test_what_is_planned_is_what_is_held(monkeypatch, engine, preset):
    async def go():
        async with running(Counting(monkeypatch) if engine == "webgpu" else None) as asker:
            asker.ask("corpus.text", text=TEXT, name="hamlet")
            planned = await asker.call("plan", "planned", preset=preset)
            asker.ask("train.start", preset=preset, training={"steps": 2, "evaluate_every_steps": 1})
            await asker.wait("stopped")
            return planned, asker.session.model.memory()

    planned, held = asyncio.run(go())
    assert planned["fits"] and planned["memory"].keys() == held.keys()
    for kind, nbytes in held.items():
        assert abs(planned["memory"][kind] - nbytes) <= 0.05 * held["total_bytes"], f"{kind}: {planned['memory']} {held}"


LARGE = {"maxBufferSize": (1 << 32) - 256, "maxStorageBufferBindingSize": (1 << 31) - 4}


@pytest.mark.parametrize("preset", ["medium", "gpt2", "behemoth"])
def test_each_choice_is_told_as_a_gpu_would_hold_it(monkeypatch, preset):
    """A GPU lends nothing: behemoth's blocks computed again save there what gradients lend on a CPU."""
    config = GPTConfig.preset(preset)

    async def go(saving):
        async with running(Counting(monkeypatch, **LARGE)) as asker:
            planned = await asker.call("plan", "planned", preset=preset, saving=saving)
            return planned, asker.session.host._predictor

    for saving in (None, {"recompute": 2, "moments": "8bit"}):
        planned, predictor = asyncio.run(go(saving))
        found = {each["name"]: each for each in planned["choices"]}
        assert "recompute" in found and found["plain"]["total_bytes"] == max(each["total_bytes"] for each in found.values())
        for each in found.values():
            held = predicted(Program(config, saving=Saving(**each["saving"])), predictor)["total_bytes"]
            assert abs(each["total_bytes"] - held) <= 0.002 * held, f"{each} {held}"


def test_a_gpu_that_cannot_bind_a_weight_says_so_before(monkeypatch):
    """And one that can take the batch in parts says in how many."""

    async def go(**limits):
        async with running(Counting(monkeypatch, **limits)) as asker:
            return [await asker.call("plan", "planned", config=GPTConfig(2, 512, 8, 64, 256, batch).to_dict()) for batch in (1, 64)]

    for planned in asyncio.run(go(maxBufferSize=3 << 20, maxStorageBufferBindingSize=3 << 20)):
        assert not planned["fits"] and "3,145,728 bytes" in planned["reason"] and not any(each["fits"] for each in planned["choices"])
    one, many = asyncio.run(go(maxBufferSize=8 << 20, maxStorageBufferBindingSize=8 << 20))
    assert one["fits"] and many["fits"] and many["saving"]["micro_batches"] > 1, "what fits is chosen"
    named = {each["name"]: each for each in many["choices"]}
    assert not named["plain"]["fits"] and named["plain"]["total_bytes"] > many["memory"]["total_bytes"], "as in larger buffers"
    assert named["micro_batches"]["fits"] and named["micro_batches"]["total_bytes"] == many["memory"]["total_bytes"]
