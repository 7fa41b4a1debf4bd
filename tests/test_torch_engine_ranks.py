"""The torch engine under torchrun: two processes that talk by gloo, with DDP and FSDP2, give the native engine's run."""

import json
import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.native_only(reason="starts processes")

from tests.helpers.peers import peer

peer("torch")

from posttrainllm.train.files import hold_run

from .calling import text_file, train  # noqa: F401 - text_file is the fixture `text`

TINY = ["--preset", "tiny", "--evaluation-tokens", "128", "--evaluate-every-steps", "10"]
ENDLESS = ["--steps", "1000000", "--evaluation-tokens", "64", "--evaluate-every-steps", "1000000"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "posttrainllm.torch_engine"]


def start(*arguments):
    command = [*TORCHRUN, "--device", "cpu", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finished(*arguments):
    """Run to the end; (events, standard error)."""
    with start("--json", *arguments) as process:
        out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return [json.loads(line) for line in out.splitlines()], error


def saved(folder):
    """(step, {step: (loss, validation loss)}, weights and moments) of a run's last save."""
    with hold_run(folder) as run:
        checkpoint = run.load()
        groups = {"params": checkpoint.weights, "m": checkpoint.m, "v": checkpoint.v}
        tensors = {(region, name): bytes(tensor.view()) for region, group in groups.items() for name, tensor in group.items()}
        rows = {row["step"]: (row["loss_nats"], row["validation_loss_nats"]) for row in checkpoint.history}
        return checkpoint.step, rows, tensors


def far(one, other):
    """The largest difference of any loss that both have; every step has one."""
    assert one.keys() == other.keys()
    pairs = [pair for step in one for pair in zip(one[step], other[step])]
    assert all(None not in pair for pair in pairs[::2])
    return max(abs(a - b) for a, b in pairs if None not in (a, b))


@pytest.fixture(name="straight", scope="module")
def straight_run(tmp_path_factory):
    """A native run of 24 steps, and its text."""
    folder = tmp_path_factory.mktemp("straight")
    text = folder / "text.txt"
    text.write_text("".join(f"Line {number * number % 97}: all work and no play makes a dull boy.\n" for number in range(200)))
    train("--data", text, *TINY, "--threads", 1, "--steps", 24, "--out", folder / "run")
    return ["--data", str(text)], saved(folder / "run")[1]


@pytest.mark.parametrize("how", [["--parallel", "ddp", "--micro-batches", "2"], ["--parallel", "fsdp", "--recompute", "1"]], ids=["ddp", "fsdp"])
def test_a_run_goes_through_two_processes_and_back(straight, tmp_path, how):
    data, wanted = straight
    out, resume = ["--out", tmp_path / "run"], [*data, "--out", tmp_path / "run", "--resume"]
    train(*data, *TINY, "--threads", 1, "--steps", 2, *out)
    if "fsdp" in how:
        before = saved(tmp_path / "run")
        finished(*resume, *how, "--steps", 2)
        assert saved(tmp_path / "run") == before, "weights and moments went out to the processes and came back bit for bit"
    events, error = finished(*resume, *how, "--steps", 22)
    assert [event["event"] for event in events].count("done") == 1 and "2 processes" in events[0]["engine"] and "Traceback" not in error
    train(*resume, "--threads", 1, "--steps", 24)
    step, rows, _ = saved(tmp_path / "run")
    assert step == 24 and far(rows, wanted) < 1e-4


def test_a_run_begins_in_two_processes_saves_and_exports(straight, tmp_path):
    data, wanted = straight
    often = ["--save-every", "0.000001", "--out", tmp_path / "run", "--export", tmp_path / "run.safetensors"]
    events, _ = finished(*data, *TINY, *often, "--parallel", "fsdp", "--micro-batches", 4, "--steps", 8)
    kinds = [event["event"] for event in events]
    assert kinds.count("saved") >= 7 and kinds[-1] == "done"
    step, rows, _ = saved(tmp_path / "run")
    assert step == 8 and far(rows, {step: wanted[step] for step in rows}) < 1e-4
    assert (tmp_path / "run.safetensors").stat().st_size > 3 * 4 * 70_464


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_stops_after_the_step_and_saves(straight, tmp_path, number):
    data, _ = straight
    given = [*data, "--out", tmp_path / "run"]
    with start("--json", *given, *TINY[:2], *ENDLESS, "--parallel", "fsdp", "--sample-every", "1") as process:
        for line in process.stdout:  # a sample is written by all, and told by one
            if json.loads(line)["event"] == "sample":
                break
        process.send_signal(number)
        rest, error = process.communicate(timeout=60)
    *_, last, stopped, done = map(json.loads, rest.splitlines())
    assert [last["event"], stopped["reason"], done["event"]] == ["saved", "stopped", "done"], error
    step, rows, _ = saved(tmp_path / "run")
    assert step == done["step"] >= 1 and list(rows) == list(range(1, step + 1))


def test_an_error_is_said_once(straight):
    with start(*straight[0], *TINY[:2], "--batch", "3") as process:
        _, error = process.communicate(timeout=60)
    said = [line for line in error.splitlines() if line.startswith(("posttrainllm:", "process"))]
    assert process.returncode and len(said) == 1, error
    assert "the batch divides evenly over 2 processes x 1 micro-batches = 2 parts" in said[0] and "in _run\n" not in error
