"""`posttrainllm sample` under a constraint, on a model that never learned anything."""

import json
import re

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT

from .calling import call

pytestmark = pytest.mark.native_only(reason="the command line is native")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    model = GPT.create(GPTConfig(1, 16, 2, 16, 256, 2), seed=1, device="cpu", threads=1, training=False)
    file = tmp_path_factory.mktemp("model") / "blank.safetensors"
    model.save(file)
    model.close()
    return file


def sample(path, *how, **expected):
    out, error = call("sample", "--from", path, "--prompt", "x", "--device", "cpu", "--threads", "1", "--top-k", "0", *how, **expected)
    return error if expected else out[1:-1]


def test_a_regular_expression(path):
    for seed in range(20):
        assert re.fullmatch(r"[A-Z][a-z]{2,5}, \d+", sample(path, "--regex", r"[A-Z][a-z]{2,5}, \d+", "--seed", seed))
    assert sample(path, "--regex", "a{2,9}", "--end", "first") == "aa" and sample(path, "--regex", "a{2,9}", "--end", "longest") == 9 * "a"


def test_a_json_schema(path, tmp_path):
    (tmp_path / "s.json").write_text('{"properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}}, "required": ["n", "ok"]}')
    for whitespace in ("compact", "spaced", "free"):
        value = json.loads(sample(path, "--json-schema", tmp_path / "s.json", "--json-whitespace", whitespace))
        assert set(value) == {"n", "ok"} and isinstance(value["n"], int)
    how = ("--json-schema", tmp_path / "s.json", "--tokens", 30, "--device", "cpu", "--threads", "1", "--json")
    events = [json.loads(line) for line in call("sample", "--from", path, *how)[0].splitlines()]
    assert events[-1]["reason"] == "complete" and events[-1]["tokens"] <= 30 and set(json.loads(events[-1]["text"])) == {"n", "ok"}


def test_a_grammar(path, tmp_path):
    lark = pytest.importorskip("lark")
    text = 'start: "(" start ")" | /[a-c]/ | start "+" start'
    (tmp_path / "g.lark").write_text(text)
    for seed in range(10):
        lark.Lark(text, lexer="dynamic_complete").parse(sample(path, "--grammar", tmp_path / "g.lark", "--seed", seed, "--tokens", 25))


def test_mistakes_are_sentences(path, tmp_path):
    assert "its shortest text, 50 tokens" in sample(path, "--regex", "a{50}", "--tokens", "49", status=1)
    assert "a reference to a group" in sample(path, "--regex", r"(a)\1", status=1)
    assert "--regex and --grammar came" in sample(path, "--regex", "a", "--grammar", tmp_path / "g", status=1)
    assert "a UTF-8 file" in sample(path, "--json-schema", tmp_path / "none.json", status=1)
    (tmp_path / "bad.json").write_text("{")
    assert "the schema is JSON" in sample(path, "--json-schema", tmp_path / "bad.json", status=1)
    sample(path, "--regex", "a", "--end", "soon", status=2)
