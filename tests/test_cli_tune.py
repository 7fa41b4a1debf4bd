"""`sft` and `dpo` on the command line: an adapter or whole weights, figures before and after, and what it says where it cannot."""

import json
import re

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.live import GPT
from posttrainllm.model.lora import Adapter

from .calling import call, saved_run, text_file  # noqa: F401 - fixtures

pytestmark = pytest.mark.native_only(reason="the command line runs on CPython")
SHORT = ["--between", ">", "--end", "|", "--device", "cpu", "--threads", 1]


@pytest.fixture(name="run")
def run_of_six_steps(saved, tmp_path):
    """--from and a run's folder, --base and its text."""
    options, _ = saved
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"prompt": a, "response": b}) + "\n" for a, b in (("fox", "dog"), ("jug", "box"))))
    (tmp_path / "likes.csv").write_text("prompt,chosen,rejected\nfox,dog,jug\njug,box,fox\n")
    return ["--from", options[1], "--base", options[3]]


def events(*arguments, status=0):
    out, err = call(*arguments, "--json", status=status)
    return [json.loads(line) for line in out.splitlines()], err


def test_sft_writes_an_adapter_and_tells_before_and_after(run, tmp_path):
    out = tmp_path / "ad"
    found, _ = events("sft", *run, *SHORT, "--pairs", tmp_path / "pairs.jsonl", "--out", out, "--steps", 12, "--learning-rate", 0.02)
    kinds = [event["event"] for event in found]
    assert kinds == ["start", "forgetting", "eval", *["step"] * 12, "eval", "forgetting", "stopped", "done"]
    assert found[0]["lora"]["rank"] == 4 and found[0]["trained_parameters"] < found[0]["parameters"]
    assert found[0]["data"]["rows"] == 2 and "too few" in found[0]["warnings"][-1]
    done = found[-1]
    assert done["after_loss_nats"] < done["before_loss_nats"] and done["base"]["after_nats"] != done["base"]["before_nats"]
    adapter, about = Adapter.load(out), json.loads((out / "tuning.json").read_text())
    assert adapter.name == "ad" and adapter.config.rank == 4
    assert about["template"] == {"before": "", "between": ">", "end": "|"} and about["steps_done"] == 12
    assert about["figures"]["after_loss_nats"] == done["after_loss_nats"] and about["rows"]["count"] == 2


def test_dpo_goes_on_from_an_adapter(run, tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    call("sft", *run, *SHORT, "--pairs", tmp_path / "pairs.jsonl", "--out", first, "--steps", 3, "--rank", 2, "--target", "mlp.fc")
    likes = ["--preferences", tmp_path / "likes.csv", "--out", second]
    found, _ = events("dpo", *run, *SHORT, *likes, "--adapter", first, "--steps", 20, "--beta", 0.2, "--learning-rate", 0.02)
    done = found[-1]
    assert (done["before_margin"], done["before_accuracy"]) == (pytest.approx(0, abs=1e-5), pytest.approx(0.5, abs=0.5))
    assert done["after_margin"] > done["before_margin"] and done["after_loss_nats"] < 0.69
    adapter = Adapter.load(second)
    assert (adapter.config.rank, adapter.config.targets) == (2, ("mlp.fc",)) and adapter.weights != Adapter.load(first).weights
    assert json.loads((second / "tuning.json").read_text())["training"]["beta"] == 0.2


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_whole_weights_go_into_a_file_to_write_with(run, tmp_path, kind):
    rows = ["--pairs", tmp_path / "pairs.jsonl"] if kind == "sft" else ["--preferences", tmp_path / "likes.csv"]
    out = tmp_path / "tuned.safetensors"
    before = GPT.load(run[1], device="cpu")
    call(kind, *run, *SHORT, *rows, "--out", out, "--full", "--steps", 3, "--batch", 2)
    after = GPT.load(out, device="cpu")
    assert after.config.batch == 2 and after.weights_sha256() != before.weights_sha256()
    assert (tmp_path / "tuned.tuning.json").exists()
    shown, _ = call("sample", "--from", out, "--ask", "fox", "--tokens", 3)
    assert shown.startswith("fox>")
    before.close(), after.close()


def test_asking_keeps_to_the_template(run, tmp_path):
    out = ["--out", tmp_path / "ad", "--pairs", tmp_path / "pairs.jsonl"]
    call("sft", *run, *SHORT, *out, "--steps", 2)
    plain = ["--from", run[1], "--adapter", tmp_path / "ad", "--tokens", 6]
    asked, _ = call("sample", *plain, "--ask", "fox")
    assert asked == call("sample", *plain, "--prompt", "fox>", "--stop", "|")[0]
    plain[3] = tmp_path / "ad" / "adapter_model.safetensors"
    assert call("sample", *plain, "--ask", "fox")[0] == asked, "named by its file"
    plain[3] = tmp_path / "ad"
    assert call("sample", "--from", run[1], "--ask", "fox", "--tokens", 2)[0].startswith("fox\n"), "the usual one, where none is told"
    _, err = call("sample", *plain, "--ask", "fox", "--prompt", "jug", status=1)
    assert "--ask stands in place of --prompt; both came" in err
    _, err = call("sample", "--from", run[1], "--strength", 0.5, status=1)
    assert "no --adapter came" in err
    (tmp_path / "ad" / "tuning.json").write_text("{}")
    _, err = call("sample", *plain, "--ask", "fox", status=1)
    assert "it tells the template of a tuning" in err


def test_lines_for_a_person(run, tmp_path):
    out, err = call("sft", *run, *SHORT, "--pairs", tmp_path / "pairs.jsonl", "--out", tmp_path / "ad", "--steps", 2)
    for part in ("an adapter of rank 4 on attn.q, attn.v", "pairs.jsonl: 2 rows", "on all rows", "loss of responses:", "bits/byte before;", "nats\n"):
        assert part in out, part
    assert f"--adapter {tmp_path / 'ad'} --ask PROMPT (which adds '>', and stops at '|')" in err
    out, _ = call("dpo", *run[:2], *SHORT, "--preferences", tmp_path / "likes.csv", "--out", tmp_path / "ad", "--steps", 2, "--overwrite")
    assert "accuracy" in out and "What is forgotten is not measured" in out


FAULTS = {
    "rows": (["--pairs", "likes.csv"], "likes.csv, line 1: it has a response"),
    "no rows": (["--pairs", "none.jsonl"], "a text file that can be read"),
    "both": (["--full", "--rank", 4], "--full tunes all weights"),
    "place": (["--full"], "--out is a .safetensors file"),
    "adapter's settings": (["--adapter", "x", "--alpha", 3], "--adapter brings its own settings"),
    "target": (["--target", "attn.x"], "targets are some of"),
    "setting": (["--learning-rate", -1], "learning_rate is a number"),
    "end": (["--end", ""], "end is a text"),
    "long": (["--refuse-long", "--pairs", "long.jsonl"], "long.jsonl, line 1: .*context"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_cannot_be_done_is_said(run, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": "p" * 99, "response": "r"}))
    more, says = FAULTS[what]
    given = ["--pairs", "pairs.jsonl", *SHORT, "--out", "ad", *more]
    found, err = events("sft", *run, *given, status=1)
    assert found[-1]["event"] == "error" and re.search(says, err), err
    assert not (tmp_path / "ad").exists()
