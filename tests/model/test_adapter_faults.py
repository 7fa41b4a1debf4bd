"""What an adapter refuses, and what a model is after its engine refused memory."""

import math
import struct
from dataclasses import replace

import numpy as np
import pytest

from posttrainllm.backends.gpu.limits import DEFAULT as DEFAULTS
from posttrainllm.backends.gpu.memory import Memory
from posttrainllm.errors import ConfigError, DeviceOutOfMemoryError, NumericsError
from posttrainllm.train.merging import merged_checkpoint
from tests.helpers.float32 import Float32Machine
from tests.helpers.models import batch, recipe
from tests.model.test_cache import made
from tests.model.test_lora import CONFIG, DEFAULT, all_logits, everything, random_adapter, train, tuned


@pytest.mark.parametrize("wrong", [1e39, -1e39, 3e38, 10**400])
def test_a_strength_that_float32_has_not_changes_nothing(machine, wrong):
    model = tuned(made(machine, CONFIG), adapter=random_adapter(CONFIG))
    model.strength = 0.5
    before = all_logits(model)
    with pytest.raises(ConfigError, match="a number that float32 has"):
        model.strength = wrong  # 3e38 is one, and twice that, with the adapter's scaling, is none
    assert model.strength == 0.5 and all_logits(model) == before
    model.strength = 1.5e38
    assert model.strength == 1.5e38


class Full(Float32Machine):
    """Gives room up as a GPU does, and while it is `full` has none for more weights."""

    full = False

    def trim(self, region_bytes):
        for region, nbytes in region_bytes.items():
            if self._regions[region].size > nbytes:
                self._regions[region] = np.zeros(nbytes, np.uint8)

    def allocate(self, region_bytes):
        if self.full and region_bytes["params"] > self._regions["params"].size:
            raise DeviceOutOfMemoryError("gpu", "params fit", "they do not", "use a smaller model")
        super().allocate(region_bytes)


def test_a_gpu_without_room_for_an_adapter_keeps_weights_and_goes_on():
    model = made(Full(), CONFIG)
    model.make_trainable()
    train(model)
    before, logits, tokens = everything(model), all_logits(model), [data.tobytes() for data in batch(CONFIG, 1)]
    program = model.program
    assert any(model.weight_bytes("wte.weight", "m"))
    model.machine.full = True
    with pytest.raises(DeviceOutOfMemoryError):
        model.attach(DEFAULT)
    assert model.lora is None and model.program is program and everything(model) == before and all_logits(model) == logits
    assert not any(any(model.weight_bytes(name, part)) for name in model.weight_names() for part in "mv"), "as attach_async says"
    found = model.step(*tokens, recipe(1, 0.05))
    judge = made(Float32Machine(), CONFIG)
    judge.make_trainable()
    for name, data in zip((parameter.name for parameter in model.program.layout.parameters), before):
        judge.set_weight_bytes(name, data)
    assert found == judge.step(*tokens, recipe(1, 0.05)) and everything(model) == everything(judge), "a step from zero moments"
    model.machine.full = False
    model.attach(DEFAULT)
    assert model.lora == DEFAULT


def test_the_size_of_a_buffer_that_could_not_be_made_is_not_taken_for_held():
    memory = Memory(DEFAULTS)
    with memory.growing(0, 1000):
        pass
    for number, held in ((0, 1024), (1, None)):
        with pytest.raises(DeviceOutOfMemoryError), memory.growing(number, 5000) as size:
            assert size == 5120
            raise DeviceOutOfMemoryError("gpu", "it fits", "it does not", "use less")
        assert memory.nbytes.get(number) == held
    with memory.growing(0, 5000) as size:
        assert size == 5120, "and it is asked for again"


def spoiled(value):
    """An adapter with one weight that is no finite number."""
    adapter = random_adapter(CONFIG)
    name = next(iter(adapter.weights))
    return replace(adapter, weights=adapter.weights | {name: struct.pack("<f", value) + adapter.weights[name][4:]})


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_adapter_that_is_not_finite_is_not_merged(machine, value):
    base = made(machine, CONFIG)
    before, adapter = everything(base), spoiled(value)
    model = tuned(base, adapter=adapter)
    with pytest.raises(NumericsError, match=r"blocks.0.attn.q.lora_down holds one that is not"):
        model.merge()
    assert model.lora is not None and everything(model) == before
    with pytest.raises(NumericsError, match=r"blocks.0.attn.qkv.weight holds one that is not"):
        merged_checkpoint(base, adapter, 1.0, "x")


def test_a_strength_too_large_is_not_merged(machine):
    base = made(machine, CONFIG)
    model = tuned(base, adapter=random_adapter(CONFIG, scale=30.0))
    model.strength = 1.5e38
    with pytest.raises(NumericsError, match="a smaller strength"):
        model.merge()
    with pytest.raises(NumericsError, match="a smaller strength"):
        merged_checkpoint(base, random_adapter(CONFIG, scale=30.0), 1.5e38, "x")
