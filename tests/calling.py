"""Calls of the command line in this process, for its tests."""

import json

import pytest
from typer.testing import CliRunner

from posttrainllm.cli import app

SIZES = ["--preset", "tiny", "--layers", "1", "--channels", "16", "--heads", "2", "--context", "8", "--batch", "4"]
QUICK = ["--learning-rate", "0.01", "--warmup-steps", "3", "--evaluation-tokens", "64", "--seed", "7"]
TEXT = "The quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. " * 30


@pytest.fixture(name="text")
def text_file(tmp_path):
    """--data and a file of 2,400 bytes."""
    path = tmp_path / "fox.txt"
    path.write_text(TEXT)
    return ["--data", str(path)]


def call(*arguments, status=0):
    """Run a command; returns (stdout, stderr)."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def train(*arguments, status=0):
    """`train --json`; returns the events."""
    out, _ = call("train", "--json", *arguments, status=status)
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(name="saved")
def saved_run(text, tmp_path):
    """(--out and --data, the last event) of a run of six steps in tmp_path/run."""
    out = ["--out", str(tmp_path / "run")]
    return [*out, *text], train(*text, *SIZES, *QUICK, "--steps", 6, *out)[-1]
