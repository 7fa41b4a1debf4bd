"""The command line in this process: tokenize."""

import json

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.data.bpe import BPETokenizer

from .calling import TEXT, call, text_file  # noqa: F401 - a fixture

pytestmark = pytest.mark.native_only(reason="the command line is native")


def events(*arguments, status=0):
    return [json.loads(line) for line in call("tokenize", *arguments, "--json", status=status)[0].splitlines()]


@pytest.fixture
def learned(text, tmp_path):
    """A tokenizer.json learned from the fox."""
    out = tmp_path / "tokenizer.json"
    (told,) = events(*text, "--vocabulary", 290, "--out", out, "--special", "<|endoftext|>")
    assert (
        told["event"] == "trained" and told["vocabulary"] == 290 and told["merges"] == 33 and told["bytes"] == len(TEXT)
    )
    return out


def test_it_learns_and_shows(learned, text):
    tokenizer = BPETokenizer.from_json(learned.read_bytes())
    assert tokenizer.merges == BPETokenizer.train(TEXT.encode(), 290, ("<|endoftext|>",)).merges
    (shown,) = events("--tokenizer", learned, "The lazy fox<|endoftext|>")
    assert shown["ids"] == list(tokenizer.encode("The lazy fox<|endoftext|>")) and shown["ids"][-1] == 289
    assert "".join(token["text"] for token in shown["tokens"]) == "The lazy fox<|endoftext|>"
    (counted,) = events("--tokenizer", learned, *text)
    assert (
        counted["tokens"] == len(tokenizer.encode(TEXT)) and counted["bytes_per_token"] == len(TEXT) / counted["tokens"]
    )
    merges = events("--tokenizer", learned, "--merges")
    assert [merge["id"] for merge in merges] == list(range(256, 289)) and merges[0].keys() == {
        "event",
        *tokenizer.merge_list()[0],
    }


def test_plain_output_tells_the_same(learned, text, tmp_path):
    out, _ = call("tokenize", "--tokenizer", learned, "lazy é\n")
    assert "␣" in out and "\\xc3" in out and "\\n" in out and out.endswith("tokens of 8 bytes\n")
    assert "bytes a token" in call("tokenize", "--tokenizer", learned, *text)[0]
    assert call("tokenize", "--tokenizer", learned, "--merges")[0].splitlines()[0].split()[0] == "1"
    out, _ = call("tokenize", *text, "--vocabulary", 5000, "--out", tmp_path / "x.json", "--minimum", 3)
    assert "merges from fox.txt" in out and "Fewer than 5,000: no other pair comes 3 times." in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--vocabulary", "300"], "E-CONFIG", "--data, --vocabulary and --out"),
        (["text"], "E-CONFIG", "add --tokenizer"),
        (["--tokenizer", "T"], "E-CONFIG", "one of TEXT, --data and --merges"),
        (["--tokenizer", "T", "text", "--merges"], "E-CONFIG", "one of TEXT"),
        (["--tokenizer", "T", "text", "--vocabulary", "300"], "E-CONFIG", "learns nothing more"),
        (["--tokenizer", "none", "text"], "E-DATA", "none"),
        (["--tokenizer", "fox.txt", "text"], "E-FORMAT-TOKENIZER", "JSON"),
        (["--data", "fox.txt", "--vocabulary", "5", "--out", "x.json"], "E-DATA", "256 to"),
        (["--data", "fox.txt", "--vocabulary", "300", "--out", "no/such/place.json"], "E-STORE", "no/such/place.json"),
        (["--data", "none.txt", "--vocabulary", "300", "--out", "x.json"], "E-DATA", "none.txt"),
    ],
)
def test_every_mistake_is_one_sentence(learned, tmp_path, monkeypatch, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    given = [learned if argument == "T" else argument for argument in arguments]
    (event,) = events(*given, status=1)
    assert event["code"] == code and said in event["message"] and not (tmp_path / "x.json").exists()
