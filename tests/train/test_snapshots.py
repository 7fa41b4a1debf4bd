"""Snapshots of a run that trains: they change nothing, are those of their steps, and one that fails harms nothing."""

import pytest

from posttrainllm.errors import StoreQuotaError
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.train.reports import SaveFailedReport, SnapshotReport
from posttrainllm.train.snapshots import Kept
from posttrainllm.train.state import checkpoint_of, trainer_of
from posttrainllm.train.trainer import Live

from .making import model_on, state_bytes, text, trainer_on


@pytest.fixture
def volume():
    return MemoryVolume()


@pytest.fixture
def run(volume):
    with now(RunStore(volume).create("a run", "a")) as made:
        yield made


def live_of(run):
    return Live(snapshots=Kept(run.snapshots))


def test_training_is_the_same_to_the_bit_and_each_is_of_its_step(any_machine, run):
    plain, hashes = trainer_on(any_machine, steps=70), {}
    for report in plain.run():
        if report.event == "step" and report.step in (16, 32, 64) or report.event == "eval" and report.step == 0:
            hashes[report.step] = plain.model.weights_sha256()
    wanted = state_bytes(plain.model)
    trainer = trainer_on(any_machine, steps=70)
    reports = list(trainer.run(live=live_of(run)))
    assert state_bytes(trainer.model) == wanted
    assert [report.step for report in reports if isinstance(report, SnapshotReport)] == [0, 16, 32, 64]
    assert run.snapshots.steps() == [0, 16, 32, 64]
    assert {step: weights_sha256(run.snapshots.load(step)) for step in run.snapshots.steps()} == hashes


def test_a_run_that_goes_on_keeps_those_it_had(machine, run):
    straight = trainer_on(machine, steps=70)
    list(straight.run())
    wanted = state_bytes(straight.model)
    first = trainer_on(machine, steps=70)
    list(first.run(20, live_of(run)))
    run.save(checkpoint_of(first, "a run"))
    early = {step: weights_sha256(run.snapshots.load(step)) for step in (0, 16)}
    resumed = trainer_of(run.load(), text(), model=model_on(machine, seed=9))
    list(resumed.run(70, live_of(run)))
    assert state_bytes(resumed.model) == wanted
    assert run.snapshots.steps() == [0, 16, 32, 64]
    assert {step: weights_sha256(run.snapshots.load(step)) for step in (0, 16)} == early


def test_without_room_it_is_told_once_and_training_and_saving_go_on(machine, volume, run):
    plain = trainer_on(machine, steps=40)
    list(plain.run())
    wanted = state_bytes(plain.model)
    trainer = trainer_on(machine, steps=40)
    run.save(checkpoint_of(trainer, "a run"))
    volume.limit_bytes = now(RunStore(volume).total_bytes()) + 5000
    reports = list(trainer.run(live=live_of(run)))
    failed = [report for report in reports if isinstance(report, SaveFailedReport)]
    assert [report.step for report in failed] == [0] and failed[0].code == StoreQuotaError.code
    assert state_bytes(trainer.model) == wanted and run.load().step == 0 and run.snapshots.steps() == []
