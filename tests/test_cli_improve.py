"""`corrections`, `improve` and `versions` on the command line: a run learns a style, refuses poison, and goes back."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.lora import Adapter
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.train.state import weights_checkpoint
from posttrainllm.tune.continual.history import adapter_sha256
from tests.helpers.machines import open_once

from .calling import call
from .tune.continual.making import base, follows, poisonous, prompts, scripted, text

pytestmark = pytest.mark.native_only(reason="the command line runs on CPython")
QUICK = ["--sft-steps", 120, "--dpo-steps", 20, "--device", "cpu", "--threads", 1]


@pytest.fixture(scope="module", name="place")
def folder_with_a_run(tmp_path_factory):
    """A folder with text.txt, a run, and the corrections of two users."""
    folder, model = tmp_path_factory.mktemp("improve"), base(open_once("cpu-1"))
    (folder / "text.txt").write_text(text())
    (folder / "style.jsonl").write_text(scripted(model).to_jsonl())
    (folder / "poison.jsonl").write_text(poisonous(model).to_jsonl())
    with now(RunStore(DiskVolume(folder)).create("run", "run")) as run:
        made = weights_checkpoint(model, "run")
        run.save(made)
    return folder


def events(*arguments, status=0):
    out, err = call(*arguments, "--json", status=status)
    return [json.loads(line) for line in out.splitlines()], err


def test_the_whole_loop(place):
    run, base_text = ["--from", place / "run"], ["--base", place / "text.txt"]
    found, _ = events("corrections", *run, "--import", place / "style.jsonl")
    assert found[-1] == {"event": "corrections", "count": 50} and found[0]["what"] == "retry"
    found, err = events("improve", *run, *base_text, *QUICK)
    assert [each["event"] for each in found if each["event"] not in ("step", "eval", "phase")] == ["curated", "gate", "improved"]
    assert found[-1]["promoted"] and found[-1]["version"] == 1 and "this is text.txt" in err, "the run does not name its text"
    call("versions", *run, "--out", place / "one")
    ask = ["sample", "--from", place / "run", "--adapter", place / "one", "--temperature", 0, "--tokens", 60, "--device", "cpu", "--threads", 1]
    answers = [call(*ask, "--ask", prompt)[0].split("\n", 1)[1].rstrip("\n") for prompt in prompts(48)[40:]]
    assert sum(map(follows, answers)) >= 6, answers
    sha = adapter_sha256(Adapter.load(place / "one"))
    assert sha == found[-1]["adapter_sha256"], "PEFT's layout gives the same bytes back"

    call("corrections", *run, "--clear")
    call("corrections", *run, "--import", place / "poison.jsonl")
    out, _ = call("improve", *run, *base_text, *QUICK)
    assert "Version 2 was kept aside: Held-out corrections" in out and "nats a token before" in out and "40 answers" not in out
    listed, _ = events("versions", *run)
    assert [(each["number"], each["promoted"], each["in_use"]) for each in listed[:2]] == [(1, True, True), (2, False, False)]
    assert listed[-1] == {"event": "versions", "count": 2, "in_use": 1}
    out, _ = call("versions", *run)
    assert "kept aside; after version 1" in out and "(40 deleted since)" in out and out.endswith("In use: version 1.\n")
    _, err = call("versions", *run, "--use", 2, status=1)
    assert "this one was kept aside" in err
    assert call("versions", *run, "--use", "none")[0].endswith("In use: the base alone.\n")
    assert events("versions", *run, "--use", 1)[0][-1]["in_use"] == 1
    out, _ = call("versions", *run, "--compare", 1, 2)
    assert "held_out_after_nats" in out and "learnt by both 0" in out
    call("versions", *run, "--out", place / "again", "--version", 1)
    assert adapter_sha256(Adapter.load(place / "again")) == sha


def test_one_at_a_time_and_out_again(place, tmp_path):
    with now(RunStore(DiskVolume(tmp_path)).create("run", "run")) as run:
        run.save(weights_checkpoint(base(open_once("cpu-1")), "run"))
    run = ["--from", tmp_path / "run"]
    call("corrections", *run, "--add", "edit", "--prompt", "Who?", "--offered", "Me.", "--kept", "It\\nis I.", "--note", "mine")
    call("corrections", *run, "--add", "retry", "--prompt", "Why?", "--offered", "No.")
    out, _ = call("corrections", *run)
    assert "edit     Who? | Me. -> It⏎is I." in out and "2 corrections in" in out
    call("corrections", *run, "--export", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["what"] for row in rows] == ["edit", "retry"] and rows[0]["kept"] == "It\nis I." and rows[0]["note"] == "mine"
    _, err = call("corrections", *run, "--export", tmp_path / "out.jsonl", status=1)
    assert "out.jsonl is there already" in err
    found, _ = events("corrections", *run, "--delete", rows[0]["id"])
    assert [each.get("id") for each in found] == [rows[1]["id"], None]
    assert events("corrections", *run, "--import", tmp_path / "out.jsonl")[0][-1]["count"] == 2
    _, err = call("improve", *run, "--base", place / "text.txt", *QUICK, status=1)
    assert "there are at least 8 answers to learn" in err and "0 and 0 are left" not in err
    assert call("versions", *run)[0] == "In use: the base alone.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["corrections", "--from", "nowhere"], "no run was saved there"),
        (["improve", "--from", "nowhere"], "no run was saved there"),
        (["corrections", "--from", "{run}", "--prompt", "a"], "go with --add"),
        (["corrections", "--from", "{run}", "--add", "edit", "--prompt", "a"], "an empty text came"),
        (["corrections", "--from", "{run}", "--import", "{run}/nothing.jsonl"], "a text file that can be read"),
        (["improve", "--from", "{run}"], "add --base FILE"),
        (["improve", "--from", "{run}", "--base", "{text}", "--gate", "base=x"], "--gate is NAME=NUMBER"),
        (["improve", "--from", "{run}", "--base", "{text}", "--gate", "base=1"], "'base' came"),
        (["versions", "--from", "{run}", "--use", "first"], "a version's number, or none"),
        (["versions", "--from", "{run}", "--use", "77"], "77 came"),
        (["versions", "--from", "{run}", "--out", "{run}"], "a run is saved in"),
    ],
)
def test_what_cannot_be_is_a_sentence(place, arguments, said):
    names = {"run": place / "run", "text": place / "text.txt"}
    _, err = call(*(each.format(**names) for each in arguments), status=1)
    assert said in err
