"""The command line in this process: memorise."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

import posttrainllm as pt
from posttrainllm.train.files import hold_run

from .calling import call, train
from .study.test_memorise import CORPUS, TEXT

pytestmark = pytest.mark.native_only(reason="the command line is native")

SIZES = ["--preset", "tiny", "--layers", "2", "--channels", "64", "--heads", "4", "--context", "32", "--batch", "16"]
HEART = ["--learning-rate", "0.006", "--warmup-steps", "20", "--decay-steps", "800", "--weight-decay", "0", "--evaluation-tokens", "64",
         "--validation-fraction", "0.4", "--seed", "1", "--threads", "1"]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with words.txt, a run that learned its training part by heart, and one that learned little."""
    folder = tmp_path_factory.mktemp("memorise")
    (folder / "words.txt").write_text(TEXT)
    data = ["--data", folder / "words.txt"]
    train(*data, *SIZES, *HEART, "--steps", 800, "--evaluate-every-steps", 800, "--out", folder / "by-heart")
    train(*data, *SIZES, *HEART, "--steps", 3, "--export", folder / "little.safetensors")
    return folder


def events(place, *arguments):
    out, _ = call("memorise", "--json", "--data", place / "words.txt", *arguments)
    return [json.loads(line) for line in out.splitlines()]


def test_json_has_every_probe_and_the_numbers(place):
    told = events(place, "--from", place / "by-heart", "--prefixes", 16, "--continuation-tokens", 12, "--span-bytes", 8)
    probes, last = told[:-1], told[-1]
    assert {event["event"] for event in probes} == {"probe"} and len(probes) == 64 and last["event"] == "memorised"
    assert [subject["name"] for subject in last["subjects"]] == ["the run", "prompt only"]
    run = last["subjects"][0]
    assert run["verdict"]["kind"] == "memorised" and run["training"]["exact_rate"] >= 0.9 and run["held_out"]["exact_rate"] <= 0.1
    assert last["training_bytes"] == CORPUS.split, "the run's own validation fraction"
    assert (last["prefix_tokens"], last["continuation_tokens"], last["span_bytes"]) == (16, 12, 8)
    exact = [event for event in probes if event["subject"] == "the run" and event["group"] == "training" and event["exact"]]
    for event in exact:
        (span,) = event["spans"]
        assert TEXT[span["at"] : span["at"] + 12] == event["output"] == event["truth"] and event["pieces"] == [[event["output"], 0]]


def test_the_table_says_it_in_words(place):
    out, _ = call("memorise", "--from", place / "by-heart", "--data", place / "words.txt", "--prefixes", 16, "--no-prompt-only",
                  "--continuation-tokens", 12, "--span-bytes", 10, "--examples", 2)  # fmt: skip
    flat = " ".join(out.split())
    assert "the run: Memorised: 1" in flat and "of 16 training prefixes bring back their exact next 12 tokens" in flat
    assert "prompt only" not in out and "held out" in out and "bits/byte" in out and out.count("[line 1") == 2
    out, error = call("memorise", "--from", place / "little.safetensors", "--data", place / "words.txt", "--prefixes", 16, "--examples", 0)
    assert "the run: No sign of memorisation: 0 of 16" in " ".join(out.split()) and "Copied" not in out and not error


def test_an_adapter_is_asked_beside_its_base(place, tmp_path):
    model = pt.GPT.load(place / "little.safetensors", device="cpu", threads=1)
    tuned = pt.lora(model, rank=16, alpha=32, targets=("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"))
    settings = {"steps": 30, "learning_rate": 1e-2, "warmup_steps": 3, "evaluation_tokens": 64}
    trainer = pt.Trainer(tuned, CORPUS, settings)
    list(trainer.run())
    tuned.adapter.save(tmp_path / "words-adapter")
    last = events(place, "--from", place / "little.safetensors", "--adapter", tmp_path / "words-adapter", "--prefixes", 16)[-1]
    names = [subject["name"] for subject in last["subjects"]]
    assert names[:2] == ["base", "prompt only"] and len(names) == 3
    bits = [subject["training"]["bits_per_byte"] for subject in last["subjects"]]
    assert bits[2] < bits[0] - 0.2, "it learned a little of the words"
    with hold_run(tmp_path / "words-run", create="words") as run:
        run.save(pt.checkpoint_of(trainer, "words"))
    again = events(place, "--from", place / "little.safetensors", "--adapter", tmp_path / "words-run", "--prefixes", 16)[-1]
    assert [subject["training"]["bits_per_byte"] for subject in again["subjects"]] == bits, "an adapter's run is as good as its folder"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from", "by-heart"], "E-CONFIG", "trained on 'words.txt', and no --data came; add --data FILE"),
        (["--from", "by-heart", "--data", "words.txt", "--prefixes", "3"], "E-CONFIG", "3 came"),
        (["--from", "by-heart", "--data", "words.txt", "--prefix-tokens", "40"], "E-CONFIG", "prefix_tokens"),
        (["--from", "by-heart", "--data", "words.txt", "--prefix-tokens", "24"], "E-CONFIG", "32 tokens came; shorten them, or add --no-prompt-only"),
        (["--from", "by-heart", "--data", "words.txt", "--prefix-tokens", "30"], "E-CONFIG", "0 + 38 tokens came; shorten them."),
        (["--from", "by-heart", "--data", "words.txt", "--adapter", "by-heart"], "E-DATA", "is a whole model's run"),
        (["--from", "by-heart", "--data", "words.txt", "--validation-fraction", "0.01"], "E-DATA-SHORT", "held out text"),
        (["--from", "nowhere", "--data", "words.txt"], "E-DATA", "nowhere"),
    ],
)
def test_mistakes_are_sentences(place, arguments, code, said):
    given = [place / part if (place / part).exists() or part == "nowhere" else part for part in arguments]
    out, error = call("memorise", "--json", *given, status=1)
    assert said in error and json.loads(out.splitlines()[-1])["code"] == code


def test_another_text_is_told(place, tmp_path):
    (tmp_path / "other.txt").write_text(TEXT + "!")
    _, error = call("memorise", "--from", place / "little.safetensors", "--data", tmp_path / "other.txt", "--prefixes", 8, "--no-prompt-only",
                    "--validation-fraction", 0.4)  # fmt: skip
    assert "trained on 'words.txt', and this is other.txt" in error
