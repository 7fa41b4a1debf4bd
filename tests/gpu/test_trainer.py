"""The Trainer on a GPU: many steps under way, and still the same run as one that does a step at a time."""

import math
import struct

import numpy as np
import pytest
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import NonFiniteError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import DLOSS, Program
from posttrainllm.train import ahead
from posttrainllm.train.files import opened, write_checkpoint
from posttrainllm.train.reports import EvalReport, SavedReport, SkippedReport, StepReport
from posttrainllm.train.state import checkpoint_of, trainer_of
from posttrainllm.train.trainer import Live, Trainer
from posttrainllm.waiting import now

from .half import set_state

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e/test_gpu_engine.py trains in the tab")
CONFIG = GPTConfig(layers=1, channels=16, heads=2, context=16, vocabulary=256, batch=2)
TEXT = Corpus("hamlet", b"To be, or not to be, that is the question. " * 300)
SETTINGS = {"steps": 40, "warmup_steps": 5, "evaluate_every_steps": 16, "evaluation_tokens": 64, "learning_rate": 3e-3}


@pytest.fixture(autouse=True)
def blocks_that_grow(monkeypatch):
    """Blocks of 1, 2, 4 … steps, however slow this machine is."""
    monkeypatch.setattr(ahead, "BLOCK_SECONDS", 1e9)
    monkeypatch.setattr(ahead, "AHEAD_SECONDS", 1e9)


def trainer_on(machine, **settings):
    model = GPT(CONFIG, machine, Program(CONFIG))
    model.initialise(42)
    return Trainer(model, TEXT, SETTINGS | settings)


def steps_of(reports):
    return [report for report in reports if isinstance(report, StepReport)]


def test_blocks_give_the_run_that_single_steps_give(open_gpu):
    """Bit for bit: the same dispatches on the same numbers, however many are under way."""
    one, many = trainer_on(open_gpu()), trainer_on(open_gpu())
    alone = [one.train_step() for _ in range(40)]
    reports = list(many.run())
    assert many.ahead and not one.ahead
    assert [(r.step, r.loss_nats, r.gradient_norm, r.learning_rate) for r in steps_of(reports)] == [
        (r.step, r.loss_nats, r.gradient_norm, r.learning_rate) for r in alone
    ]
    assert [r.step for r in reports if isinstance(r, EvalReport)] == [0, 16, 32, 40]
    assert many.batches.cursor == one.batches.cursor
    assert many.model.weights_sha256() == one.model.weights_sha256()
    assert many._ahead._block > 1, "the test must have had several steps in a block"


def test_losses_are_the_reference_s(open_gpu):
    mine, judge = (steps_of(trainer_on(machine).run()) for machine in (open_gpu(), ReferenceMachine()))
    assert np.allclose([r.loss_nats for r in mine], [r.loss_nats for r in judge], rtol=1e-4)
    assert judge[-1].loss_nats < judge[0].loss_nats - 1


def test_a_save_in_mid_run_goes_on_as_if_nothing_had_happened(open_gpu, tmp_path):
    straight, file = trainer_on(open_gpu()), tmp_path / "run.safetensors"

    def save(live):
        if not file.exists():
            write_checkpoint(checkpoint_of(live, "x"), file)
        return "here", 1

    reports = list(straight.run(live=Live(save=save, save_seconds=1e-9)))
    first = next(r for r in reports if isinstance(r, SavedReport))
    assert 0 < first.step < 40
    with opened(file) as checkpoint:
        resumed = trainer_of(checkpoint, TEXT, machine=open_gpu())
    assert resumed.step == first.step
    list(resumed.run())
    assert resumed.model.weights_sha256() == straight.model.weights_sha256()
    assert resumed.batches.cursor == straight.batches.cursor


def test_a_number_that_is_not_finite_ends_the_run_with_the_weights_before_it(open_gpu, monkeypatch):
    """Steps behind the bad one were sent already: they must change nothing, and the data goes back to before it. (Without room for a copy
    to go back to.)"""
    monkeypatch.setattr("posttrainllm.train.guard.MOST_COPY_BYTES", 0)
    trainer, judge = trainer_on(open_gpu()), trainer_on(open_gpu())
    for _ in range(9):
        judge.train_step()
    running = trainer.run(30)
    while trainer.step < 9:
        next(running)
    at = trainer.step
    now(trainer.settle())
    at = trainer.step
    while judge.step < at:
        judge.train_step()
    trainer.model.machine.upload(address(DLOSS), struct.pack("<f", math.nan))  # every gradient from here on
    reports = list(running)
    assert reports[-1].reason == "nonfinite" and f"step {at + 1}" in reports[-1].message
    assert trainer.step == at and trainer.model.weights_sha256() == judge.model.weights_sha256()
    assert trainer.batches.cursor == judge.batches.cursor
    trainer.model.machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    list(trainer.run(at + 3))
    for _ in range(3):
        judge.train_step()
    assert trainer.model.weights_sha256() == judge.model.weights_sha256(), "it goes on where it stood"


def test_trouble_brings_it_back_to_the_copy_and_on(open_gpu):
    """With steps under way: the state of the last good evaluation is put back bit for bit, and the run goes on from it at half the rate."""
    trainer, judge = trainer_on(open_gpu()), trainer_on(open_gpu())
    start, cursor, rate = judge.model.weights_sha256(), judge.batches.cursor, judge.settings["learning_rate"]
    running, back = trainer.run(30), []
    while trainer.step < 9:
        next(running)
    now(trainer.settle())
    trainer.model.machine.upload(address(DLOSS), struct.pack("<f", math.nan))
    for report in running:
        if report.event == "rolledback":
            back.append(report)
            assert (trainer.step, trainer.model.weights_sha256(), trainer.batches.cursor) == (0, start, cursor)
            trainer.model.machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    assert [(each.step, each.goes_on) for each in back] == [(0, True)] and trainer.settings["learning_rate"] == rate / 2
    assert report.reason == "finished" and trainer.step == 30
    judge.settings["learning_rate"] = rate / 2
    list(judge.run(30))
    assert trainer.model.weights_sha256() == judge.model.weights_sha256()


def test_pausing_waits_for_what_is_under_way(open_gpu):
    trainer = trainer_on(open_gpu(), steps=1000, evaluate_every_steps=1000)
    running = trainer.run()
    while trainer.step < 5:
        next(running)
    now(trainer.settle())
    step, sha256 = trainer.step, trainer.model.weights_sha256()
    assert trainer._ahead._sent == step
    assert trainer.model.weights_sha256() == sha256 and trainer.step == step
    assert trainer.history[-1]["step"] == step


def test_a_single_step_still_raises(open_gpu):
    trainer = trainer_on(open_gpu())
    trainer.train_step()
    trainer.model.machine.upload(address(DLOSS), struct.pack("<f", math.inf))
    with pytest.raises(NonFiniteError, match="step 2"):
        trainer.train_step()


def half(open_gpu):
    machine = open_gpu(precision="f16")
    return trainer_on(machine, steps=60, evaluate_every_steps=60)


def test_in_half_precision_an_overflow_skips_a_step_and_training_goes_on(open_gpu):
    trainer = half(open_gpu)
    list(trainer.run(5))
    set_state(trainer.model.machine, 2.0**40)
    reports = list(trainer.run(60))
    skipped = [report.step for report in reports if isinstance(report, SkippedReport)]
    assert 3 <= len(skipped) < 25 and skipped == list(range(skipped[0], skipped[0] + len(skipped)))
    assert reports[-1].reason == "finished" and trainer.step == 60
    losses = [report.loss_nats for report in steps_of(reports)]
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    seen = [row["step"] for row in trainer.history]
    assert seen == [step for step in range(1, 61) if step not in skipped]
    assert 0 < trainer.model.machine.gradient_scale() < 2.0**40


def test_in_half_precision_a_model_that_gives_no_finite_gradient_ends_the_run(open_gpu):
    trainer = half(open_gpu)
    trainer.train_step()
    trainer.model.machine.upload(address(DLOSS), struct.pack("<f", math.nan))
    before = trainer.model.weights_sha256()
    reports = list(trainer.run(60))
    assert reports[-1].reason == "nonfinite" and trainer.model.weights_sha256() == before
    with pytest.raises(NonFiniteError):
        trainer.train_step()
