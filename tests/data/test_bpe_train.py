"""Learning merges: the engine learns what the plain Python judge and the tokenizers library learn."""

import json
import random
import time

import pytest

from posttrainllm.data import bpe as module
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.errors import DataError
from tests.data.texts import LEARNED_FROM, any_bytes, unicode_text


def learned(data, vocabulary, minimum=2):
    made = BPETokenizer.train(data, vocabulary, minimum=minimum)
    return [(made.tokens[left], made.tokens[right]) for left, right in made.merges]


def test_a_small_text_by_hand():
    text = b"aab aab aab bc"
    # " aab" comes twice, "aab" once: a+a 3, a+b 3, then the rest; of equals the smaller ids go first.
    assert learned(text, 300) == [(b"a", b"a"), (b"aa", b"b"), (b" ", b"aab")]
    assert learned(text, 257) == [(b"a", b"a")] and learned(text, 256) == []
    assert learned(text, 300, minimum=4) == []
    assert learned(text, 300, minimum=1) == [(b"a", b"a"), (b"aa", b"b"), (b" ", b"aab"), (b"b", b"c"), (b" ", b"bc")]
    assert learned(b"aaaa", 300, minimum=1) == [(b"a", b"a"), (b"aa", b"aa")]


def test_the_engine_learns_what_the_judge_learns(monkeypatch):
    rng, real = random.Random(4), module.open_bpe
    texts = [b"".join(any_bytes(rng) for _ in range(rng.randrange(1, 30))) for _ in range(40)]
    texts += [
        "".join(rng.choices(letters, k=200)).encode() for letters in ("ab ", "a", "ab01 \n", "aé🙂 ") for _ in range(20)
    ]
    texts += [b"a" * 300 + b" " + b"a" * 7, LEARNED_FROM.encode(), b"x"]
    for text in texts:
        monkeypatch.setattr(module, "open_bpe", real)
        minimum = rng.choice((1, 2, 2, 3))
        made = BPETokenizer.train(text, 400, minimum=minimum)
        monkeypatch.setattr(module, "open_bpe", lambda *_: None)
        judged = BPETokenizer.train(text, 400, minimum=minimum)
        assert (made.merges, made.tokens) == (judged.merges, judged.tokens), text


def test_pieces_and_order_of_the_text_make_no_difference(monkeypatch):
    whole = BPETokenizer.train(LEARNED_FROM.encode(), 512)
    real = module.pieces
    monkeypatch.setattr(module, "pieces", lambda data: real(data, 100))
    assert BPETokenizer.train(LEARNED_FROM.encode(), 512).merges == whole.merges


def test_tokens_are_numbered_bytes_then_merges_then_specials():
    made = BPETokenizer.train(LEARNED_FROM.encode(), 300, ("<|endoftext|>",))
    assert made.vocabulary == 300 and len(made.merges) == 43 and made.specials == {"<|endoftext|>": 299}
    assert made.tokens[0] == b"!" and made.tokens[255] == b"\xad"
    assert all(
        made.tokens[256 + rank] == made.tokens[left] + made.tokens[right]
        for rank, (left, right) in enumerate(made.merges)
    )


def test_a_text_with_fewer_pairs_gives_fewer_tokens():
    made = BPETokenizer.train(b"abcabc", 5000)
    assert made.vocabulary == len(made.tokens) == 256 + len(made.merges) < 300


@pytest.mark.parametrize(
    ("data", "vocabulary", "specials", "minimum", "said"),
    [
        (b"", 300, (), 2, "is empty"),
        (b"abc", 255, (), 2, "256 to"),
        (b"abc", 256, ("<s>",), 2, "257 to"),
        (b"abc", 1 << 30, (), 2, "another size"),
        (b"abc", 300, (), 0, "at least once"),
        (b"abc", 300, ("<s>", "<s>"), 2, "differ"),
        (b"abc", 300, ("",), 2, "not empty"),
        (b"the the the", 300, ("the",), 1, "spelt alike"),
        (b"abc", 300, ("\ud800",), 2, "differ"),
    ],
)
def test_what_cannot_be_learned_is_refused(data, vocabulary, specials, minimum, said):
    with pytest.raises(DataError, match=said):
        BPETokenizer.train(data, vocabulary, specials, minimum)


def shakespeare():
    from posttrainllm.data.corpus import Corpus

    return Corpus.shakespeare().data[:1_000_000]


@pytest.mark.native_only(reason="the tab's tests are without the corpus")
def test_a_megabyte_takes_less_than_five_seconds_natively():
    began = time.perf_counter()
    assert BPETokenizer.train(shakespeare(), 1024).vocabulary == 1024
    assert time.perf_counter() - began < 5


def test_a_megabyte_takes_less_than_five_seconds_here():
    """A megabyte of words that are not all alike, natively and in the tab."""
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randrange(2, 10))) for _ in range(30_000)]
    text = " ".join(rng.choices(words, k=160_000)).encode()[:1_000_000]
    began = time.perf_counter()
    assert BPETokenizer.train(text, 1024).vocabulary == 1024
    assert time.perf_counter() - began < 5


@pytest.mark.native_only(reason="compares with the tokenizers library")
def test_merges_are_those_of_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    rng = random.Random(9)
    cases = [(shakespeare()[:300_000].decode(), 2048), (LEARNED_FROM, 600)]
    cases += [("".join(unicode_text(rng) for _ in range(rng.randrange(2, 60))), 400) for _ in range(40)]
    cases += [
        ("".join(rng.choices(letters, k=300)), 320) for letters in ("ab ", "a", "aab \n", "abc01  ") for _ in range(10)
    ]
    for text, size in cases:
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        theirs.train_from_iterator(
            [text],
            tokenizers.trainers.BpeTrainer(
                vocab_size=size, min_frequency=2, initial_alphabet=alphabet, show_progress=False
            ),
        )
        wanted = json.loads(theirs.to_str())["model"]
        made = json.loads(BPETokenizer.train(text.encode(), size).to_json())["model"]
        assert made["vocab"] == wanted["vocab"] and made["merges"] == [" ".join(pair) for pair in wanted["merges"]], (
            text[:200]
        )
