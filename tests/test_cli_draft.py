"""`posttrainllm sample --draft`: the same greedy text, and what the draft did at the end."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT

from .calling import call
from .helpers.machines import open_once
from .helpers.trained import DRAFT, DRAFT_STEPS, trained

pytestmark = pytest.mark.native_only(reason="the command line is native")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A model, a draft and a draft whose vocabulary is another, as files."""
    folder = tmp_path_factory.mktemp("models")
    trained(open_once("cpu")).save(folder / "model.safetensors")
    trained(open_once("cpu"), DRAFT, DRAFT_STEPS).save(folder / "draft.safetensors")
    from posttrainllm.data.bpe import BPETokenizer

    words = BPETokenizer.train(b"full fathom five thy father lies " * 9, 270)
    other = GPT.create(GPTConfig(1, 8, 1, 8, 270, 1), device="cpu", threads=1, tokenizer=words, training=False)
    other.save(folder / "words.safetensors")
    other.close()
    return folder


def sample(paths, *how, model="model", **expected):
    given = ("sample", "--from", paths / f"{model}.safetensors", "--prompt", "Full", "--device", "cpu", "--threads", "1")
    return call(*given, *how, **expected)


def test_greedy_text_is_the_same_and_the_end_tells_of_the_draft(paths):
    how = ("--tokens", 120, "--temperature", 0)
    plain, nothing = sample(paths, *how)
    text, told = sample(paths, *how, "--draft", paths / "draft.safetensors", "--ahead", 3)
    assert text == plain and not nothing
    assert told.startswith("120 tokens in ") and "tokens/s" in told and " stood (" in told and "tokens a pass" in told
    assert "no smaller" not in told
    assert "can only cost time" in sample(paths, *how, "--draft", paths / "model.safetensors", model="draft")[1]


def test_json_carries_the_numbers(paths):
    given = ("--tokens", 60, "--draft", paths / "draft.safetensors", "--json", "--regex", "[a-z ]{60}")
    events = [json.loads(line) for line in sample(paths, *given)[0].splitlines()]
    numbers = events[-1]["acceptance"]
    assert numbers["tokens"] == 60 == numbers["passes"] + numbers["accepted"] and numbers["proposed"] > numbers["accepted"] > 0
    assert numbers["rate"] == numbers["accepted"] / numbers["proposed"] and numbers["tokens_per_pass"] == 60 / numbers["passes"]
    assert "acceptance" not in json.loads(sample(paths, "--tokens", 5, "--json")[0].splitlines()[-1])


def test_wrong_drafts_are_refused(paths):
    assert "a draft has the model's tokenizer" in sample(paths, "--draft", paths / "words.safetensors", status=1)[1]
    assert "from 1 to 16" in sample(paths, "--draft", paths / "draft.safetensors", "--ahead", 17, status=1)[1]
    assert "reading" in sample(paths, "--draft", paths / "none.safetensors", status=1)[1]
