"""A corpus in another tokenizer's tokens: the same bytes in each part, ids in whole integers, losses that compare."""

import hashlib
import math
import struct

import pytest

from posttrainllm.data.batches import Batches, evaluation_batches, tokens_to_i32
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.corpus import Corpus
from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.errors import DataError
from posttrainllm.model.config import GPTConfig
from tests.data.texts import LEARNED_FROM

text = Corpus("words", LEARNED_FROM.encode(), 0.1)
bpe = BPETokenizer.train(text.data, 350)


def wide(size):
    """A tokenizer with more ids than 16 bits hold: the text's tokens are all among the last."""
    tokens = [*bpe.tokens, *(b"\xff\xfe%d" % number for number in range(size - bpe.vocabulary))][::-1]
    last = size - 1
    return BPETokenizer(tokens, [(last - left, last - right) for left, right in bpe.merges])


@pytest.mark.parametrize(
    ("tokenizer", "kind"), [(bpe, "H"), (wide(1 << 16), "H"), (wide((1 << 16) + 1), "i")], ids=["350", "65536", "65537"]
)
def test_parts_are_the_bytes_of_the_corpus(tokenizer, kind):
    tokens = text.tokens(tokenizer)
    assert tokens.train.format == tokens.validation.format == kind
    assert tokenizer.decode_bytes(tokens.train) == bytes(text.train) and tokenizer.decode_bytes(
        tokens.validation
    ) == bytes(text.validation)
    assert (tokens.sha256, tokens.split, tokens.data) == (text.sha256, text.split, text.data)
    assert (
        min(tokens.train) >= 0
        and max(tokens.train) < tokenizer.vocabulary
        and (tokenizer is bpe or min(tokens.train) > 60_000)
    )
    ids = [*tokens.train, *tokens.validation]
    assert tokens.tokens_sha256 == hashlib.sha256(struct.pack(f"<{len(ids)}{kind}", *ids)).hexdigest()


def test_a_split_in_the_middle_of_a_character_loses_nothing():
    corpus = Corpus("x", "é🙂".encode() * 50, 0.5)
    for fraction in (0.49, 0.495, 0.5, 0.505, 0.51):
        tokens = corpus.split_at(fraction).tokens(bpe)
        assert bpe.decode_bytes([*tokens.train, *tokens.validation]) == corpus.data
        assert len(bpe.decode_bytes(tokens.train)) == corpus.split_at(fraction).split


def test_bytes_stay_as_they_are_and_another_split_is_tokenized_anew():
    assert text.tokens(ByteTokenizer()) is text
    tokens = text.tokens(bpe)
    assert tokens.split_at(0.1) is tokens
    other = tokens.split_at(0.5)
    assert other.tokenizer is bpe and bpe.decode_bytes(other.train) == bytes(text.split_at(0.5).train)
    assert bpe.decode_bytes(tokens.train) == bytes(text.train), "the first is as it was"
    assert bytes(tokens.tokens(ByteTokenizer()).train) == bytes(text.train)
    assert tokens.tokens(wide(400)).train.tolist() == [399 - token for token in tokens.train]


def test_losses_compare_in_bits_per_byte():
    tokens = text.tokens(bpe)
    assert text.bits_per_byte(math.log(256)) == pytest.approx(8)
    nats = 3.0 * len(tokens.validation)  # of the whole part, whatever it is cut into
    assert tokens.bits_per_byte(3.0) == pytest.approx(nats / math.log(2) / len(text.validation))
    assert text.bits_per_byte(nats / len(text.validation)) == pytest.approx(tokens.bits_per_byte(3.0))
    assert tokens.bits_per_byte(3.0, "train") == pytest.approx(3 / math.log(2) * len(tokens.train) / len(text.train))


def test_facts_and_refusals_count_tokens():
    tokens = text.tokens(bpe)
    facts = tokens.facts()
    assert facts["train_tokens"] == len(tokens.train) and facts["tokens"] == len(tokens.train) + len(tokens.validation)
    assert facts["bytes_per_token"] == len(text.data) / facts["tokens"] > 1.5 and facts["vocabulary"] == 350
    assert (
        facts["bytes"] == len(text.data)
        and facts["sha256"] == text.sha256
        and facts["tokens_sha256"] == tokens.tokens_sha256
    )
    long = GPTConfig(layers=1, channels=16, heads=2, context=len(tokens.validation), batch=1)
    text.check(long)
    with pytest.raises(DataError, match=f"{len(tokens.validation):,} there of {facts['tokens']:,} in all"):
        tokens.check(long)


@pytest.mark.parametrize("tokenizer", [bpe, wide((1 << 16) + 1)], ids=["uint16", "int32"])
def test_batches_hold_whole_ids(tokenizer):
    tokens = text.tokens(tokenizer)
    listed = list(tokens.train)
    assert tokens_to_i32(tokens.train) == struct.pack(f"<{len(listed)}i", *listed) == tokens_to_i32(listed)
    held, plain, block = (Batches(source, 7, 3, 5) for source in (tokens.train, listed, tokens.train))
    expected = [plain.next() for _ in range(9)]
    assert [held.next() for _ in range(9)] == expected
    inputs, targets = block.block(9)
    assert [(x.tobytes(), y.tobytes()) for x, y in zip(inputs, targets, strict=True)] == expected
    assert evaluation_batches(tokens.validation, 7, 4, 100) == evaluation_batches(list(tokens.validation), 7, 4, 100)
