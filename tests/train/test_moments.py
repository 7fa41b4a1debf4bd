"""Runs whose AdamW keeps its moments as bfloat16 or in 8 bits: exact where they go on, converted where they are kept otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from posttrainllm.errors import ConfigError
from posttrainllm.model.adapted import lora
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.moments import KINDS
from posttrainllm.model.program import Program
from posttrainllm.model.saving import Saving
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.safetensors import SafeTensors
from posttrainllm.train.moments import in_full, kind_of
from posttrainllm.train.state import checkpoint_of, trainer_of, weights_checkpoint
from posttrainllm.train.trainer import Trainer
from tests.helpers.machines import open_once
from tests.tune.making import pairs, preferences

from .making import QUICK, TINY, state_bytes, text

ODD = GPTConfig(layers=1, channels=15, heads=3, context=8, vocabulary=256, batch=4)
"""Biases of 15 and 45 numbers: half a word is left of bfloat16's, and most of a block of codes."""
SMALLER = ["bf16", "8bit"]
OTHERS = [(a, b) for a in KINDS for b in KINDS if a != b]


def trainer_on(machine, kind, config=TINY, seed=1, **changes):
    model = GPT(config, machine, Program(config, saving=Saving(moments=kind)))
    model.initialise(seed)
    return Trainer(model, text(), QUICK | {"seed": seed} | changes)


def saved(trainer):
    return Checkpoint.from_safetensors(checkpoint_of(trainer, "a run").to_bytes())


def moments(model):
    """Both moments of every weight as float64, by name."""
    kind, found = KINDS[model.program.saving.moments], {}
    for parameter in model.program.layout.trainable:
        for region in ("m", "v"):
            data = model.weight_bytes(parameter.name, region)
            found[region, parameter.name] = kind.unpack(region, data, int(np.prod(parameter.shape))).astype(float)
    return found


@pytest.mark.parametrize("config", [TINY, ODD], ids=["tiny", "odd"])
@pytest.mark.parametrize("kind", SMALLER)
def test_a_hundred_steps_are_fifty_and_fifty(machine, kind, config):
    straight = trainer_on(machine, kind, config, steps=100, evaluate_every_steps=25)
    list(straight.run())
    wanted, losses = state_bytes(straight.model), [row["loss_nats"] for row in straight.history]
    first = trainer_on(machine, kind, config, steps=100, evaluate_every_steps=25)
    list(first.run(50))
    resumed = trainer_of(saved(first), text(), machine=machine)
    assert resumed.model.program.saving.moments == kind and state_bytes(resumed.model) != wanted
    list(resumed.run())
    assert state_bytes(resumed.model) == wanted and [row["loss_nats"] for row in resumed.history] == losses


@pytest.mark.parametrize("kind", SMALLER)
def test_the_judge_goes_on_too(kind):
    """Its numbers are float64, its packed moments integers: what they are is known before anything is put there."""
    machine, run = open_once("reference"), trainer_on(open_once("reference"), kind)
    list(run.run(3))
    checkpoint, before = saved(run), moments(run.model)
    resumed = trainer_of(checkpoint, text(), machine=machine)
    after = moments(resumed.model)
    assert any(value.any() for value in before.values())
    assert all(np.array_equal(before[key], after[key]) for key in before)
    list(resumed.run(5))
    plain = trainer_on(machine, "f32")
    list(plain.run(1))
    assert np.isfinite(plain.history[-1]["loss_nats"]) and any(value.any() for value in moments(plain.model).values())


@pytest.mark.parametrize("kind", SMALLER)
def test_engine_and_judge_learn_alike(machine, kind):
    curves = []
    for each in (machine, open_once("reference")):
        trainer = trainer_on(each, kind)
        list(trainer.run(10))
        curves.append([row["loss_nats"] for row in trainer.history])
    assert np.abs(np.subtract(*curves)).max() < 1e-3


@pytest.mark.parametrize("kind", SMALLER)
def test_it_learns_as_well_as_with_moments_in_full(machine, kind):
    losses = {}
    for each in ("f32", kind):
        trainer = trainer_on(machine, each, steps=150, decay_steps=150)
        list(trainer.run())
        losses[each] = trainer.validation_loss_nats
    assert losses["f32"] < 2 and abs(losses[kind] - losses["f32"]) < 0.1


def test_a_file_says_honestly_what_it_holds(machine):
    found = {}
    for kind in KINDS:
        trainer = trainer_on(machine, kind)
        list(trainer.run(2))
        data = checkpoint_of(trainer, "a run").to_bytes()
        found[kind] = (SafeTensors(data).tensors, len(data))
        assert kind_of(Checkpoint.from_safetensors(data)) == kind
    name, count = "blocks.0.mlp.fc.weight", 16 * 64
    for kind, dtypes in (("f32", ("F32", "F32")), ("bf16", ("BF16", "BF16")), ("8bit", ("I8", "U8"))):
        tensors = found[kind][0]
        for region, dtype in zip("mv", dtypes):
            assert (tensors[f"adamw.{region}.{name}"].dtype, tensors[f"adamw.{region}.{name}"].shape) == (dtype, (16, 64))
            assert (f"adamw.{region}_scale.{name}" in tensors) == (kind == "8bit")
    scale = found["8bit"][0][f"adamw.m_scale.{name}"]
    assert (scale.dtype, scale.shape) == ("F32", (count // 64,))
    assert found["8bit"][1] < found["bf16"][1] < found["f32"][1]


def test_a_reader_that_knows_the_map_finds_the_moments(machine):
    """m = scale·c·|c|/127², v = scale·(c/255)⁴, in NumPy, from the file alone."""
    trainer = trainer_on(machine, "8bit")
    list(trainer.run(5))
    tensors, mine = SafeTensors(checkpoint_of(trainer, "a run").to_bytes()).tensors, moments(trainer.model)
    for (region, name), expected in mine.items():
        codes = np.frombuffer(tensors[f"adamw.{region}.{name}"].view(), np.int8 if region == "m" else np.uint8).astype(float)
        scales = np.repeat(np.frombuffer(tensors[f"adamw.{region}_scale.{name}"].view(), "<f4").astype(float), 64)[: codes.size]
        values = scales * (codes * abs(codes) / 127**2 if region == "m" else (codes / 255) ** 4)
        assert np.allclose(values, expected, rtol=1e-6, atol=0)


class Absent:
    """NumPy where it is not loaded."""

    def __getattr__(self, name):
        raise ModuleNotFoundError("No module named 'numpy'")


@pytest.mark.parametrize("kind", SMALLER)
def test_a_page_saves_and_goes_on_without_numpy(machine, kind, monkeypatch):
    run = trainer_on(machine, kind, ODD)
    list(run.run(3))
    wanted, expected = state_bytes(run.model), SafeTensors(checkpoint_of(run, "a run").to_bytes()).tensors
    monkeypatch.setattr("posttrainllm.train.moments.np", Absent())
    checkpoint = saved(run)
    found = SafeTensors(checkpoint.to_bytes()).tensors
    assert {name: bytes(each.view()) for name, each in found.items()} == {name: bytes(each.view()) for name, each in expected.items()}
    resumed = trainer_of(checkpoint, text(), machine=open_once("cpu-1"))
    assert state_bytes(resumed.model) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_any_run_s_moments_can_be_read_in_full(machine, kind):
    """As float32 tensors for whoever keeps no others, from any byte on."""
    run = trainer_on(machine, kind, ODD)
    list(run.run(5))
    found = in_full(saved(run))
    for (region, name), right in moments(run.model).items():
        tensor = found[region][name]
        data = bytes(tensor.view())
        assert tensor.dtype == "F32" and len(data) == tensor.nbytes == 4 * right.size
        assert np.array_equal(np.frombuffer(data, "<f4").astype(float), right)
        if kind != "f32":
            for first, count in ((0, 4), (4, 8), (len(data) - 12, 12), (260, 300)):
                assert bytes(tensor.data.source.read_at(first, min(count, len(data) - first))) == data[first : first + count]


@pytest.mark.parametrize(("old", "new"), OTHERS)
def test_a_run_may_go_on_with_other_moments(machine, old, new):
    run = trainer_on(machine, old, ODD)
    list(run.run(8))
    checkpoint, before = saved(run), moments(run.model)
    resumed = trainer_of(checkpoint, text(), machine=machine, saving=Saving(moments=new))
    assert resumed.model.program.saving.moments == new and resumed.step == 8
    for (region, name), right in before.items():
        got = moments(resumed.model)[region, name]
        if new == "f32":
            assert np.array_equal(got, right)
        elif new == "bf16":
            assert (np.abs(got - right) <= 2.0**-8 * np.abs(right)).all()
        else:
            assert np.abs(got - right).max() <= 0.01 * np.abs(right).max()
    list(resumed.run(20))
    assert resumed.history[-1]["loss_nats"] < run.history[0]["loss_nats"]


@pytest.mark.parametrize("kind", SMALLER)
def test_moments_in_full_and_back_are_the_same_bits(machine, kind):
    run = trainer_on(machine, kind, ODD)
    list(run.run(6))
    wanted = state_bytes(run.model)
    full = trainer_of(saved(run), text(), machine=open_once("cpu-1"), saving=Saving())
    again = trainer_of(saved(full), text(), machine=machine, saving=Saving(moments=kind))
    assert state_bytes(again.model) == wanted


@pytest.mark.parametrize("kind", SMALLER)
def test_the_run_of_an_adapter(machine, kind):
    base = GPT(TINY, machine, Program(TINY))
    base.initialise(1)

    def made():
        model = lora(base, machine=open_once("cpu-1"), seed=3, saving=Saving(moments=kind))
        return Trainer(model, text(), QUICK | {"steps": 20})

    def state(model):
        return [model.weight_bytes(name, region) for region in ("params", "m", "v") for name in model.trainable_names()]

    straight = made()
    list(straight.run())
    wanted = state(straight.model)
    first = made()
    list(first.run(10))
    checkpoint = saved(first)
    whole = Checkpoint.from_safetensors(weights_checkpoint(base, "base").to_bytes())
    for its_base in (base, whole):
        resumed = trainer_of(checkpoint, text(), base=its_base, machine=open_once("cpu-1"))
        assert resumed.model.program.saving.moments == kind
        list(resumed.run())
        assert state(resumed.model) == wanted
    resumed.model.detach(training=True)
    assert resumed.model.program.saving.moments == kind and not any(resumed.model.weight_bytes("wte.weight", "v"))


@pytest.mark.parametrize("way", ["sft", "dpo"])
@pytest.mark.parametrize("kind", SMALLER)
def test_tuning(machine, kind, way):
    """Steps on pairs and preferences, of all weights and of an adapter; what moments stood there before becomes zero."""
    from posttrainllm.tune.dpo import dpo
    from posttrainllm.tune.sft import sft

    from tests.tune.making import CONFIG

    for adapter in (False, True):
        model = GPT(CONFIG, machine, Program(CONFIG, saving=Saving(moments=kind)))
        model.initialise(1)
        if adapter:
            model.attach(LoRAConfig(rank=4, alpha=8, targets=("attn.q", "mlp.fc")), seed=1)
        assert model.program.saving.moments == kind
        reports = list(sft(model, pairs(), steps=6) if way == "sft" else dpo(model, preferences(), steps=6))
        losses = [report.loss_nats for report in reports if hasattr(report, "gradient_norm")]
        assert len(losses) == 6 and losses[-1] < losses[0]
        assert any(value.any() for value in moments(model).values())


@pytest.mark.parametrize("kind", SMALLER)
def test_a_model_for_writing_becomes_one_for_training(machine, kind):
    model = GPT(TINY, machine, Program(TINY, False, saving=Saving(moments=kind)))
    model.initialise(1)
    assert model.program.region_bytes().get("m", 0) == 0
    model.make_trainable()
    model.initialise(1)
    trainer = Trainer(model, text(), QUICK)
    trainer.train_step()
    assert model.program.saving.moments == kind and any(model.weight_bytes("wte.weight", "m"))


def test_the_plan_says_what_is_saved():
    config = GPTConfig.preset("behemoth")
    plans = {kind: Program(config, saving=Saving(moments=kind)).memory() for kind in KINDS}
    full = plans["f32"]["moments_bytes"]
    assert plans["bf16"]["moments_bytes"] == full // 2 and 0 <= plans["8bit"]["moments_bytes"] - full * 68 // 256 < 512
    for plan in plans.values():
        assert plan["total_bytes"] == plans["f32"]["total_bytes"] - full + plan["moments_bytes"]
    assert 0 <= full - 8 * config.parameter_count() < 1 << 20


def test_a_live_model_keeps_its_own_way(machine):
    run = trainer_on(machine, "8bit")
    list(run.run(4))
    checkpoint, other = saved(run), trainer_on(open_once("cpu-1"), "bf16")
    resumed = trainer_of(checkpoint, text(), model=other.model)
    assert resumed.model.program.saving.moments == "bf16"
    before = moments(trainer_of(checkpoint, text(), machine=machine).model)
    assert all(np.allclose(got, before[key], rtol=2.0**-8, atol=0) for key, got in moments(resumed.model).items())


def test_only_ways_that_there_are():
    with pytest.raises(ConfigError, match="moments are one of f32, bf16, 8bit"):
        Saving(moments="4bit")
    assert replace(Saving(), moments="8bit").moments == "8bit"
