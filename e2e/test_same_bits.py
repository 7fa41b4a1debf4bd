"""The CPU engine gives the same bits natively and in the tab, with one thread and with two; and a run that was interrupted
equals one that was not."""

from __future__ import annotations

import pytest
from e2e.driver import Driver, same_state

from posttrainllm.backends.native import CpuMachine
from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.train.trainer import Trainer

STEPS = 50
SETTINGS = {"steps": STEPS, "warmup_steps": 10, "learning_rate": 0.002, "evaluate_every_steps": 25}


def natively(settings: dict, until: int) -> Checkpoint:
    """A run of `small` to step `until`, on two threads of this machine."""
    config = GPTConfig.preset("small")
    model = GPT(config, CpuMachine(2), Program(config))
    model.initialise(42)
    trainer = Trainer(model, Corpus.shakespeare(), settings)
    for _ in trainer.run(until):
        pass
    return checkpoint_of(trainer, "native")


@pytest.fixture(scope="session")
def native() -> Checkpoint:
    """The run that others must equal."""
    return natively(SETTINGS, STEPS)


def train(driver: Driver, steps: int = STEPS, **settings) -> str:
    """Train `small` on Shakespeare for so many steps; the run's id."""
    driver.ask("corpus.bundled")
    driver.ask("train.start", preset="small", training=SETTINGS | {"steps": steps} | settings)
    stopped = driver.wait("stopped")
    assert stopped["reason"] == "finished" and stopped["step"] == steps
    return stopped["run_id"]


@pytest.mark.parametrize("threaded", [True, False])
def test_fifty_steps_give_the_native_weights(contexts, site, plain_site, native, threaded):
    server = site if threaded else plain_site  # a page that is not isolated has one thread
    driver = Driver(contexts().new_page(), server.url)
    ready = driver.wait("ready")
    assert (ready["threads"] > 1, ready["isolated"]) == (threaded, threaded)  # two or more: as many as the machine has cores
    assert same_state(driver.checkpoint(train(driver)), native)


def test_a_run_goes_on_after_a_reload_as_if_nothing_had_happened(contexts, site, native):
    page = contexts().new_page()
    driver = Driver(page, site.url)
    driver.wait("ready")
    run_id = train(driver, steps=20)
    driver = Driver(page, site.url)  # the page is loaded anew: memory is gone, the run is in the file system
    assert [row["run_id"] for row in driver.wait("ready")["runs"]] == [run_id]
    driver.ask("runs.continue", run_id=run_id, steps=STEPS - 20)
    assert driver.wait("stopped")["step"] == STEPS
    assert same_state(driver.checkpoint(run_id), native)


def test_pausing_and_writing_in_between_change_no_bit(contexts, site):
    """Of a run with no end in sight, so that it goes on at whatever moment a pause or a text comes: the native one goes as far."""
    settings = SETTINGS | {"steps": 100_000, "decay_steps": STEPS}
    driver = Driver(contexts().new_page(), site.url)
    driver.wait("ready")
    driver.ask("settings", sample_every_seconds=0.1)
    driver.ask("train.start", preset="small", training=settings)
    driver.wait("step")
    driver.ask("train.pause")
    paused = driver.wait("paused")["step"]
    driver.ask("write.start", prompt="ROMEO:", tokens=40)
    driver.wait("wrote")
    driver.ask("train.resume")
    assert driver.wait("resumed")["step"] == paused
    driver.ask("write.start", prompt="JULIET:", tokens=200)
    driver.wait("wrote")
    while driver.wait("step")["step"] < STEPS:  # past a validation
        pass
    driver.ask("train.stop")
    stopped = driver.wait("stopped")
    assert stopped["reason"] == "stopped" and stopped["step"] >= max(STEPS, paused + 1)
    assert same_state(driver.checkpoint(stopped["run_id"]), natively(settings, stopped["step"]))


def test_killing_the_tab_in_mid_save_keeps_a_good_run(contexts, site):
    """The worker is ended at many moments of saves that follow each other closely; every time the run opens and goes on."""
    context = contexts()
    page = context.new_page()
    driver = Driver(page, site.url)
    driver.wait("ready")
    run_id = train(driver, steps=2)
    last = 2
    for delay in (5, 15, 30, 60, 110):
        driver = Driver(page, site.url)
        driver.wait("ready")
        driver.ask("settings", save_every_seconds=1)
        driver.ask("runs.continue", run_id=run_id, steps=100_000)
        saved = driver.wait("saved")["step"]
        assert saved >= last
        page.wait_for_timeout(900 + delay)  # about when the next save is being written
        page.evaluate("worker.terminate()")
        driver = Driver(page, site.url)
        row = driver.wait("ready")["runs"][0]
        assert (row["state"], row["resumable"]) == ("good", True) and row["step"] >= saved, row
        opened = driver.call("runs.open", "opened", run_id=run_id)
        assert opened["step"] >= saved
        last = opened["step"]
