"""A run outgrows the tab and comes back: tab, torchrun with two processes, tab. It is the run that never left."""

from __future__ import annotations

import json

import pytest

from tests.helpers.peers import peer

peer("torch")

from e2e.driver import Driver

from posttrainllm.backends.native import CpuMachine
from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.train.trainer import Trainer
from tests.helpers import torchrun

pytestmark = pytest.mark.slow

TEXT = "".join(f"Line {number * number % 97}: the tide comes in, the tide goes out.\n" for number in range(200))
LEFT, CAME_BACK, STEPS = 20, 30, 40
SETTINGS = {
    "warmup_steps": 5, "decay_steps": STEPS, "learning_rate": 0.002, "evaluate_every_steps": 5, "evaluation_tokens": 256, "seed": 11,
}  # fmt: skip


def straight() -> Checkpoint:
    """STEPS steps without a stop, natively."""
    config = GPTConfig.preset("tiny")
    model = GPT(config, CpuMachine(1), Program(config))
    model.initialise(SETTINGS["seed"])
    trainer = Trainer(model, Corpus("text", TEXT.encode()), SETTINGS | {"steps": STEPS})
    for _ in trainer.run(STEPS):
        pass
    return checkpoint_of(trainer, "straight")


def follow(history: list[dict], wanted: list[dict]) -> None:
    """Every row is there, the schedule's numbers are the same, and what was computed differs by no more than 1e-4."""
    assert [row["step"] for row in history] == [row["step"] for row in wanted]
    for row, other in zip(history, wanted, strict=True):
        assert row["learning_rate"] == other["learning_rate"], row["step"]
        for key in ("loss_nats", "validation_loss_nats", "gradient_norm"):
            assert (row[key] is None) == (other[key] is None), (row["step"], key)
            assert row[key] is None or abs(row[key] - other[key]) < 1e-4, (row["step"], key, row[key], other[key])


def test_a_run_goes_from_the_tab_through_torchrun_and_back(contexts, site, tmp_path):
    driver = Driver(contexts().new_page(), site.url)
    driver.wait("ready")
    driver.call("corpus.text", "corpus", name="text", text=TEXT)
    driver.ask("train.start", preset="tiny", training=SETTINGS | {"steps": LEFT})
    stopped = driver.wait("stopped")
    assert (stopped["reason"], stopped["step"]) == ("finished", LEFT)
    left, text, back = tmp_path / "left.safetensors", tmp_path / "text.txt", tmp_path / "back.safetensors"
    left.write_bytes(driver.export(stopped["run_id"]))
    text.write_bytes(TEXT.encode())

    resume = ["--data", text, "--resume", "--from", left, "--steps", CAME_BACK, "--out", tmp_path / "run", "--export", back]
    with torchrun.start("--json", "--device", "cpu", "--parallel", "fsdp", *resume) as processes:
        out, error = processes.communicate(timeout=300)
    assert processes.returncode == 0, error
    first, *_, last = map(json.loads, out.splitlines())
    assert "2 processes (FSDP2)" in first["engine"] and (last["event"], last["step"]) == ("done", CAME_BACK)

    listed = driver.wait("runs", reply_to=driver.ask_with_files("runs.import_files", back))
    opened = driver.wait("opened")
    assert opened["run_id"] == listed["imported"] != stopped["run_id"]
    assert (opened["step"], opened["resumable"], opened["corpus"]["available"]) == (CAME_BACK, True, True)
    driver.ask("runs.continue", run_id=opened["run_id"], steps=STEPS - CAME_BACK)
    stopped = driver.wait("stopped")
    assert (stopped["reason"], stopped["step"]) == ("finished", STEPS)

    run, wanted = driver.checkpoint(opened["run_id"]), straight()
    assert (run.step, run.cursor, run.resumable) == (STEPS, wanted.cursor, True)
    follow(run.history, wanted.history)
    assert len({row["learning_rate"] for row in run.history}) > STEPS // 2, "the schedule moved all the way"
