"""What is predicted of a model's memory on a GPU is within 5 % of what it then holds, every buffer counted; and nearly to the byte."""

import time

import numpy as np
import pytest
from posttrainllm.errors import ConfigError
from posttrainllm.model import held, live
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.held import predicted
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import Program
from posttrainllm.model.saving import Saving
from posttrainllm.waiting import now

from tests.gpu.fake import fake_machine
from tests.gpu.hosts import IN_BROWSER
from tests.gpu.test_training import recipe_of

PRESETS = ("tiny", "small", "medium", "large", "xl", "huge", "massive", "mega", "gpt2", "behemoth")


def used(machine, config, blocks=3, rows=2, **program):
    """A model that was made, trained a few blocks of steps, was evaluated and wrote, and its program."""
    model = GPT(config, machine, Program(config, **program))
    model.initialise(7)
    queue = now(model.steps())
    shape = rows, config.batch, config.context
    for _ in range(blocks):
        now(queue.ready())
        queue.push(np.zeros(shape, "<i4"), np.zeros(shape, "<i4"), [recipe_of(1)] * rows)
    now(queue.drain())
    now(model.losses_async(bytes(4 * config.batch * config.context), bytes(4 * config.batch * config.context)))
    model.logits([1, 2, 3])
    return model, queue


def near(held, foreseen):
    """Within 5 % in all, and of each kind within 5 % of all."""
    assert held.keys() == foreseen.keys()
    whole = held["total_bytes"]
    assert sum(nbytes for kind, nbytes in held.items() if kind != "total_bytes") == whole
    assert all(abs(held[kind] - foreseen[kind]) <= 0.05 * whole for kind in held), f"{held} {foreseen}"
    return abs(whole - foreseen["total_bytes"]) / whole


@pytest.mark.native_only(reason="the fake device stands in for wgpu-py's")
@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_on_a_device_that_only_counts(monkeypatch, name, precision):
    config = GPTConfig.preset(name)
    machine = fake_machine(monkeypatch, precision)
    foreseen = predicted(Program(config), machine.predictor)
    model, queue = used(machine, config)
    assert model.memory()["total_bytes"] == sum(machine._device.sizes.values())
    assert near(model.memory(), foreseen) < 0.02


@pytest.mark.native_only(reason="the fake device stands in for wgpu-py's")
@pytest.mark.parametrize("name, batch", [("behemoth", 1), ("gpt2", 1)])
def test_the_largest_in_small_buffers(monkeypatch, name, batch):
    small = {"maxBufferSize": 256 << 20, "maxStorageBufferBindingSize": 128 << 20}
    config = GPTConfig.preset(name, batch=batch)
    machine = fake_machine(monkeypatch, **small)
    foreseen = predicted(Program(config), machine.predictor)
    model, queue = used(machine, config)
    assert len(machine._memory.cuts.parts) >= 4 and max(machine._device.sizes.values()) <= 256 << 20
    assert near(model.memory(), foreseen) < 0.01


@pytest.mark.native_only(reason="the fake device stands in for wgpu-py's")
@pytest.mark.parametrize("program", [
    {"saving": Saving(micro_batches=4)}, {"saving": Saving(recompute=4)}, {"saving": Saving(moments="8bit")},
    {"lora": LoRAConfig(rank=8, alpha=8.0, targets=("attn.q", "attn.v"))},
], ids=["in four parts", "computed again", "8-bit moments", "an adapter"])  # fmt: skip
def test_what_saves_memory(monkeypatch, program):
    config, machine = GPTConfig.preset("medium"), fake_machine(monkeypatch)
    foreseen = predicted(Program(config, **program), machine.predictor)
    model, queue = used(machine, config, **program)
    assert near(model.memory(), foreseen) < 0.02
    assert foreseen["total_bytes"] < 0.95 * predicted(Program(config), machine.predictor)["total_bytes"]


@pytest.mark.parametrize("name", ["tiny", "small"] if IN_BROWSER else ["tiny", "small", "medium"])
def test_on_a_device(open_gpu, name):
    config, machine = GPTConfig.preset(name), open_gpu()
    foreseen = predicted(Program(config), machine.predictor)
    model, queue = used(machine, config, blocks=2, rows=1)
    now(model.fetch())
    assert near(model.memory(), foreseen) < 0.05


@pytest.mark.native_only(reason="the fake device stands in for wgpu-py's")
@pytest.mark.parametrize("name", ["behemoth", "gpt2"])
def test_a_prediction_is_quick(monkeypatch, name):
    """A page asks at every change of a setting."""
    machine, began = fake_machine(monkeypatch), time.process_time()
    predicted(Program(GPTConfig.preset(name)), machine.predictor)
    assert time.process_time() - began < 2.0


@pytest.mark.native_only(reason="the fake device stands in for wgpu-py's")
def test_a_limit_chooses_by_what_the_gpu_would_hold(monkeypatch):
    """Not by the CPU engines' plan, which is less."""
    config = GPTConfig.preset("medium")
    monkeypatch.setattr(live, "open_machine", lambda *_: fake_machine(monkeypatch))
    plain = predicted(Program(config), fake_machine(monkeypatch).predictor)["total_bytes"]
    assert GPT.create(config, device="webgpu", memory_bytes=plain).program.saving == Saving()
    made = GPT.create(config, device="webgpu", memory_bytes=plain - 1)
    assert made.program.saving == Saving(2) and made.memory()["total_bytes"] < plain
    with pytest.raises(ConfigError, match="no more than 10,000,000 bytes of this GPU"):
        GPT.create(config, device="webgpu", memory_bytes=10_000_000)
    monkeypatch.setattr(held, "available_bytes", lambda: 50_000_000)
    with pytest.raises(ConfigError, match=f"need {plain:,}"):
        GPT.create(config, device="webgpu")
