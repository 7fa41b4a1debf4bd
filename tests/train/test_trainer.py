"""The training loop: it learns, it repeats, it keeps good weights, it reports what it says it does."""

import math
import struct

import pytest

from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, DataError, NonFiniteError, StoreQuotaError
from posttrainllm.model.config import GPTConfig
from posttrainllm.train.history import newest_step
from posttrainllm.train.reports import (
    EvalReport,
    SampleReport,
    SavedReport,
    SaveFailedReport,
    StepReport,
    StoppedReport,
)
from posttrainllm.train.trainer import Live, Trainer, train

from .making import QUICK, TINY, model_on, state_bytes, text, trainer_on


def test_the_loss_falls_far_below_guessing(any_machine):
    trainer = trainer_on(any_machine, steps=60)
    reports = [report for report in trainer.run() if isinstance(report, StepReport)]
    assert reports[0].loss_nats == pytest.approx(math.log(256), abs=0.1), "an untrained model guesses"
    last = sum(report.loss_nats for report in reports[-5:]) / 5
    assert last < 3.2
    assert trainer.validation_loss_nats < 3.2 and trainer.best_loss_nats <= trainer.validation_loss_nats


def test_a_seed_repeats_the_run_and_another_does_not(any_machine):
    def end(seed):
        trainer = trainer_on(any_machine, seed=seed, steps=4)
        losses = [report.loss_nats for report in trainer.run() if isinstance(report, StepReport)]
        return trainer.model.weights_sha256(), losses

    assert end(1) == end(1)
    assert end(1)[0] != end(2)[0]


def test_the_order_of_the_text_depends_on_the_seed_alone(any_machine):
    """Same first weights, another order."""

    def end(seed):
        trainer = Trainer(model_on(any_machine, seed=9), text(), QUICK | {"seed": seed, "steps": 3})
        list(trainer.run())
        return trainer.model.weights_sha256()

    assert end(1) != end(2)


def test_reports_and_history_tell_the_same(any_machine):
    trainer = trainer_on(any_machine, steps=13, evaluate_every_steps=5)
    reports = list(trainer.run())
    steps = [report for report in reports if isinstance(report, StepReport)]
    evaluations = [report for report in reports if isinstance(report, EvalReport)]
    assert [report.step for report in steps] == list(range(1, 14))
    assert [report.step for report in evaluations] == [0, 5, 10, 13]
    assert [r.event for r in reports] == [
        "eval",
        *["step"] * 5,
        "eval",
        *["step"] * 5,
        "eval",
        *["step"] * 3,
        "eval",
        "stopped",
    ]
    for report, row in zip(steps, trainer.history, strict=True):
        assert row["step"] == report.step and row["loss_nats"] == report.loss_nats
        assert row["gradient_norm"] == report.gradient_norm and row["learning_rate"] == report.learning_rate
        assert report.tokens == TINY.batch * TINY.context and report.seconds > 0
    measured = {
        row["step"]: row["validation_loss_nats"] for row in trainer.history if row["validation_loss_nats"] is not None
    }
    assert measured == {report.step: report.validation_loss_nats for report in evaluations[1:]}
    assert trainer.seconds == pytest.approx(sum(report.seconds for report in steps))
    assert (
        isinstance(reports[-1], StoppedReport)
        and reports[-1].reason == "finished"
        and "13 steps" in reports[-1].message
    )
    assert steps[0].to_dict()["event"] == "step" and set(steps[0].to_dict()) == {
        "event", "step", "loss_nats", "gradient_norm", "learning_rate", "tokens", "seconds", "bits_per_byte",
    }  # fmt: skip


def test_best_is_the_lowest_so_far(any_machine):
    trainer = trainer_on(any_machine)
    losses = iter([3.0, 2.5, 2.75, math.nan, 2.0])

    async def evaluate(batches):
        return next(losses)

    trainer.model.evaluate_batches_async = evaluate
    assert [trainer.evaluate().best for _ in range(5)] == [True, True, False, False, True]
    assert trainer.best_loss_nats == 2.0


def test_an_evaluation_does_not_depend_on_the_batch(any_machine):
    losses = []
    for batch in (1, 3, 4, 7):
        model = model_on(any_machine, TINY.with_batch(batch))
        losses.append(model.evaluate(text().validation, 100))
    if any_machine.name == "cpu":
        assert len(set(losses)) == 1, "same bits"
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)
    assert math.isnan(model.evaluate(b"short", 100))


def broken(trainer, value):
    """Put one bad number into a weight that every step uses."""
    bias = bytearray(trainer.model.weight_bytes("ln_f.bias"))
    bias[:4] = struct.pack("<f", value)
    trainer.model.set_weight_bytes("ln_f.bias", bias)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_changes_nothing(any_machine, value):
    trainer = trainer_on(any_machine, steps=10)
    for _ in range(3):
        trainer.train_step()
    broken(trainer, value)
    before, cursor, history = state_bytes(trainer.model), trainer.batches.cursor, list(trainer.history)
    with pytest.raises(NonFiniteError) as caught:
        trainer.train_step()
    assert "step 4" in str(caught.value) and "the weights of step 3 are kept" in str(caught.value)
    assert state_bytes(trainer.model) == before
    assert (trainer.step, trainer.batches.cursor, trainer.history) == (3, cursor, history)
    last = list(trainer.run())[-1]
    assert (last.reason, last.step) == ("nonfinite", 3)


def test_after_it_the_same_step_can_be_done(any_machine):
    good, other = trainer_on(any_machine), None
    for _ in range(3):
        good.train_step()
    wanted = [good.train_step().loss_nats, good.train_step().loss_nats]
    other = trainer_on(any_machine)
    for _ in range(3):
        other.train_step()
    bias = other.model.weight_bytes("ln_f.bias")
    broken(other, math.nan)
    with pytest.raises(NonFiniteError):
        other.train_step()
    other.model.set_weight_bytes("ln_f.bias", bias)
    assert [other.train_step().loss_nats, other.train_step().loss_nats] == pytest.approx(wanted, rel=1e-6)


def test_it_stops_when_asked_saves_and_says_so(any_machine):
    trainer, saves = trainer_on(any_machine), []

    def save(live):
        saves.append(live.step)
        return "there", 123

    asked = iter(["", "", "", "stop"])
    reports = list(trainer.run(live=Live(save=save, asked=lambda: next(asked))))
    assert trainer.step == 3 and saves == [3]
    assert isinstance(reports[-2], SavedReport) and reports[-2].place == "there" and reports[-2].nbytes == 123
    assert reports[-1].reason == "stopped" and "step 3" in reports[-1].message


def test_it_goes_on_where_it_stopped_and_can_be_extended(any_machine):
    trainer = trainer_on(any_machine, steps=4)
    list(trainer.run())
    reports = list(trainer.run(6))
    assert [report.step for report in reports if isinstance(report, StepReport)] == [5, 6]
    assert not any(isinstance(report, EvalReport) and report.step == 4 for report in reports), "it was measured already"
    assert [report.event for report in trainer.run(6)] == ["stopped"]
    running = trainer.run(7)
    next(running)
    trainer.until = 9
    assert [report.step for report in running if isinstance(report, StepReport)] == [8, 9]


def test_a_full_disk_is_reported_and_training_goes_on(any_machine):
    trainer, tries = trainer_on(any_machine, steps=5), []

    def save(live):
        tries.append(live.step)
        raise StoreQuotaError("save", "there is room", "there is none")

    reports = list(trainer.run(live=Live(save=save, save_seconds=1e-9)))
    failed = [report for report in reports if isinstance(report, SaveFailedReport)]
    assert tries == [1, 2, 3, 4, 5] and [report.step for report in failed] == tries
    assert failed[0].code == "E-STORE-QUOTA" and failed[0].event == "savefailed"
    assert trainer.step == 5 and reports[-1].reason == "finished"


def test_samples_come_while_it_trains_and_change_nothing(any_machine):
    plain, sampled = trainer_on(any_machine, steps=4), None
    list(plain.run())
    wanted = plain.model.weights_sha256()
    sampled = trainer_on(any_machine, steps=4)
    live = Live(sample_seconds=1e-9, sample_prompt="The ", sample_tokens=5)
    samples = [report for report in sampled.run(live=live) if isinstance(report, SampleReport)]
    assert [report.step for report in samples] == [1, 2, 3, 4] and samples[0].prompt == "The " and samples[0].text
    assert sampled.model.weights_sha256() == wanted


def test_the_validation_part_is_never_trained_on(any_machine):
    trainer = trainer_on(any_machine, validation_fraction=0.5)
    assert len(trainer.corpus.validation) == len(text().data) // 2
    marked = Corpus("marked", b"a" * 500 + b"z" * 500)
    trainer = Trainer(model_on(any_machine), marked, QUICK | {"validation_fraction": 0.5})
    for _ in range(60):
        tokens, targets = trainer.batches.next()
        assert set(memoryview(tokens).cast("i")) | set(memoryview(targets).cast("i")) == {ord("a")}


def test_what_cannot_be_trained_is_refused_before_a_step(any_machine):
    with pytest.raises(DataError, match="training part"):
        Trainer(model_on(any_machine), Corpus("x", b"abc"))
    with pytest.raises(ConfigError, match="vocabulary"):
        Trainer(model_on(any_machine, GPTConfig(1, 16, 2, 8, 100, 4)), text())
    with pytest.raises(ConfigError, match="training=True"):
        list(Trainer(model_on(any_machine, training=False), text(), QUICK).run())
    for seed in (-1, 1 << 63, 1.0, True):
        with pytest.raises(ConfigError, match="seed"):
            model_on(any_machine, seed=seed)


def test_train_is_the_short_way(any_machine):
    reports = list(train(model_on(any_machine), text(), steps=2, evaluation_tokens=32))
    assert [report.event for report in reports] == ["eval", "step", "step", "eval", "stopped"]


def test_an_evaluation_after_a_skipped_step_has_a_row_of_its_own(machine):
    """As half precision skips one: the weights of the step before stand, and its row keeps what was measured there."""
    trainer = trainer_on(machine)
    trainer.skip()
    first = trainer.evaluate()
    assert [(row["step"], row["loss_nats"]) for row in trainer.history] == [(1, None)]
    trainer.train_step()
    trainer.evaluate()
    before = [dict(row) for row in trainer.history]
    trainer.skip()
    report = trainer.evaluate()
    assert trainer.history[:-1] == before and before[0]["validation_loss_nats"] == first.validation_loss_nats
    last = trainer.history[-1]
    assert (last["step"], last["validation_loss_nats"]) == (3, report.validation_loss_nats)
    assert last["loss_nats"] is last["gradient_norm"] is last["learning_rate"] is None and last["seconds"] == trainer.seconds
    assert newest_step(trainer.history) == before[-1]
    trainer.train_step()
    assert [row["step"] for row in trainer.history] == [1, 2, 3, 4]


@pytest.mark.parametrize("at", [0, 5, 10])
def test_an_evaluation_hears_a_stop_and_is_not_recorded(any_machine, at):
    """Asked for at the second batch of the evaluation at step `at` of 10."""
    trainer = trainer_on(any_machine, steps=10, evaluate_every_steps=5, evaluation_tokens=400)
    whole = trainer.model.evaluate_batches_async
    ran, stopping, saves = [], False, []

    async def evaluate(batches):
        def counted():
            nonlocal stopping
            for batch in batches:
                ran.append(trainer.step)
                stopping = trainer.step == at
                yield batch

        return await whole(counted())

    trainer.model.evaluate_batches_async = evaluate
    asked = lambda: "stop" if stopping else ""  # noqa: E731 - as Live takes it
    live = Live(save=lambda trainer: saves.append(trainer.step) or ("here", 1), asked=asked, heard=asked)
    reports = list(trainer.run(live=live))
    assert len([step for step in ran if step == at]) == 1 and (at == 0 or ran.count(0) > 1)
    assert [report.step for report in reports if isinstance(report, EvalReport)] == [step for step in (0, 5, 10) if step < at]
    assert (reports[-1].step, reports[-1].reason, saves) == (at, "finished" if at == 10 else "stopped", [at])
    assert not trainer.history or trainer.history[-1]["validation_loss_nats"] is None
