"""tokenizer.json: the tokenizers library and we read each other's and make the same ids; all else is refused in a sentence."""

import json
import random

import pytest

from posttrainllm.data import tokenizer_json
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.errors import FormatError
from tests.data.texts import LEARNED_FROM, unicode_text

END = "<|endoftext|>"
bpe = BPETokenizer.train(LEARNED_FROM.encode(), 350, (END,))


def parts(tokenizer):
    return tokenizer.tokens, tokenizer.merges, tokenizer.specials


def test_what_is_written_is_read_again():
    for indent in (None, 2):
        assert parts(BPETokenizer.from_json(bpe.to_json(indent))) == parts(bpe)
    assert BPETokenizer.from_json(bpe.to_json().encode()).encode("the end") == bpe.encode("the end")


@pytest.mark.native_only(reason="compares with the tokenizers library")
def test_ten_thousand_texts_have_the_ids_of_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer.from_str(bpe.to_json())
    rng = random.Random(1)
    texts = [unicode_text(rng) for _ in range(10_000)]
    for text, encoding in zip(texts, theirs.encode_batch(texts), strict=True):
        assert bpe.encode(text).tolist() == encoding.ids, text
        assert bpe.decode(encoding.ids) == theirs.decode(encoding.ids, skip_special_tokens=False) == text


@pytest.mark.native_only(reason="compares with the tokenizers library")
def test_files_that_the_tokenizers_library_writes_are_read():
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = tokenizers.decoders.ByteLevel()
    theirs.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=[END, "<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    theirs.train_from_iterator([LEARNED_FROM], trainer)
    theirs.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ("wölk", "<x y>")])
    ours = BPETokenizer.from_json(theirs.to_str())
    assert list(ours.specials) == [END, "<pad>", "wölk", "<x y>"] and ours.specials["<x y>"] == ours.vocabulary - 1
    rng = random.Random(6)
    for _ in range(500):
        text = unicode_text(rng) + rng.choice(("", END, "<pad>x", "<x y>", "Wwölk"))
        assert ours.encode(text).tolist() == theirs.encode(text).ids, text


@pytest.mark.native_only(reason="compares with the tokenizers library")
def test_merges_in_any_order_have_the_ids_of_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    rng = random.Random(12)
    for _ in range(100):
        words = {bytes(rng.choices(b"abc", k=rng.randrange(2, 7))) for _ in range(40)}
        tokens = [*(bytes((byte,)) for byte in range(256)), *words]
        ids = {word: token for token, word in enumerate(tokens)}
        pairs = [
            (ids[w[:cut]], ids[w[cut:]]) for w in words for cut in range(1, len(w)) if w[:cut] in ids and w[cut:] in ids
        ]
        rng.shuffle(pairs)
        ours = BPETokenizer(tokens, pairs)
        theirs = tokenizers.Tokenizer.from_str(ours.to_json())
        for _ in range(30):
            text = "".join(rng.choices("aabbc ", k=rng.randrange(60)))
            assert ours.encode(text).tolist() == theirs.encode(text).ids, text


def change(*path_and_value):
    """A function that sets one value deep in the file."""
    *path, key, value = path_and_value

    def harm(whole):
        for step in path:
            whole = whole[step]
        whole[key] = value

    return harm


def drop(*path):
    def harm(whole):
        for step in path[:-1]:
            whole = whole[step]
        del whole[path[-1]]

    return harm


ADDED = {"id": 349, "content": END, "special": True}
HOSTILE = {
    "another normalizer": (change("normalizer", {"type": "NFC"}), "no normalizer; NFC came"),
    "truncation": (change("truncation", {"max_length": 5}), "no truncation"),
    "padding": (change("padding", {"direction": "Left"}), "no padding"),
    "a blank put before": (change("pre_tokenizer", "add_prefix_space", True), "add_prefix_space false; True came"),
    "blanks as they please": (drop("pre_tokenizer", "add_prefix_space"), "add_prefix_space false; None came"),
    "no regular expression": (change("pre_tokenizer", "use_regex", False), "use_regex true; False came"),
    "another pre-tokenizer": (change("pre_tokenizer", {"type": "Whitespace"}), "'Whitespace' came"),
    "no pre-tokenizer": (change("pre_tokenizer", None), "pre_tokenizer is an object; None came"),
    "another decoder": (change("decoder", {"type": "WordPiece"}), "decoder is ByteLevel"),
    "a post-processor": (change("post_processor", {"type": "TemplateProcessing"}), "post_processor is ByteLevel"),
    "another model": (change("model", "type", "WordPiece"), "its model is BPE; 'WordPiece' came"),
    "no model": (drop("model"), "its model is an object"),
    "dropout": (change("model", "dropout", 0.1), "without dropout"),
    "a prefix": (change("model", "continuing_subword_prefix", "##"), "without continuing_subword_prefix"),
    "a suffix": (change("model", "end_of_word_suffix", "</w>"), "without end_of_word_suffix"),
    "byte fallback": (change("model", "byte_fallback", True), "without byte_fallback"),
    "ignored merges": (change("model", "ignore_merges", True), "without ignore_merges"),
    "no vocabulary": (change("model", "vocab", []), "its vocabulary is an object"),
    "the same id twice": (change("model", "vocab", "he", 5), "no two tokens have the same id"),
    "an id beyond": (change("model", "vocab", "he", 350), "whole numbers from 0 to 349"),
    "an id below": (change("model", "vocab", "he", -1), "whole numbers from 0 to 349"),
    "an id that is text": (change("model", "vocab", "he", "5"), "whole numbers"),
    "an id that is true": (change("model", "vocab", "he", True), "whole numbers"),
    "an id beyond counting": (change("model", "vocab", "he", 10**30), "whole numbers"),
    "a token without spelling": (change("model", "vocab", "a b", 350), "256 characters"),
    "an empty token": (change("model", "vocab", "", 350), "256 characters"),
    "half a character": (change("model", "vocab", "\ud800", 350), "256 characters"),
    "no merges": (change("model", "merges", None), "its merges are a list"),
    "merges of unknown tokens": (change("model", "merges", 3, "zz yy"), "merge 3 names 'zz'"),
    "merges whose token is missing": (change("model", "merges", 3, "! !"), "what a merge makes is a token"),
    "a merge of three": (change("model", "merges", 3, "a b c"), "a merge is two tokens"),
    "a merge of numbers": (change("model", "merges", 3, [1, 2]), "a merge is two tokens"),
    "a merge that is null": (change("model", "merges", 3, None), "a merge is two tokens"),
    "an added token with another id": (change("added_tokens", [ADDED | {"id": 3}]), "has the id 349"),
    "an added token far away": (change("added_tokens", [ADDED | {"content": "<x>", "id": 9000}]), "has the id 350"),
    "an added token without text": (change("added_tokens", [ADDED | {"content": ""}]), "has a text"),
    "an added token of half a character": (change("added_tokens", [ADDED | {"content": "\ud800"}]), "has a text"),
    "an added token that strips": (change("added_tokens", [ADDED | {"lstrip": True}]), "stands for its text alone"),
    "an added token twice": (change("added_tokens", [ADDED, ADDED]), "is there twice"),
    "an added token that is a number": (change("added_tokens", [349]), "an added token is an object"),
    "added tokens of two kinds": (
        change("added_tokens", [ADDED | {"normalized": True}, ADDED | {"content": "<x>", "id": 350}]),
        "all normalized or none",
    ),
    "an added token that merges use": (
        change("added_tokens", [{"id": 256, "content": bpe.merge_list()[0]["text"].replace(" ", "Ġ")}]),
        "what a merge makes",
    ),
    "added tokens that are text": (change("added_tokens", "END"), "its added_tokens are a list"),
}


@pytest.mark.parametrize(("harm", "said"), HOSTILE.values(), ids=HOSTILE)
def test_what_cannot_be_represented_is_refused_and_said(harm, said):
    whole = json.loads(bpe.to_json())
    harm(whole)
    with pytest.raises(FormatError) as caught:
        BPETokenizer.from_json(json.dumps(whole))
    assert said in str(caught.value) and caught.value.code == "E-FORMAT-TOKENIZER" and "\n" not in str(caught.value)


def test_a_merge_given_twice_is_refused():
    whole = json.loads(bpe.to_json())
    whole["model"]["merges"].append(whole["model"]["merges"][0])
    with pytest.raises(FormatError, match="each pair is merged once"):
        BPETokenizer.from_json(json.dumps(whole))


def test_a_byte_that_is_no_token_is_refused():
    whole = json.loads(bpe.to_json())
    vocab = whole["model"]["vocab"]
    vocab["ĊĊĊĊĊ"] = vocab.pop("Ā")
    with pytest.raises(FormatError, match="0x00 is none"):
        BPETokenizer.from_json(json.dumps(whole))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b'{"model": NaN}',
        b"[" * 100_000,
        b'{"a": 1, "a": 2}',
        b"1" * 5000,
        b'{"model":{"vocab":{"a":0,"a":0}}}',
    ],
)
def test_what_is_no_such_json_is_refused(data):
    with pytest.raises(FormatError) as caught:
        BPETokenizer.from_json(data)
    assert caught.value.code == "E-FORMAT-TOKENIZER"


def test_sizes_are_bounded(monkeypatch):
    monkeypatch.setattr(tokenizer_json, "LIMIT_BYTES", 1000)
    with pytest.raises(FormatError, match="at most 1,000 bytes"):
        BPETokenizer.from_json(bpe.to_json())
    monkeypatch.setattr(tokenizer_json, "LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(tokenizer_json, "MAX_TOKENS", 349)
    with pytest.raises(FormatError, match="at most 349 tokens"):
        BPETokenizer.from_json(bpe.to_json())


def test_newer_and_older_ways_of_writing_are_read():
    whole = json.loads(bpe.to_json())
    whole["model"]["merges"] = [merge.split(" ") for merge in whole["model"]["merges"]]
    for part in ("truncation", "padding", "normalizer", "post_processor", "version"):
        del whole[part]
    for name in ("dropout", "byte_fallback", "ignore_merges", "type"):
        del whole["model"][name]
    del whole["pre_tokenizer"]["use_regex"]
    assert parts(BPETokenizer.from_json(json.dumps(whole))) == parts(bpe)
    del whole["model"]["vocab"][END]  # then it takes the id after the vocabulary, which is the same
    assert parts(BPETokenizer.from_json(json.dumps(whole))) == parts(bpe)
