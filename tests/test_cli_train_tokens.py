"""`train --tokenizer` and `train --bpe`: what a run is trained on stays with it."""

import json
import math

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.corpus import Corpus
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.train.files import hold_run, read_checkpoint

from .calling import QUICK, SIZES, TEXT, call, text_file, train  # noqa: F401 - a fixture

pytestmark = pytest.mark.native_only(reason="the command line is native")

LONG = "".join(f"{number} bottles of {drink} on the {place} wall; take one down. " for number in range(60) for drink, place in
               (("milk", "red"), ("ale", "old"), ("tea", "far")))  # fmt: skip


@pytest.fixture
def bottles(tmp_path):
    path = tmp_path / "bottles.txt"
    path.write_text(LONG)
    return ["--data", str(path)]


@pytest.fixture
def learned(bottles, tmp_path):
    """A tokenizer.json of 300 tokens."""
    out = tmp_path / "tokenizer.json"
    call("tokenize", *bottles, "--vocabulary", 300, "--out", out)
    return out


def test_a_run_learns_its_tokenizer_and_keeps_it(bottles, tmp_path):
    common = [*bottles, *SIZES, *QUICK, "--bpe", 300]
    straight = train(*common, "--steps", 40, "--export", tmp_path / "bottles.safetensors")
    start, done = straight[0], straight[-1]
    corpus = Corpus.from_text(LONG)
    wanted = BPETokenizer.train(bytes(corpus.train), 300)
    assert start["config"]["vocabulary"] == 300 and start["tokenizer"]["name"] == "bpe"
    assert start["corpus"]["train_tokens"] == len(wanted.encode_bytes(bytes(corpus.train)))
    assert start["tokenizer"]["bytes_per_token"] == corpus.split / start["corpus"]["train_tokens"] > 1.5
    last = [event for event in straight if event["event"] == "eval"][-1]
    each = start["tokenizer"]["evaluated_bytes_per_token"]
    assert done["val_bits_per_byte"] == last["bits_per_byte"] == pytest.approx(done["val_loss_nats"] / each / math.log(2))

    train(*common, "--steps", 20, "--out", tmp_path / "run")
    rest = train(*bottles, "--resume", "--steps", 40, "--out", tmp_path / "run")
    assert rest[-1]["weights_sha256"] == done["weights_sha256"], "40 = 20 + save + load + 20, with the run's own tokenizer"
    assert rest[0]["tokenizer"] == start["tokenizer"]
    with hold_run(tmp_path / "run") as run:
        kept = run.load()
        assert BPETokenizer.from_json(kept.tokenizer["json"]).merges == wanted.merges
        assert weights_sha256(kept.weights) == done["weights_sha256"]
    exported = read_checkpoint(tmp_path / "bottles.safetensors")
    assert exported.tokenizer == kept.tokenizer and weights_sha256(exported.weights) == done["weights_sha256"]

    texts = []
    for source in (tmp_path / "run", tmp_path / "bottles.safetensors"):
        out, _ = call("sample", "--from", source, "--prompt", "9 bottles of ", "--tokens", 12, "--json")
        events = [json.loads(line) for line in out.splitlines()]
        assert events[-1]["tokens"] == 12
        texts.append(events[-1]["text"])
    assert texts[0] == texts[1] and len(texts[0].encode()) > 12, "its tokens are longer than bytes"


def test_a_tokenizer_from_a_file(bottles, learned, tmp_path):
    run = ["--out", tmp_path / "run"]
    events = train(*bottles, *SIZES, *QUICK, "--steps", 3, "--tokenizer", learned, *run)
    assert events[0]["config"]["vocabulary"] == 300 and not [s for s in events[0]["warnings"] if "rather than" in s]
    train(*bottles, "--resume", "--steps", 4, "--tokenizer", learned, *run)
    _, error = call("train", *bottles, "--resume", "--steps", 5, "--bpe", 280, *run, status=1)
    assert "goes on with its own tokenizer, bpe of 300 tokens; --bpe 280 came" in error
    plain = ["--out", tmp_path / "plain"]
    train(*bottles, *SIZES, *QUICK, "--steps", 2, *plain)
    _, error = call("train", *bottles, "--resume", "--steps", 3, "--tokenizer", learned, *plain, status=1)
    assert "own tokenizer, bytes of 256 tokens" in error and "300 tokens, came" in error
    train(*bottles, "--resume", "--steps", 3, *plain)


def test_a_run_of_a_preset_goes_on_with_what_it_was_made_with(bottles, tmp_path):
    how = [*bottles, "--preset", "tiny", "--batch", "1", *QUICK, "--bpe", 300, "--out", tmp_path / "run"]
    train(*how, "--steps", 1)
    assert train(*how, "--steps", 2, "--resume")[-1]["step"] == 2
    _, error = call("train", *how[:2], "--preset", "small", *how[4:], "--resume", status=1)
    assert "a run goes on with its own settings" in error


def test_bits_per_byte_compare_over_tokenizers(bottles):
    """Untrained models know nothing: 8 bits a byte for bytes, fewer for tokens that are longer, and the plain output says them."""
    first = {}
    for name, options in (("bytes", []), ("bpe", ["--bpe", 300])):
        events = train(*bottles, *SIZES, *QUICK, "--steps", 1, *options)
        first[name] = next(event for event in events if event["event"] == "eval")
        step = next(event for event in events if event["event"] == "step")
        assert step["bits_per_byte"] == pytest.approx(step["loss_nats"] / events[0]["tokenizer"]["bytes_per_token"] / math.log(2))
    assert first["bytes"]["bits_per_byte"] == pytest.approx(8, rel=0.01)
    assert first["bpe"]["validation_loss_nats"] > first["bytes"]["validation_loss_nats"], "a token of 300 is harder to guess"
    assert first["bpe"]["bits_per_byte"] < 6, "but it stands for more of the text"
    out, _ = call("train", *bottles, *SIZES, *QUICK, "--steps", 1, "--bpe", 300)
    assert "Its tokens are bpe's, of 300: " in out and f"{first['bpe']['bits_per_byte']:.3f} bits/byte" in out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--bpe", "300", "--tokenizer", "FILE"], "E-CONFIG", "leave one of them out"),
        (["--bpe", "200"], "E-DATA", "a vocabulary holds 256 to"),
        (["--tokenizer", "none.json"], "E-DATA", "check the path"),
        (["--tokenizer", "TEXT"], "E-FORMAT-TOKENIZER", "tokenizer.json"),
        (["--bpe", "300", "--context", "2000"], "E-DATA-SHORT", "use a longer text"),
    ],
)
def test_mistakes_are_sentences(bottles, learned, options, code, said):
    options = [{"FILE": str(learned), "TEXT": bottles[1]}.get(option, option) for option in options]
    out, error = call("train", "--json", *bottles, *SIZES, *QUICK, "--steps", 2, *options, status=1)
    event = json.loads(out.splitlines()[-1])
    assert event["event"] == "error" and event["code"] == code and said in error


def test_a_short_text_gives_fewer_tokens_and_says_so(text):
    warnings = train(*text, *SIZES, *QUICK, "--steps", 1, "--bpe", 5000)[0]["warnings"]
    assert any("tokens rather than 5,000" in sentence for sentence in warnings), TEXT[:20]
