"""The command line in this process: events, resume, sentences for every mistake."""

import json
import math
import struct

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.train.files import hold_run, read_checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.train.trainer import Trainer

from .calling import QUICK, SIZES, TEXT, call, saved_run, text_file, train  # noqa: F401 - two are fixtures

pytestmark = pytest.mark.native_only(reason="the command line is native")

FIELDS = {
    "start": set(
        "name step steps parameters config training corpus tokenizer device engine threads memory saving warnings at".split()
    ),
    "step": {"step", "loss_nats", "gradient_norm", "learning_rate", "tokens", "seconds", "bits_per_byte"},
    "eval": {"step", "validation_loss_nats", "best", "seconds", "bits_per_byte"},
    "sample": {"step", "prompt", "text"},
    "saved": {"step", "place", "nbytes", "seconds"},
    "snapshot": {"step", "nbytes", "seconds"},
    "stopped": {"step", "reason", "message"},
    "done": {"step", "train_loss_nats", "val_loss_nats", "val_bits_per_byte", "tokens_per_second", "weights_sha256"},
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
    assert (
        done["val_loss_nats"] == [e for e in events if e["event"] == "eval"][-1]["validation_loss_nats"] < math.log(256)
    )
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
    for word in (
        "float64 reference",
        "fox.txt",
        "step 2  loss ",
        "step 4  loss ",
        "tokens/s",
        "Finished: 4 steps are done.",
        "weights ",
    ):
        assert word in out


def test_snapshots_stay_in_the_runs_folder_when_it_is_resumed(text, tmp_path):
    where = ("--out", tmp_path / "run", "--device", "cpu", "--threads", 1, "--snapshots")
    events = train(*text, *SIZES, *QUICK, "--steps", 20, *where)
    assert [event["step"] for event in events if event["event"] == "snapshot"] == [0, 16]
    events = train(*text, "--steps", 34, "--resume", *where)
    assert [event["step"] for event in events if event["event"] == "snapshot"] == [32]
    with hold_run(tmp_path / "run") as run:
        assert run.snapshots.steps() == [0, 16, 32] and run.load().step == 34


def test_an_exported_run_goes_on_in_a_folder(text, tmp_path):
    export, out = tmp_path / "from the page.safetensors", tmp_path / "grown"
    straight = train(*text, *SIZES, *QUICK, "--steps", 6)[-1]
    train(*text, *SIZES, *QUICK, "--steps", 4, "--export", export, "--name", "Grown")
    given = [*text, "--from", export, "--out", out]
    assert "add it" in call("train", *given, status=1)[1] and not out.exists()
    assert train(*given, "--resume", "--steps", 6)[-1]["weights_sha256"] == straight["weights_sha256"]
    with hold_run(out) as run:
        assert run.name == "Grown" and run.load().step == 6
    assert "is a new run's folder" in call("train", *given, "--resume", status=1)[1]
