"""The command line in this process: events, resume, sentences for every mistake, sample, bench, explain."""

import json
import math
import struct

import pytest

typer = pytest.importorskip("typer", reason="the command line is native")

from typer.testing import CliRunner

from posttrainllm.cli import app
from posttrainllm.configs import load
from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import training_step
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.train.files import hold_run, read_checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.train.trainer import Trainer

pytestmark = pytest.mark.native_only(reason="the command line is native")

SIZES = ["--preset", "tiny", "--layers", "1", "--channels", "16", "--heads", "2", "--context", "8", "--batch", "4"]
QUICK = ["--learning-rate", "0.01", "--warmup-steps", "3", "--evaluation-tokens", "64", "--seed", "7"]
TEXT = "The quick brown fox jumps over the lazy dog; pack my box with five dozen jugs. " * 30


@pytest.fixture
def text(tmp_path):
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


FIELDS = {
    "start": {"name", "step", "steps", "parameters", "config", "training", "corpus", "device", "engine", "threads", "memory", "warnings", "at"},
    "step": {"step", "loss_nats", "gradient_norm", "learning_rate", "tokens", "seconds"},
    "eval": {"step", "validation_loss_nats", "best", "seconds"},
    "sample": {"step", "prompt", "text"},
    "saved": {"step", "place", "nbytes", "seconds"},
    "stopped": {"step", "reason", "message"},
    "done": {"step", "train_loss_nats", "val_loss_nats", "tokens_per_second", "weights_sha256"},
    "error": {"code", "message", "kind"},
}


def test_events_have_their_fields_and_done_is_last(text, tmp_path):
    events = train(*text, *SIZES, *QUICK, "--steps", 12, "--evaluate-every-steps", 5, "--sample-every", 1e-9, "--out", tmp_path / "run",
                   "--save-every", 1e-9, "--device", "cpu", "--threads", 1)  # fmt: skip
    for event in events:
        assert set(event) == FIELDS[event["event"]] | {"event"}, event
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["start", "eval"] and kinds[-2:] == ["stopped", "done"]
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, 13))
    assert [event["step"] for event in events if event["event"] == "eval"] == [0, 5, 10, 12]
    assert kinds.count("sample") == 12 and kinds.count("saved") == 12
    start, done = events[0], events[-1]
    assert start["config"]["channels"] == 16 and start["training"]["learning_rate"] == 0.01 and start["threads"] == 1
    assert start["corpus"]["sha256"] == Corpus.from_text(TEXT).sha256 and start["device"] == "cpu"
    assert done["step"] == 12 and done["train_loss_nats"] == steps[-1]["loss_nats"]
    assert done["val_loss_nats"] == [e for e in events if e["event"] == "eval"][-1]["validation_loss_nats"] < math.log(256)
    assert done["tokens_per_second"] == pytest.approx(12 * 32 / sum(event["seconds"] for event in steps))
    with hold_run(tmp_path / "run") as run:
        assert weights_sha256(run.load().weights) == done["weights_sha256"]


def test_a_hundred_steps_are_fifty_and_fifty_on_any_threads_and_width(text, tmp_path):
    common = [*text, *SIZES, *QUICK]
    straight = train(*common, "--steps", 100, "--threads", 2)[-1]
    train(*common, "--steps", 50, "--threads", 1, "--out", tmp_path / "run")
    events = train(*common, "--steps", 100, "--threads", 2, "--isa", "sse2", "--out", tmp_path / "run", "--resume")
    assert events[-1]["weights_sha256"] == straight["weights_sha256"]
    assert [event["step"] for event in events if event["event"] == "step"] == list(range(51, 101))
    assert "SSE2" in events[0]["engine"]


def test_export_writes_the_whole_run(text, tmp_path):
    path = tmp_path / "fox.safetensors"
    done = train(*text, *SIZES, *QUICK, "--steps", 5, "--export", path, "--name", "A fox")[-1]
    checkpoint = read_checkpoint(path)
    assert checkpoint.name == "A fox" and checkpoint.resumable and checkpoint.step == 5
    assert weights_sha256(checkpoint.weights) == done["weights_sha256"]
    assert [file.name for file in tmp_path.iterdir()].count(path.name) == 1


@pytest.fixture
def saved(text, tmp_path):
    """A run of six steps in tmp_path/run."""
    out = ["--out", str(tmp_path / "run")]
    return [*out, *text], train(*text, *SIZES, *QUICK, "--steps", 6, *out)[-1]


def test_a_run_goes_on_without_repeating_its_options(saved):
    given, done = saved
    events = train(*given, "--resume")
    assert events[-1] == done | {"tokens_per_second": None}, "it is at its --steps: nothing to do is no error"
    events = train(*given, "--resume", "--steps", 8, *SIZES, *QUICK)
    assert events[0]["step"] == 6 and events[-1]["step"] == 8
    assert train(*given, "--resume")[-1]["step"] == 8, "the new --steps was saved"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--learning-rate", "0.02"], "learning_rate 0.01; --learning-rate 0.02 came"),
        (["--seed", "8"], "--seed 8 came"),
        (["--channels", "32"], "channels 16; --channels 32 came"),
        (["--preset", "small"], "--preset small with layers 3 came"),
        (["--steps", "3"], "the run is at step 6; 3 came"),
    ],
)
def test_an_option_that_contradicts_the_run_is_refused(saved, option, said):
    given, done = saved
    out, error = call("train", "--json", *given, "--resume", *option, status=1)
    assert said in error and json.loads(out)["event"] == "error"
    assert train(*given, "--resume")[-1]["weights_sha256"] == done["weights_sha256"], "nothing saved is harmed"


def test_another_text_is_refused_with_both_names(saved, tmp_path):
    other = tmp_path / "cat.txt"
    other.write_text(TEXT.replace("fox", "cat"))
    _, error = call("train", *saved[0][:2], "--data", other, "--resume", status=1)
    assert "'fox.txt'" in error and "'cat.txt'" in error and Corpus.from_text(TEXT).sha256 in error
    _, error = call("train", *saved[0][:2], "--resume", status=1)
    assert "add --data FILE" in error


def test_a_run_is_not_overwritten_unless_it_is_resumed(saved):
    _, error = call("train", *saved[0], *SIZES, "--steps", 3, status=1)
    assert "add --resume" in error


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--data", "EMPTY"], "E-DATA-EMPTY", "is empty"),
        (["--data", "BINARY"], "E-DATA-ENCODING", "binary"),
        (["--data", "none.txt"], "E-DATA", "none.txt"),
        (["--data", "SHORT"], "E-DATA-SHORT", "at least one window"),
        (["--preset", "vast"], "E-CONFIG", "tiny, small"),
        (["--heads", "3"], "E-CONFIG", "heads divide channels"),
        (["--layers", "0"], "E-CONFIG", "layers is a whole number"),
        (["--clip", "-1"], "E-CONFIG", "clip is a number"),
        (["--warmup-steps", "5000"], "E-CONFIG", "smaller than decay_steps"),
        (["--resume"], "E-CONFIG", "no --out came"),
        (["--out", "none", "--resume"], "E-STORE-MISSING", "run none"),
        (["--out", "a b"], "E-CONFIG", "choose another name"),
        (["--out", "SHORT"], "E-STORE", "SHORT"),
        (["--isa", "abacus"], "E-DEVICE-UNAVAILABLE", "abacus"),
        (["--export", "no/such/file", "--steps", "1"], "E-STORE", "no/such/file"),
    ],
)
def test_every_mistake_is_one_sentence_and_exit_status_one(text, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").write_bytes(b"")
    (tmp_path / "BINARY").write_bytes(b"\x7fELF\0\0\0")
    (tmp_path / "SHORT").write_text("Too short.")
    out, error = call("train", "--json", *text, *SIZES, *arguments, status=1)
    event = json.loads(out.splitlines()[-1])
    assert event["event"] == "error" and event["code"] == code and said in event["message"]
    assert error == f"posttrainllm: {event['message']}\n"
    left = {path.name for path in tmp_path.iterdir()} - {"EMPTY", "BINARY", "SHORT", "fox.txt"}
    assert not left, "a run that cannot begin leaves nothing behind"


@pytest.mark.parametrize("arguments", [["train", "--steps", "many"], ["train", "--threads", "0"], ["explain", "--stage", "ast"], ["sample"],
                                       ["dance"], ["train", "--fast"]])  # fmt: skip
def test_usage_errors_have_exit_status_two(arguments):
    _, error = call(*arguments, status=2)
    assert "Usage: " in error


def test_numbers_that_are_not_finite_end_the_run_and_keep_the_save(text, tmp_path):
    config = GPTConfig(1, 16, 2, 8, 256, 4)
    model = GPT.create(config, seed=1, device="cpu", threads=1)
    model.set_weight_bytes("ln_f.bias", struct.pack("<16f", *[math.nan] * 16))
    with hold_run(tmp_path / "bad", create="bad") as run:
        run.save(checkpoint_of(Trainer(model, Corpus.from_file(text[1])), "bad"))
    events = train(*text, "--out", tmp_path / "bad", "--resume", status=1)
    assert events[1]["validation_loss_nats"] is None, "NaN is no JSON"
    assert events[-2]["reason"] == "nonfinite" and events[-1]["event"] == "error" and "step 1" in events[-1]["message"]
    with hold_run(tmp_path / "bad") as run:
        assert run.load().step == 0


def test_plain_output_tells_the_same(text):
    out, _ = call("train", *text, *SIZES, *QUICK, "--steps", 4, "--evaluate-every-steps", 2, "--device", "reference")
    for word in ("float64 reference", "fox.txt", "step 2  loss ", "step 4  loss ", "tokens/s", "Finished: 4 steps are done.", "weights "):
        assert word in out


def test_sample_writes_from_a_folder_and_from_a_file(saved, tmp_path):
    path = tmp_path / "x.safetensors"
    train(*saved[0], "--resume", "--export", path)
    how = ["--prompt", "The ", "--tokens", "30", "--seed", "3"]
    text, _ = call("sample", "--from", tmp_path / "run", *how)
    assert text.startswith("The ") and len(text) > 10
    assert call("sample", "--from", path, *how)[0] == text
    assert call("sample", "--from", path, *how[:-1], "4")[0] != text
    events = [json.loads(line) for line in call("sample", "--from", path, *how, "--json")[0].splitlines()]
    done = events[-1]
    assert "The " + done["text"] + "\n" == text and done["reason"] == "length" and done["tokens"] == 30
    assert "".join(event["text"] for event in events[:-1]) == done["text"]
    assert set(done) == {"event", "prompt", "text", "tokens", "reason", "seconds", "first_token_seconds", "tokens_per_second"}
    stop = done["text"][3]
    stopped = json.loads(call("sample", "--from", path, *how, "--stop", stop, "--json")[0].splitlines()[-1])
    assert stopped["reason"] == "stop" and stop not in stopped["text"]
    for wrong in (["--temperature", "-1"], ["--top-p", "0"], ["--tokens", "0"], ["--prompt", ""]):
        call("sample", "--from", path, *wrong, status=1)
    assert "reading" in call("sample", "--from", tmp_path / "none", status=1)[1]
    assert "E-FORMAT" in call("sample", "--from", tmp_path / "fox.txt", "--json", status=1)[0]


def test_bench_measures_what_it_says():
    out, _ = call("bench", "--preset", "tiny", "--batch", 2, "--steps", 5, "--warmup-steps", 1, "--json", "--device", "cpu", "--threads", 2)
    found = json.loads(out)
    flops = training_step(GPTConfig.preset("tiny", batch=2)).plan.graph.flops()
    assert found["flops_per_step"] == flops and found["steps"] == 5 and found["warmup_steps"] == 1 and found["threads"] == 2
    assert found["ms_per_step_min"] <= found["ms_per_step"] <= found["ms_per_step_max"]
    assert found["tokens_per_second"] == pytest.approx(2 * 32 / found["ms_per_step"] * 1e3)
    assert found["gflops"] == pytest.approx(flops / found["ms_per_step"] / 1e6)
    assert {"host", "engine", "preset", "memory_bytes"} <= set(found)
    assert "median of 5" in call("bench", "--preset", "tiny", "--batch", 2, "--steps", 5, "--device", "reference")[0]


@pytest.mark.parametrize("of", ["step", "evaluation", "writing", "initial"])
@pytest.mark.parametrize("stage", ["graph", "plan", "tape"])
def test_explain_prints_every_stage_of_every_tape(stage, of):
    arguments = ["explain", "--preset", "tiny", "--stage", stage, "--pass", of]
    text, _ = call(*arguments)
    assert text.startswith({"graph": "Graph", "plan": "Plan", "tape": "Tape"}[stage])
    tables = [json.loads(line) for line in call(*arguments, "--json")[0].splitlines()]
    assert all(len(row) == len(table["columns"]) for table in tables for row in table["rows"])
    if of == "step":
        made = training_step(GPTConfig.preset("tiny"))
        nodes = {"graph": len(made.plan.graph.nodes), "plan": len(made.plan.arena), "tape": len(made.tape)}[stage]
        assert len(tables[0]["rows"]) == nodes
    if stage == "graph":
        assert sum(row[-1] for row in tables[0]["rows"]) == sum(row[2] for row in tables[1]["rows"])


def test_help_names_every_setting_with_its_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    out, _ = call("train", "--help")
    for name, value in load("training").items():
        (line,) = [line for line in out.splitlines() if f"--{name.replace('_', '-')} " in line]
        assert f"{value:g}" in line, line
    assert "--isa" not in out and "train" in call("--help")[0]
    assert call("--version")[0].strip()
