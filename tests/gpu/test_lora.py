"""A model with a low-rank adapter on a GPU beside the float64 judge and the CPU engine; what stands still, and what is not held."""

import math
import struct
from dataclasses import replace

import numpy as np
import pytest
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model import adapted
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import STRENGTH, Layout
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import Adapter, LoRAConfig
from posttrainllm.model.program import (
    DLOSS, LOSS, NORM, RECIPE, SEED, Program, evaluation, initial_weights, pack_recipe, regions_of, training_step,
)  # fmt: skip
from posttrainllm.model.steps import StepQueue
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of, trainer_of
from posttrainllm.train.trainer import Trainer
from posttrainllm.waiting import now

from tests.train.making import QUICK, model_on, text

from .hosts import IN_BROWSER
from .test_training import EVEN, ODD, Run, _compare, recipe_of

USUAL = LoRAConfig(rank=4, alpha=8.0, targets=("attn.q", "attn.v"))
EVERYWHERE = LoRAConfig(rank=5, alpha=8.0, targets=("attn.q", "attn.k", "attn.v", "attn.proj", "mlp.fc", "mlp.proj"), rslora=True)
WHOLE = LoRAConfig(rank=3, alpha=8.0, targets=("attn.qkv", "mlp.proj"))
KINDS = [(ODD, EVERYWHERE), (EVEN, USUAL), (ODD, WHOLE), (EVEN, EVERYWHERE)]
NAMES = ["odd everywhere", "even q and v", "odd qkv", "even everywhere"]


class Tuned(Run):
    """As Run, of an adapter. Its `up` starts as `noise`, so that every gradient is one; `nudge` moves all weights."""

    def __init__(self, machine, config, lora, nudge=0.0, noise=0.05):
        self.machine, self.config, self.lora, self.layout = machine, config, lora, Layout.of(config, lora)
        base = initial_weights(config, training=False)
        self.initial, self.step = initial_weights(config, True, lora), training_step(config, lora)
        self.evaluation = evaluation(config, lora)
        machine.allocate(regions_of((base, self.initial, self.step, self.evaluation)))
        machine.upload(address(SEED), struct.pack("<Q", 42))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        for each in (base, self.initial):
            machine.replay(machine.load(each.tape))
        rng = np.random.default_rng(3)
        for name, value in self.layout.values().items():
            weights = np.frombuffer(machine.download(address(value), value.nbytes), "<f4")
            weights = rng.normal(0, noise, weights.shape) if name.endswith("lora_up") else weights
            weights = weights * (1 + nudge * rng.choice([-1.0, 1.0], weights.size))
            machine.upload(address(value), weights.astype("<f4").tobytes())
        self.loaded = machine.load(self.step.tape)
        self.strength(1.0)

    def strength(self, value):
        self.machine.upload(address(STRENGTH), struct.pack("<f", self.lora.scaling * value))

    def train(self, number):
        self.feed(number)
        self.machine.upload(address(RECIPE), pack_recipe(self.recipe(number)))
        self.machine.replay(self.loaded)

    def recipe(self, number):
        """A few numbers of a small model can be moved faster."""
        rate, *rest = recipe_of(number)
        return (5 * rate if self.lora is USUAL else rate, *rest)

    def logits(self):
        self.feed(1, self.evaluation)
        self.machine.replay(self.machine.load(self.evaluation.tape))
        return self.read(self.evaluation, "logits")


@pytest.mark.parametrize("config, lora", KINDS, ids=NAMES)
def test_logits_and_every_gradient(gpu, config, lora):
    runs = Tuned(gpu, config, lora), Tuned(ReferenceMachine(), config, lora), Tuned(ReferenceMachine(), config, lora, 2.0**-23)
    _compare("logits", *(run.logits() for run in runs))
    for run in runs:
        run.train(1)
    names = [parameter.name for parameter in runs[0].layout.trainable]
    assert len(names) == 2 * config.layers * len(lora.targets)
    for name in names:
        _compare(name, *(run.read(run.step, name) for run in runs))


def engines(gpu):
    """The GPU, the judge, and the C++ engine, which in the tab has tests of its own."""
    if IN_BROWSER:
        return gpu, ReferenceMachine()
    from posttrainllm.backends.native import CpuMachine

    return gpu, ReferenceMachine(), CpuMachine(1)


SHORT = slice(1, 2) if IN_BROWSER else slice(2)  # SwiftShader takes half a second for a step


@pytest.mark.parametrize("config, lora", KINDS[SHORT], ids=NAMES[SHORT])
def test_fifty_steps_beside_the_cpu_engine(gpu, config, lora):
    """Within 32 times what one rounding of every starting weight has done to the number so far, or 32 roundings of it."""
    runs = [Tuned(machine, config, lora) for machine in engines(gpu)]
    near = Tuned(ReferenceMachine(), config, lora, 2.0**-23)
    base = [bytes(run.machine.download(address(Layout.of(config).values()["wte.weight"]), 1024)) for run in runs]
    first, sway = None, {LOSS: 0.0, NORM: 0.0}
    for number in range(1, 51):
        for run in (*runs, near):
            run.train(number)
        for value in sway:
            mine, judge, *others = (run.number(value) for run in runs)
            sway[value] = max(sway[value], abs(near.number(value) - judge))
            allowed = 32 * max(sway[value], 2.0**-23 * judge)
            assert allowed < (1e-3 if value is LOSS else 1e-2) * judge, f"step {number}: {value.name}'s bound {allowed:.2g} shows nothing"
            assert abs(mine - judge) <= allowed, f"step {number}: {value.name}"
            assert all(abs(mine - other) <= 2 * allowed for other in others), f"step {number}: {value.name} of the cpu engine"
        first = first or runs[1].number(LOSS)
    assert runs[1].number(LOSS) < 0.98 * first, "the curve must fall, or it shows nothing"
    assert base == [bytes(run.machine.download(address(Layout.of(config).values()["wte.weight"]), 1024)) for run in runs]


def test_blocks_of_steps_give_every_number_in_order(gpu):
    run, expected, got = Tuned(gpu, ODD, EVERYWHERE), [], []
    for number in range(1, 9):
        run.train(number)
        expected.append((run.number(LOSS), run.number(NORM)))
    run = Tuned(gpu, ODD, EVERYWHERE)
    recipes = [run.recipe(number) for number in range(1, 9)]
    queue = StepQueue(gpu, run.loaded, run.step)
    for first, count in ((0, 2), (2, 6)):
        fed = [run.batch(number) for number in range(first + 1, first + count + 1)]
        tokens, targets = (np.array([each[side] for each in fed]) for side in (0, 1))
        queue.push(tokens, targets, recipes[first : first + count])
        got += queue.poll()
    assert got + now(queue.drain()) == expected


def test_strength_zero_is_the_base_to_the_bit_even_of_a_broken_adapter(gpu):
    run = Tuned(gpu, ODD, EVERYWHERE)
    changed = run.logits()
    run.strength(0.0)
    off = run.logits()
    up = run.layout.values()["blocks.0.attn.v.lora_up"]
    gpu.upload(address(up), np.full(up.nbytes // 4, np.nan, "<f4").tobytes())
    assert (run.logits() == off).all() and not (changed == off).any()
    run.strength(1.0)
    assert not np.isfinite(run.logits()).all()
    plain = evaluation(ODD)
    run.feed(1, plain)
    gpu.replay(gpu.load(plain.tape))
    assert (run.read(plain, "logits") == off).all()


def test_what_stands_still_has_no_gradients_and_moments(open_gpu):
    """Nor has it after a model in training took the adapter on in place."""
    config = replace(EVEN, channels=128)
    tail = Layout.of(config, USUAL).total_bytes - Layout.of(config, USUAL).frozen_bytes
    alone = GPT(config, open_gpu(), Program(config, True, USUAL))
    taken = GPT(config, open_gpu(), Program(config, True))
    taken.initialise(1)
    assert taken.memory()["gradients_bytes"] == Layout.of(config).total_bytes
    taken.attach(USUAL)
    for model in (alone, taken):
        held = model.memory()
        assert (held["gradients_bytes"], held["moments_bytes"]) == (tail, 2 * tail)
        assert held["weights_bytes"] == Layout.of(config, USUAL).total_bytes


def tuned(machine, lora=EVERYWHERE, config=ODD):
    """A live model with an adapter that changes something."""
    model = GPT(config, machine, Program(config, True))
    model.initialise(5)
    model.attach(lora)
    model.swap(noise(model, 1))
    return model


def noise(model, seed):
    """An adapter of the model's shape with random weights."""
    adapter, rng = model.adapter, np.random.default_rng(seed)
    weights = {name: rng.normal(0, 0.1, len(data) // 4).astype("<f4").tobytes() for name, data in adapter.weights.items()}
    return Adapter(f"noise {seed}", adapter.config, adapter.model, adapter.base_sha256, weights)


def test_decoding_from_a_cache_applies_the_adapter(gpu):
    mine, judge = tuned(gpu), tuned(ReferenceMachine())
    text = [int(token) for token in np.random.default_rng(2).integers(0, ODD.vocabulary, ODD.context)]
    for length in (5, 6, 7, ODD.context):  # with what was computed before in the cache
        got, expected = (np.array(model.logits(text[:length])) for model in (mine, judge))
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    before = np.array(mine.logits(text))
    mine.strength = 0.0
    assert np.abs(np.array(mine.logits(text)) - before).max() > 1e-2


def test_another_adapter_is_one_upload(gpu, monkeypatch):
    model = tuned(gpu)
    other, text, sent = noise(model, 2), [1, 2, 3], []
    upload = gpu.upload
    before = np.array(model.logits(text))
    model.program.step = None  # a model for writing: no moments to clear
    monkeypatch.setattr(gpu, "upload", lambda place, data: (sent.append((place >> 56, memoryview(data).nbytes)), upload(place, data)))
    model.swap(other)
    layout = model.program.layout
    assert [each for each in sent if each[0] == 0] == [(0, layout.total_bytes - layout.frozen_bytes)] and len(sent) == 2
    after = np.array(model.logits(text))
    assert not (after == before).any()
    fresh = tuned(gpu)
    fresh.swap(other)
    assert (np.array(fresh.logits(text)) == after).all()


def test_its_run_is_saved_without_the_base_and_goes_on(open_gpu):
    """The base's weights go from one device to the other; of a save in the tab only what is trained comes back to Python."""
    base = model_on(open_gpu())
    cut = Trainer(adapted.lora(base, rank=2, machine=open_gpu()), text(), QUICK | {"steps": 6})
    assert list(cut.run(3))[-1].reason == "finished"
    now(cut.model.fetch())
    held = checkpoint_of(cut, "tuned").to_bytes()
    checkpoint, layout = Checkpoint.from_safetensors(held), cut.model.program.layout
    assert checkpoint.weights.keys() == layout.trainable_names and len(held) < layout.frozen_bytes
    if IN_BROWSER:
        start, kept = cut.model.machine.engine.fetched.get(0)
        assert (start, kept.length) == (layout.frozen_bytes, layout.total_bytes - layout.frozen_bytes)
    resumed = trainer_of(checkpoint, text(), base=base, machine=open_gpu())
    for trainer in (cut, resumed):
        list(trainer.run(6))
    assert resumed.step == 6 and resumed.model.weights_sha256() == cut.model.weights_sha256()
    frozen = [parameter.name for parameter in layout.frozen]
    assert resumed.model.weights_sha256(frozen) == base.weights_sha256()


def test_an_adapter_is_worked_into_the_weights(gpu):
    check_merged(gpu, 1e-5)


def check_merged(machine, allowed):
    """Weights as the judge has them, all others to the bit, and nearly the same logits from a plain model."""
    model, judge, text = tuned(machine, USUAL, EVEN), tuned(ReferenceMachine(), USUAL, EVEN), [3, 1, 2, 5]
    logits, before = np.array(model.logits(text)), {name: model.weight_bytes(name) for name in Layout.of(EVEN).values()}
    for each in (model, judge):
        each.merge()
    assert model.lora is None
    for name, was in before.items():
        if not name.endswith("attn.qkv.weight"):
            assert model.weight_bytes(name) == was, name
            continue
        got, expected = (np.frombuffer(each.weight_bytes(name), "<f4").astype(float) for each in (model, judge))
        assert np.abs(got - expected).max() <= 2.0**-22 * np.abs(expected).max()
        assert np.abs(got - np.frombuffer(was, "<f4")).max() > 1e-3
    assert np.abs(np.array(model.logits(text)) - logits).max() <= allowed * np.abs(logits).max()


def test_what_is_fused_into_a_linear_waits_for_its_adapter():
    """gelu and the residual come after the adapter's part, so a linear with one is not fused with them; the others are."""
    config = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=11, batch=1)
    for targets, fused in ((("attn.q",), {1, 2}), (("mlp.fc",), {2}), (("attn.proj", "mlp.fc", "mlp.proj"), set())):
        lowered = lower(evaluation(config, LoRAConfig(2, 4.0, targets)).tape, Options())
        kinds = {value for d in lowered.dispatches for name, value in d.constants if name == "EPILOGUE"}
        assert kinds - {0} == fused, targets
        assert sum(d.kernel == "lora" for d in lowered.dispatches) == len(targets)


def test_a_number_of_the_slot_is_read_anew(gpu):
    """strength has no part in the tape: what is loaded once follows it."""
    run = Tuned(gpu, EVEN, USUAL)
    run.feed(1, run.evaluation)
    loaded, found = gpu.load(run.evaluation.tape), []
    for value in (0.0, 0.5, 1.0):
        run.strength(value)
        gpu.replay(loaded)
        found.append(run.number(LOSS))
    assert len(set(found)) == 3 and all(map(math.isfinite, found))
