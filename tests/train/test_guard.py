"""Trouble in a run: leaps of the loss and numbers that are not finite, and the way back to the last good state."""

import asyncio
import math
import struct

import numpy as np
import pytest

from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.train.guard import LEAST_NATS, MEAN, MOST_RETURNS, Guard
from posttrainllm.train.reports import EvalReport, RolledBackReport, StepReport, StoppedReport
from posttrainllm.train.trainer import Trainer

CONFIG = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=256, batch=4)
TEXTS = {
    "verse": "The quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. " * 60,
    "numbers": "".join(f"{n} squared is {n * n}. " for n in range(400)),
    "one letter": "aaaaaaab" * 500,
}
QUICK = {"steps": 120, "learning_rate": 0.01, "warmup_steps": 5, "decay_steps": 10_000, "evaluate_every_steps": 20, "evaluation_tokens": 64}


class Curve:
    """A trainer as far as a Guard's rule needs one."""

    def __init__(self, history=()):
        self.history, self.step, self.settings = list(history), 0, {"on_trouble": "roll_back"}


def first_leap(losses, history=()):
    """The index of the loss at which the rule speaks; None where it never does."""
    guard = Guard(Curve(history))
    for at, loss in enumerate(losses):
        guard.look([StepReport(at + 1, loss, 1.0, 1e-3, 1, 0.1, 0.0)])
        if guard.trouble:
            return at
    return None


def noisy(mean, spread, count, seed=0):
    return list(mean + spread * np.random.default_rng(seed).standard_normal(count))


def test_healthy_curves_are_left_alone():
    falling = list(5.5 * np.exp(-np.arange(600) / 80) + 1.4 + np.random.default_rng(1).standard_normal(600) * 0.12)
    assert first_leap(falling) is None
    assert first_leap(noisy(2.5, 0.6, 3000)) is None, "short answers have losses that differ a lot"
    odd = noisy(2.0, 0.1, 300)
    odd[150] = 7.0
    assert first_leap(odd) is None, "one odd batch is no leap"
    assert first_leap([2.0] * 100 + list(np.linspace(2.0, 2.9, 100))) is None, "a slow rise below the rule's least"


def test_leaps_are_seen_soon():
    at = first_leap(noisy(2.0, 0.1, 100) + noisy(6.0, 0.3, 50))
    assert 100 <= at <= 100 + MEAN
    assert first_leap(noisy(2.0, 0.1, 100) + noisy(2.0 + LEAST_NATS + 0.4, 0.1, 50)) is not None
    assert first_leap(noisy(5.5, 0.05, 40) + list(np.linspace(5.5, 40, 30))) is not None, "a rate far too hot"


def test_too_few_losses_say_nothing():
    assert first_leap([2.0] * (2 * MEAN) + [9.0] * (MEAN - 1)) is None
    assert first_leap([9.0] * 5, [{"step": n, "loss_nats": 2.0, "validation_loss_nats": None} for n in range(1, 60)]) is not None, "a resumed run knows its past"


def trainer_of(machine_name="cpu", text="verse", **settings):
    model = GPT.create(CONFIG, seed=3, device=machine_name, threads=1) if machine_name == "cpu" else GPT.create(CONFIG, seed=3, device=machine_name)
    return Trainer(model, Corpus.from_text(TEXTS[text]), QUICK | settings)


def weights(trainer):
    return trainer.model.weights_sha256()


def poison(trainer, value=math.nan):
    bias = bytearray(trainer.model.weight_bytes("ln_f.bias"))
    bias[:4] = struct.pack("<f", value)
    trainer.model.set_weight_bytes("ln_f.bias", bytes(bias))


def test_without_trouble_nothing_is_different():
    guarded, plain = trainer_of(), trainer_of()
    list(guarded.run())
    for _ in range(QUICK["steps"]):
        plain.train_step()
    assert weights(guarded) == weights(plain)
    assert guarded.settings["learning_rate"] == QUICK["learning_rate"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_rate_far_too_hot_is_brought_down(text):
    """Three epochs of each text at a thousand times a good rate: the run goes back with half of it, and says so, or stops in a good state."""
    trainer = trainer_of(text=text, learning_rate=1.0, clip=0.0, steps=3 * len(TEXTS[text]) // (CONFIG.batch * CONFIG.context))
    reports = list(trainer.run())
    last = reports[-1]
    assert isinstance(last, StoppedReport) and last.reason in ("finished", "spike", "nonfinite")
    assert math.isfinite(trainer.evaluate().validation_loss_nats), "what is kept is never broken"
    back = [report for report in reports if isinstance(report, RolledBackReport)]
    assert all("step" in report.sentence() for report in back)
    if last.reason != "finished":
        assert trainer.step == back[-1].step and "lower learning rate" in last.message


def test_it_goes_back_to_the_very_state_and_on_with_half_the_rate():
    trainer, good = trainer_of(), trainer_of()
    for _ in range(40):
        good.train_step()
    reports, back = trainer.run(), None
    for report in reports:
        if isinstance(report, StepReport) and report.step == 50 and back is None:
            poison(trainer)
        if isinstance(report, RolledBackReport):
            back = report
            assert weights(trainer) == weights(good), "bit for bit"
            assert trainer.model.weight_bytes("wte.weight", "m") == good.model.weight_bytes("wte.weight", "m")
            assert trainer.batches.cursor == good.batches.cursor and trainer.step == 40
            assert trainer.history[-1]["step"] == 40
    assert (back.step, back.reason, back.goes_on, back.returns) == (40, "nonfinite", True, 1)
    assert trainer.settings["learning_rate"] == QUICK["learning_rate"] / 2 == back.lowered
    assert report.reason == "finished" and trainer.step == QUICK["steps"]


def test_what_follows_a_return_is_the_same_each_time():
    found = []
    for _ in range(2):
        trainer = trainer_of()
        for report in trainer.run():
            if isinstance(report, StepReport) and report.step == 50 and trainer.settings["learning_rate"] == QUICK["learning_rate"]:
                poison(trainer)
        found.append(weights(trainer))
    assert found[0] == found[1]


def test_after_so_many_returns_it_stops_in_a_good_state():
    trainer = trainer_of()
    back = []
    for report in trainer.run():
        if isinstance(report, StepReport) and report.step == 50:
            poison(trainer)
        if isinstance(report, RolledBackReport):
            back.append(report)
    assert [each.goes_on for each in back] == [True] * MOST_RETURNS + [False]
    assert report.reason == "nonfinite" and f"tried {MOST_RETURNS} times" in report.message and report.step == 40
    assert math.isfinite(trainer.evaluate().validation_loss_nats) and not trainer.broken


def test_asked_to_stop_it_stops_at_the_good_state():
    trainer = trainer_of(on_trouble="stop")
    reports = trainer.run()
    for report in reports:
        if isinstance(report, StepReport) and report.step == 50:
            poison(trainer)
    assert (report.reason, report.step) == ("nonfinite", 40)
    assert trainer.settings["learning_rate"] == QUICK["learning_rate"]
    assert math.isfinite(trainer.evaluate().validation_loss_nats)


def test_a_leap_is_trouble_too():
    """A weight that is thrown far off, not broken: finite, and the loss leaps."""
    trainer = trainer_of(steps=160)
    back = []
    for report in trainer.run():
        if isinstance(report, StepReport) and report.step == 70 and not back:
            poison(trainer, 300.0)
        if isinstance(report, RolledBackReport):
            back.append(report)
    assert [each.reason for each in back] == ["spike"] and "leapt up" in back[0].what
    assert report.reason == "finished"


def test_a_state_on_its_way_up_is_none_to_go_back_to():
    """The losses climb for twenty steps before they are a leap; an evaluation in between, though finite, is not copied."""

    def kept_at(climb):
        trainer = trainer_of()
        guard = Guard(trainer)
        for at, loss in enumerate([2.0] * 60 + climb):
            guard.look([StepReport(at + 1, loss, 1.0, 1e-3, 1, 0.1, 0.0)])
        asyncio.run(guard.keep(EvalReport(len(climb) + 60, 2.5, False, 0.1, 3.6)))
        guard.trouble = "spike", "it leapt"
        return asyncio.run(guard.go_back())

    assert kept_at([2.05] * 10) is not None
    assert kept_at([2.4, 2.5, 2.5, 2.6, 2.6, 2.6, 2.7, 2.7, 2.7, 2.8]) is None


def test_without_room_for_a_copy_it_stops_as_ever(monkeypatch):
    monkeypatch.setattr("posttrainllm.train.guard.MOST_COPY_BYTES", 10)
    trainer = trainer_of()
    for report in trainer.run():
        if isinstance(report, StepReport) and report.step == 70:
            poison(trainer, 300.0)
    assert report.reason == "spike" and "open the last save" in report.message and trainer.broken


def test_an_evaluation_that_is_not_finite_is_trouble(monkeypatch):
    trainer = trainer_of()
    measure, calls = trainer.measure_async, []

    async def odd():
        calls.append(trainer.step)
        return math.nan if calls.count(60) == 1 and trainer.step == 60 else await measure()

    trainer.measure_async = odd
    reports = list(trainer.run())
    back = [report for report in reports if isinstance(report, RolledBackReport)]
    assert [(each.step, each.reason) for each in back] == [(40, "nonfinite")]
    assert [report.step for report in reports if isinstance(report, EvalReport)].count(60) == 2
    assert reports[-1].reason == "finished"
