"""The torch engine under torchrun: two processes that talk by gloo, with DDP and FSDP2, give the native engine's run."""

import json
import shutil
import signal

import numpy as np
import pytest

pytestmark = pytest.mark.native_only(reason="starts processes")

from tests.helpers.peers import peer

peer("torch")

from posttrainllm.model.live import GPT
from posttrainllm.train.files import hold_run
from posttrainllm.waiting import now

from .calling import train
from .helpers import torchrun
from .helpers.torchrun_many import UNEVEN, UNEVEN_STEPS, uneven_batches, uneven_steps

TINY = ["--preset", "tiny", "--evaluation-tokens", "128", "--evaluate-every-steps", "10"]
ENDLESS = ["--steps", "1000000", "--evaluation-tokens", "64", "--evaluate-every-steps", "1000000"]
HOW = {"ddp": ["--parallel", "ddp", "--micro-batches", "2"], "fsdp": ["--parallel", "fsdp", "--recompute", "1"]}
NUMBERS = ("loss_nats", "validation_loss_nats", "gradient_norm", "learning_rate")


def saved(folder):
    """(step, {step: NUMBERS}, weights and moments) of a run's last save."""
    with hold_run(folder) as run:
        checkpoint = run.load()
        groups = {"params": checkpoint.weights, "m": checkpoint.m, "v": checkpoint.v}
        tensors = {(region, name): bytes(tensor.view()) for region, group in groups.items() for name, tensor in group.items()}
        rows = {row["step"]: [row[key] for key in NUMBERS] for row in checkpoint.history}
        return checkpoint.step, rows, tensors


def far(one, other):
    """The largest difference of any number that both have: every step's loss, norm and rate, and validations where neither stopped."""
    assert one.keys() == other.keys()
    assert not any(None in (row[0], *row[2:]) for row in (*one.values(), *other.values()))
    pairs = [pair for step in one for pair in zip(one[step], other[step], strict=True)]
    return max(abs(a - b) for a, b in pairs if None not in (a, b))


@pytest.fixture(name="text", scope="module")
def text_of_lines(tmp_path_factory):
    """--data and its file."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text("".join(f"Line {number * number % 97}: all work and no play makes a dull boy.\n" for number in range(200)))
    return ["--data", str(text)]


@pytest.fixture(name="straight", scope="module")
def straight_run(text, tmp_path_factory):
    """The rows of a native run of 24 steps."""
    out = tmp_path_factory.mktemp("straight") / "run"
    train(*text, *TINY, "--threads", 1, "--steps", 24, "--out", out)
    return saved(out)[1]


@pytest.fixture(name="together", scope="module")
def run_together(text, tmp_path_factory):
    """What one start of two processes did, in a folder: {task: lines of its output as JSON}, the folder, standard error."""
    folder = tmp_path_factory.mktemp("together")
    train(*text, *TINY, "--threads", 1, "--steps", 2, "--out", folder / "begun")
    for name in ("idle", *HOW):
        shutil.copytree(folder / "begun", folder / name)
    kept = ["--save-every", "0.000001", "--out", folder / "own", "--export", folder / "own.safetensors"]
    tasks = {
        "idle": [*text, "--resume", "--out", folder / "idle", *HOW["fsdp"], "--steps", 2],
        **{name: [*text, "--resume", "--out", folder / name, *how, "--steps", 22] for name, how in HOW.items()},
        "own": [*text, *TINY, *kept, "--parallel", "fsdp", "--micro-batches", 4, "--steps", 8],
        "uneven": "uneven",
        "error": [*text, *TINY[:2], "--batch", "3"],
    }
    given = [task if isinstance(task, str) else ["--json", "--device", "cpu", *map(str, task)] for task in tasks.values()]
    (folder / "tasks.json").write_text(json.dumps(given))
    with torchrun.start(folder, module="tests.helpers.torchrun_many") as processes:
        _, error = processes.communicate(timeout=240)
    written = [folder / f"{number}.out" for number in range(len(tasks))]
    assert processes.returncode == 1 and written[-1].exists(), error
    return {name: [json.loads(line) for line in file.read_text().splitlines()] for name, file in zip(tasks, written)}, folder, error


def test_taking_a_run_over_and_saving_it_changes_no_bit(together):
    _, folder, _ = together
    assert saved(folder / "idle") == saved(folder / "begun")


@pytest.mark.parametrize("how", HOW)
def test_a_run_goes_through_two_processes_and_back(text, straight, together, how):
    events, folder, _ = together
    assert [event["event"] for event in events[how]].count("done") == 1 and "2 processes" in events[how][0]["engine"]
    assert saved(folder / how)[0] == 22
    train(*text, "--resume", "--out", folder / how, "--threads", 1, "--steps", 24)
    step, rows, _ = saved(folder / how)
    assert step == 24 and far(rows, straight) < 1e-4


def test_a_run_begins_in_two_processes_saves_and_exports(straight, together):
    events, folder, _ = together
    kinds = [event["event"] for event in events["own"]]
    assert kinds.count("saved") >= 7 and kinds[-1] == "done"
    step, rows, _ = saved(folder / "own")
    assert step == 8 and far(rows, {step: straight[step] for step in rows}) < 1e-4
    assert (folder / "own.safetensors").stat().st_size > 3 * 4 * 70_464


def test_targets_that_do_not_count_may_be_uneven_over_the_processes(together):
    """The mean is over all targets that count, not the mean of two means; nor does a micro-batch without any disturb it."""
    batches = uneven_batches()
    counts = [[int((np.frombuffer(targets, "<i4").reshape(2, -1)[half] >= 0).sum()) for half in (0, 1)] for _, targets in batches]
    assert all(3 * few < many for few, many in counts)
    model = GPT.create(UNEVEN, threads=1)
    wanted, mean_loss = uneven_steps(model), now(model.evaluate_batches_async(batches))
    model.close()
    found = together[0]["uneven"]
    assert [each["parallel"] for each in found] == ["ddp", "fsdp"]
    for each in found:
        assert len(each["steps"]) == UNEVEN_STEPS
        np.testing.assert_allclose(each["steps"], wanted, atol=1e-4, rtol=0)
        assert each["counted"] == sum(map(sum, counts)) and abs(each["mean_loss"] - mean_loss) < 1e-4


def test_an_error_is_said_once(together):
    events, _, error = together
    said = [line for line in error.splitlines() if line.startswith(("posttrainllm:", "process"))]
    assert len(said) == 1 and [event["event"] for event in events["error"]] == ["error"], error
    assert "the batch divides evenly over 2 processes x 1 micro-batches = 2 parts" in said[0] and "in _run\n" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_stops_after_the_step_and_saves(text, tmp_path, number):
    given = ["--json", "--device", "cpu", *text, "--out", tmp_path / "run", *TINY[:2], *ENDLESS]
    with torchrun.start(*given, "--parallel", "fsdp", "--sample-every", "1") as process:
        for line in process.stdout:  # a sample is written by all, and told by one
            if json.loads(line)["event"] == "sample":
                break
        process.send_signal(number)
        rest, error = process.communicate(timeout=300)
    *_, last, stopped, done = map(json.loads, rest.splitlines())
    assert [last["event"], stopped["reason"], done["event"]] == ["saved", "stopped", "done"], error
    step, rows, _ = saved(tmp_path / "run")
    assert step == done["step"] >= 1 and list(rows) == list(range(1, step + 1))
