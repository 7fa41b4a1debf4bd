"""`posttrainllm runs`: list, compare, tag, note."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

import posttrainllm as pt
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.runs import RunStore, now
from tests.train.test_comparison import run

from .calling import call

pytestmark = pytest.mark.native_only(reason="the command line runs on CPython")


@pytest.fixture(name="place")
def folder_with_runs(tmp_path):
    store = RunStore(DiskVolume(tmp_path))
    for name, made in (("one", run("one")), ("two", run("two", 400, 1e-3, {"batch": 8})), ("three", run("three", 100))):
        with now(store.create(name, name)) as each:
            each.save(made)
    return tmp_path


def events(*arguments):
    return [json.loads(line) for line in call(*arguments, "--json")[0].splitlines()]


def test_tags_and_notes_are_kept_found_and_taken_away(place):
    assert call("runs", "tag", place / "one")[0] == "no tags\n"
    assert call("runs", "tag", place / "one", "baseline", "slow rate")[0] == "#baseline #slow rate\n"
    call("runs", "tag", place / "two", "Baseline")
    assert call("runs", "note", place / "one", "Line one.\\nLine two.")[0] == "Line one.\nLine two.\n"
    assert [each["name"] for each in events("runs", "list", place, "--tag", "baseline", "--sort", "name")] == ["one", "two"]
    assert [each["name"] for each in events("runs", "list", place, "--search", "LINE TWO")] == ["one"]
    assert [each["name"] for each in events("runs", "list", place, "--sort", "loss")] == ["two", "one", "three"]
    assert "No run is like that" in call("runs", "list", place, "--tag", "none")[1]
    assert "    Line two." in call("runs", "list", place)[0].splitlines()
    assert events("runs", "tag", place / "one", "--remove", "BASELINE") == [{"event": "marks", "tags": ["slow rate"], "note": "Line one.\nLine two."}]
    call("runs", "note", place / "one", "")
    assert events("runs", "note", place / "one")[0]["note"] == ""


def test_runs_side_by_side(place):
    out, _ = call("runs", "compare", place / "one", place / "two")
    lines = out.splitlines()
    assert lines[0] == "validation loss, nats per token, by step" and lines[1].split() == ["step", "one", "two"]
    assert lines[lines.index("") - 1].split() == ["at", "its", "end", "3.100", "1.100"]
    assert any(line.split() == ["Training:", "Learning", "rate", "0.0003", "0.001"] for line in lines)
    assert "by tokens" in call("runs", "compare", place / "one", place / "two", "--along", "tokens", "--metric", "rate")[0]
    [found] = events("runs", "compare", place / "one", place / "three")
    python = pt.compare_runs([place / "one", place / "three"])
    assert found["curves"]["validation"][1]["value"] == python.curves["validation"][1].value
    assert found["tables"]["loss"]["tokens"]["ends"] == python.table("loss", "tokens").ends


@pytest.mark.parametrize(
    "arguments, words",
    [(["compare", "one"], "2 to 8 runs"), (["tag", "nowhere", "x"], "no run was saved there"), (["tag", "one", "x" * 41], "at most 40 letters"),
     (["note", "one", "n" * 1001], "at most 1000 letters"), (["list", "nowhere"], "there is none")],
)  # fmt: skip
def test_what_cannot_be_done_is_said(place, arguments, words):
    command, first, *others = arguments
    assert words in call("runs", command, place / first, *others, status=1)[1]


def test_help_says_what_each_does():
    out = call("runs", "--help")[0]
    for words in ("Put runs side by side", "Add tags to a run", "Write a run's note", "List the runs in a folder"):
        assert words in out
