"""The command line as a process: Ctrl-C, SIGTERM, kill -9 in mid-save, a reader that leaves, a terminal."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.native_only(reason="starts processes")
pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.lora import Adapter
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.store.slots import PAGE_BYTES, SLOT_FILES, decode_page
from posttrainllm.train.files import hold_run

TEXT = "".join(f"Line {number}: all work and no play makes a dull boy.\n" for number in range(200))
SIZES = ["--preset", "tiny", "--layers", "1", "--channels", "16", "--heads", "2", "--context", "8", "--batch", "4"]
LARGER = [
    "--preset",
    "small",
    "--context",
    "16",
    "--batch",
    "1",
]  # 4 MB a save, a few ms a step: most of its time is saving
FOREVER = ["--steps", "1000000", "--evaluation-tokens", "64", "--evaluate-every-steps", "1000000", "--threads", "1"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "dull.txt"
    path.write_text(TEXT)
    return ["--data", str(path)]


def start(*arguments, **how):
    command = [sys.executable, "-m", "posttrainllm", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def finished(*arguments):
    """Run `train --json` to its end; the last event."""
    with start("train", "--json", *arguments) as process:
        out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


def read_until(process, wanted):
    """Read events until one for which `wanted` holds."""
    for line in process.stdout:
        event = json.loads(line)
        if wanted(event):
            return event
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_saves_and_the_run_goes_on_exactly(text, tmp_path, number):
    given = [*text, "--out", tmp_path / "run"]
    with start("train", "--json", *given, *SIZES, *FOREVER) as process:
        read_until(process, lambda event: event.get("step", 0) >= 5)
        process.send_signal(number)
        rest, error = ending(process)
    assert process.returncode == 128 + number and "Traceback" not in error
    *_, saved, stopped, done = map(json.loads, rest.splitlines())
    assert [saved["event"], stopped["reason"], done["event"]] == ["saved", "stopped", "done"]
    with hold_run(tmp_path / "run") as run:
        checkpoint = run.load()
        assert checkpoint.step == done["step"] >= 5
        assert weights_sha256(checkpoint.weights) == done["weights_sha256"]
    until = str(done["step"] + 7)
    straight = finished(*text, *SIZES, *FOREVER, "--steps", until)
    assert finished(*given, "--resume", "--steps", until)["weights_sha256"] == straight["weights_sha256"]


def ending(process):
    """(stdout, stderr) from here to the end of a process of which lines were read before (communicate would lose some)."""
    rest = process.stdout.read(), process.stderr.read()
    process.wait(timeout=60)
    return rest


def slot_states(folder):
    """What the two slots' header pages say."""
    states = []
    for name in SLOT_FILES:
        data = (folder / name).read_bytes()[:PAGE_BYTES] if (folder / name).exists() else b""
        states.append(decode_page(data).state if data else "blank")
    return states


def test_kill_in_mid_save_loses_no_good_save_and_no_bit(text, tmp_path):
    """Killed again and again, most times while a slot is half written; it goes on each time, to the same weights."""
    folder = tmp_path / "run"
    given, torn, reached = [*text, "--out", folder, "--save-every", "0.000001"], 0, 0
    for attempt in range(12):
        more = ["--resume"] if attempt else [*LARGER, *FOREVER]
        with start("train", "--json", *given, *more) as process:
            last = read_until(process, lambda event, seen=reached: event["event"] == "saved" and event["step"] > seen)
            time.sleep(0.003 * (attempt % 5))
            process.kill()
            rest, _ = ending(process)
        assert process.returncode == -signal.SIGKILL
        for line in rest.splitlines():
            with contextlib.suppress(ValueError):  # the last line may be cut
                event = json.loads(line)
                last = event if event["event"] == "saved" else last
        with hold_run(folder) as run:
            step = run.load().step
        assert step >= last["step"], "a save that was reported is there"
        reached, torn = step, torn + (slot_states(folder).count("good") == 1)
        if torn >= 3 and attempt >= 3:
            break
    assert torn >= 2, "the kills must have met saves under way, or this test shows nothing"
    until = str(reached + 2)
    straight = finished(*text, *LARGER, *FOREVER, "--steps", until)
    assert finished(*given, "--resume", "--steps", until)["weights_sha256"] == straight["weights_sha256"]


def test_a_kill_before_the_first_minute_leaves_a_run_to_resume(text, tmp_path):
    given = [*text, "--out", tmp_path / "run"]
    with start("train", "--json", *given, *SIZES, *FOREVER) as process:
        read_until(process, lambda event: event["event"] == "step")
        process.kill()
        ending(process)
    straight = finished(*text, *SIZES, *FOREVER, "--steps", "3")
    assert finished(*given, "--resume", "--steps", "3")["weights_sha256"] == straight["weights_sha256"]


def test_a_second_process_is_told_that_the_run_is_busy(text, tmp_path):
    given = [*text, "--out", tmp_path / "run"]
    with start("train", "--json", *given, *SIZES, *FOREVER) as process:
        read_until(process, lambda event: event["event"] == "step")
        for command in (["train", "--json", *given, "--resume"], ["sample", "--json", "--from", tmp_path / "run"]):
            with start(*command) as second:
                out, _ = second.communicate(timeout=60)
            assert second.returncode == 1 and json.loads(out.splitlines()[-1])["code"] == "E-STORE-BUSY"
        process.send_signal(signal.SIGINT)
        ending(process)


def test_a_reader_that_leaves_ends_the_run_with_a_save(text, tmp_path):
    with start("train", "--json", *text, "--out", tmp_path / "run", *SIZES, *FOREVER) as process:
        read_until(process, lambda event: event.get("step", 0) >= 3)
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE and "Traceback" not in error and "BrokenPipe" not in error
    with hold_run(tmp_path / "run") as run:
        assert run.load().step >= 3


def test_a_reader_that_leaves_does_not_lose_the_adapter(text, tmp_path):
    finished(*text, *SIZES, *FOREVER[2:], "--steps", "1", "--export", tmp_path / "base.safetensors")
    how = ["--from", tmp_path / "base.safetensors", *text, *FOREVER, "--out", tmp_path / "ad", "--merge", tmp_path / "merged.safetensors"]
    with start("lora", "--json", *how) as process:
        read_until(process, lambda event: event.get("step", 0) >= 3)
        process.stdout.close()
        error = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE and "Traceback" not in error and "BrokenPipe" not in error
    assert Adapter.load(tmp_path / "ad").name == "ad" and (tmp_path / "merged.safetensors").exists()


def test_on_a_terminal_a_bar_shows_loss_speed_and_time_left(text, tmp_path):
    import pty

    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    environment.pop("CI", None)
    command = [
        sys.executable,
        "-m",
        "posttrainllm",
        "train",
        *text,
        *SIZES,
        *FOREVER[2:],
        "--steps",
        "40",
        "--sample-every",
        "1e-9",  # after every step: how long a step takes must not matter
    ]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment) as process:
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal ends with the process
            while piece := os.read(parent, 65536):
                shown += piece
    os.close(parent)
    screen = shown.decode()
    assert process.returncode == 0
    for word in (
        "40/40",
        "loss ",
        "validation ",
        "tokens/s",
        "0:00:00",
        "Finished: 40 steps are done.",
        "--- step ",
    ):
        assert word in screen, screen[-2000:]


def test_a_second_interrupt_ends_at_once():
    from posttrainllm.cli_train import Interrupt

    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert interrupt.asked() == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked() == "stop"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert signal.getsignal(signal.SIGINT) is before
