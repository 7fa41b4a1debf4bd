"""`lora` and `sample --adapter`: an adapter from a saved run and back, resumed, merged; a sentence for every contradiction."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.live import GPT
from posttrainllm.model.lora import Adapter
from posttrainllm.train.files import opened
from posttrainllm.store.checkpoint import weights_sha256

from .calling import SIZES, call, saved_run, text_file, train  # noqa: F401 - two are fixtures

pytestmark = pytest.mark.native_only(reason="the command line is native")

OTHER = "Six big juicy steaks sizzled in a pan as five workmen left the quarry. " * 30


@pytest.fixture
def run(saved, tmp_path):
    return tmp_path / "run"


@pytest.fixture
def other(tmp_path):
    path = tmp_path / "steaks.txt"
    path.write_text(OTHER)
    return ["--data", str(path), "--evaluation-tokens", "64"]


def lora(run, *arguments, status=0):
    """`lora --json`; returns the events."""
    out, _ = call("lora", "--from", run, "--device", "cpu", "--json", *arguments, status=status)
    return [json.loads(line) for line in out.splitlines()]


def text_of(source, *arguments):
    return call("sample", "--from", source, "--tokens", 12, "--temperature", 0, *arguments)[0]


def test_an_adapter_is_trained_and_written_with(run, other, tmp_path):
    with opened(run) as checkpoint:
        before = weights_sha256(checkpoint.weights)
    events = lora(run, *other, "--steps", 8, "--out", tmp_path / "ad", "--learning-rate", 0.1)
    start, done = events[0], events[-1]
    assert start["adapter"] == {"rank": 4, "alpha": 8, "targets": ["attn.q", "attn.v"], "rslora": False}
    assert start["trainable"] == 256 and start["base_sha256"] == before
    assert start["training"]["decay_steps"] == 8 and start["training"]["weight_decay"] == 0.0
    assert [event["event"] for event in events if event["event"] != "step"] == ["start", "eval", "eval", "stopped", "done"]
    assert sum(event["event"] == "step" for event in events) == 8 and done["step"] == 8
    with opened(run) as checkpoint:
        assert weights_sha256(checkpoint.weights) == before, "the base is only read"
    adapter = Adapter.load(tmp_path / "ad")
    assert adapter.name == "ad" and adapter.base_sha256 == before and adapter.parameter_count == 256
    plain = text_of(run)
    assert text_of(run, "--adapter", tmp_path / "ad", "--strength", 0) == plain
    assert text_of(run, "--adapter", tmp_path / "ad", "--strength", 40) != plain


def test_fifty_and_fifty(run, other, tmp_path):
    how = [*other, "--warmup-steps", 2, "--decay-steps", 20, "--target", "mlp.fc", "--target", "attn.qkv", "--rank", 2, "--rslora"]
    whole = lora(run, *how, "--steps", 10, "--out", tmp_path / "whole")[-1]
    lora(run, *how, "--steps", 5, "--export", tmp_path / "half.safetensors")
    again = lora(run, *other[:2], "--resume", tmp_path / "half.safetensors", "--steps", 10, "--out", tmp_path / "again")
    assert again[0]["step"] == 5 and again[0]["adapter"]["targets"] == ["attn.qkv", "mlp.fc"] and again[0]["adapter"]["rslora"]
    assert again[-1]["weights_sha256"] == whole["weights_sha256"]
    assert Adapter.load(tmp_path / "again").weights == Adapter.load(tmp_path / "whole").weights
    half = text_of(run, "--adapter", tmp_path / "half.safetensors", "--strength", 50)
    assert half != text_of(run), "a saved run is an adapter too"


def test_merging_gives_a_model_like_any_other(run, other, tmp_path):
    lora(run, *other, "--steps", 8, "--out", tmp_path / "ad", "--learning-rate", 0.1, "--merge", tmp_path / "merged.safetensors", "--strength", 30)
    later = lora(run, "--adapter", tmp_path / "ad", "--merge", tmp_path / "later.safetensors", "--strength", 30)
    assert [event["event"] for event in later] == ["merged"] and later[0]["strength"] == 30
    one, two = (GPT.load(tmp_path / name, device="cpu") for name in ("merged.safetensors", "later.safetensors"))
    assert one.lora is None and one.weights_sha256() == two.weights_sha256()
    assert text_of(tmp_path / "merged.safetensors") == text_of(run, "--adapter", tmp_path / "ad", "--strength", 30) != text_of(run)
    one.close()
    two.close()


def test_plain_lines_say_what_is_trained(run, other, tmp_path):
    out, said = call("lora", "--from", run, *other, "--steps", 3, "--out", tmp_path / "ad")
    assert "An adapter of 256 parameters" in said and f"Saved in {tmp_path / 'ad'}" in said and "step 3" in out


def test_the_text_is_judged_by_what_is_trained_and_its_share_told_one_way(run, other, tmp_path):
    half = [*other, "--validation-fraction", 0.5, "--steps", 1]
    assert "1,065 training tokens against 7,536 parameters" in train(*half, *SIZES)[0]["warnings"][0]
    assert not lora(run, *half, "--out", tmp_path / "ad")[0]["warnings"], "too few for 7,536, but not for 256"
    (sentence,) = lora(run, *half, "--rank", 64, "--target", "mlp.fc", "--out", tmp_path / "large")[0]["warnings"]
    assert "against 5,120 parameters" in sentence
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": "fox", "response": "dog"}))
    _, one = call("lora", "--from", run, *other, "--steps", 1, "--out", tmp_path / "one")
    two, _ = call("sft", "--from", run, "--pairs", tmp_path / "pairs.jsonl", "--steps", 1, "--out", tmp_path / "two")
    share = f"{256 / (7536 + 256):.2%} of all"
    assert share in one and share in two
    assert "pairs.jsonl: 1 row, 0 held out, 5 tokens" in two
    whole, _ = call("sft", "--from", run, "--pairs", tmp_path / "pairs.jsonl", "--steps", 1, "--full", "--out", tmp_path / "w.safetensors")
    assert "all weights: 7,536 numbers, 100.00% of all" in whole


def test_the_readme_gives_the_time_that_was_measured():
    root = Path(__file__).parent.parent
    told = re.search(r"its steps\s+([\d.]+) of a full step's time on the CPU \(([\d.]+) on an H200\)", (root / "README.md").read_text())
    log = (root / "docs" / "log.md").read_text()
    assert f"| medium, 2 threads | 30.8 ms | 22.2 ms | {told[1]} (" in log
    full, adapter = map(float, re.search(r"\| ms a step \| [\d.]+ \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|\n\| GPU memory, MB \| 3,939", log).groups())
    assert float(told[2]) == round(adapter / full, 2)


WRONG = [
    ([], "there is a text to train on"),
    (["--data", "x"], "no --out came"),
    (["--adapter", "ad", "--merge", "m", "--steps", "3"], "an option for training came"),
    (["--data", "x", "--adapter", "ad", "--rank", "2", "--out", "o"], "--rank came with --adapter"),
    (["--resume", "r", "--learning-rate", "0.1", "--out", "o"], "a run that goes on keeps its settings"),
    (["--data", "shakespeare", "--rank", "0", "--out", "o"], "rank is a whole number"),
    (["--data", "shakespeare", "--target", "attn.o", "--out", "o"], "attn.o came"),
    (["--data", "shakespeare", "--strength", "0.5", "--out", "o"], "no --merge came"),
    (["--resume", "r", "--any-base", "--out", "o"], "a run goes on with its own base"),
    (["--adapter", "nowhere", "--merge", "m"], "it is a folder with adapter_model.safetensors"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_a_mistake_is_a_sentence(run, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, said = call("lora", "--from", run, *options, status=1)
    assert message in said


def test_another_base_is_refused_or_said(run, other, tmp_path):
    lora(run, *other, "--steps", 2, "--export", tmp_path / "half.safetensors", "--merge", tmp_path / "merged.safetensors", "--strength", 30)
    events = lora(tmp_path / "merged.safetensors", *other[:2], "--resume", tmp_path / "half.safetensors", "--out", tmp_path / "o", status=1)
    assert events[-1]["event"] == "error" and "made on the weights with sha256" in events[-1]["message"]
    elsewhere = ["--from", tmp_path / "merged.safetensors", "--adapter", tmp_path / "half.safetensors"]
    more = {"sample": ["--tokens", 2], "lora": ["--merge", tmp_path / "again.safetensors"], "memorise": other[:2]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": "fox", "response": "dog"}))
    more["sft"] = ["--pairs", tmp_path / "pairs.jsonl", "--steps", 1, "--out", tmp_path / "answers"]
    for command, options in more.items():
        _, said = call(command, *elsewhere, *options, status=1)
        assert "made on the weights with sha256" in said and "--any-base on the command line" in said, command
    _, said = call("sample", *elsewhere, *more["sample"], "--any-base")
    assert "made on other weights" in said
    for command in ("lora", "sft"):
        call(command, *elsewhere, *more[command], "--any-base")
    call("lora", *elsewhere, *other, "--steps", 1, "--out", tmp_path / "moved", "--any-base")
    assert Adapter.load(tmp_path / "moved").base_sha256 == GPT.load(tmp_path / "merged.safetensors", device="cpu").weights_sha256()
    _, said = call("sample", "--from", run, "--adapter", run, "--tokens", 2, status=1)
    assert "whole model's run" in said
