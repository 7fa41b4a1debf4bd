"""The command line in this process: sample, bench, explain, help."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.configs import load
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import training_step

from .calling import call, saved_run, text_file, train  # noqa: F401 - two are fixtures

pytestmark = pytest.mark.native_only(reason="the command line is native")


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
    assert set(done) == {
        "event",
        "prompt",
        "text",
        "tokens",
        "reason",
        "seconds",
        "first_token_seconds",
        "tokens_per_second",
    }
    stop = done["text"][3]
    stopped = json.loads(call("sample", "--from", path, *how, "--stop", stop, "--json")[0].splitlines()[-1])
    assert stopped["reason"] == "stop" and stop not in stopped["text"]
    for wrong in (["--temperature", "-1"], ["--top-p", "0"], ["--tokens", "0"], ["--prompt", ""]):
        call("sample", "--from", path, *wrong, status=1)
    assert "reading" in call("sample", "--from", tmp_path / "none", status=1)[1]
    assert "E-FORMAT" in call("sample", "--from", tmp_path / "fox.txt", "--json", status=1)[0]


def test_bench_measures_what_it_says():
    out, _ = call(
        "bench",
        "--preset",
        "tiny",
        "--batch",
        2,
        "--steps",
        5,
        "--warmup-steps",
        1,
        "--json",
        "--device",
        "cpu",
        "--threads",
        2,
    )
    found = json.loads(out)
    flops = training_step(GPTConfig.preset("tiny", batch=2)).plan.graph.flops()
    assert (
        found["flops_per_step"] == flops
        and found["steps"] == 5
        and found["warmup_steps"] == 1
        and found["threads"] == 2
    )
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
        assert (value if isinstance(value, str) else f"{value:g}") in line, line
    assert "--isa" not in out and "train" in call("--help")[0]
    assert call("--version")[0].strip()
