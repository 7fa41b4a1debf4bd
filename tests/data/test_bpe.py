"""BPE: any bytes come back, the engine encodes as the plain Python judge does, and what a page shows is what was done."""

import random
from array import array

import pytest

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.bpe_reference import ReferenceBpe
from posttrainllm.data.symbols import BYTE_ORDER, SYMBOLS, from_symbols, to_symbols
from posttrainllm.data.tokenizers import from_dict
from posttrainllm.errors import DataError
from tests.data.texts import LEARNED_FROM, any_bytes

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies
few = hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
END = "<|endoftext|>"
bpe = BPETokenizer.train(LEARNED_FROM.encode(), 512, (END, "<|end"))
byte_level = BPETokenizer([bytes((byte,)) for byte in range(256)], [])


@few
@hypothesis.given(st.binary())
def test_any_bytes_come_back(data):
    for tokenizer in (bpe, byte_level):
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data


@few
@hypothesis.given(st.text() | st.text("the fox 's'\n🙂"))
def test_a_text_comes_back_and_a_stream_never_shows_half_a_character(text):
    tokens = bpe.encode(text)
    assert bpe.decode(tokens) == text and all(0 <= token < bpe.vocabulary for token in tokens)
    stream = bpe.stream()
    shown = [stream.push(token) for token in tokens]
    assert "".join(shown) == text and stream.finish() == ""


@few
@hypothesis.given(st.lists(st.integers(0, bpe.vocabulary - 1)))
def test_a_stream_of_any_tokens_says_what_decode_says(tokens):
    stream = bpe.stream()
    assert "".join([*map(stream.push, tokens), stream.finish()]) == bpe.decode(tokens)


def test_the_engine_encodes_as_the_judge_does():
    judge, rng = ReferenceBpe(), random.Random(8)
    judge.load(bpe._table)
    for _ in range(2000):
        data = any_bytes(rng)
        assert bpe.engine.encode(data) == judge.encode(data), data
    for long in (b"a" * 900, b" " * 700, b"the" * 300, LEARNED_FROM.encode()[:700].replace(b" ", b"x")):
        assert bpe.engine.encode(long) == judge.encode(long)


def test_merges_that_no_training_gives_are_applied_in_their_order():
    """Tokens made in two ways, merges whose parts come later, and any order: as a foreign file may have them."""
    rng = random.Random(21)
    for _ in range(60):
        tokens = [bytes((byte,)) for byte in range(256)]
        rng.shuffle(tokens)
        words = {bytes(rng.choices(b"abc", k=rng.randrange(2, 7))) for _ in range(30)}
        ids = {word: token for token, word in enumerate([*tokens, *words])}
        pairs = [
            (ids[word[:cut]], ids[word[cut:]])
            for word in words
            for cut in range(1, len(word))
            if word[:cut] in ids and word[cut:] in ids
        ]
        rng.shuffle(pairs)
        made = BPETokenizer([*tokens, *words], pairs)
        judge = ReferenceBpe()
        judge.load(made._table)
        for _ in range(30):
            data = bytes(rng.choices(b"aabbc ", k=rng.randrange(1, 60)))
            assert made.encode_bytes(data) == judge.encode(data)


def test_more_words_than_are_remembered():
    rng = random.Random(2)
    words = [b" %x" % rng.getrandbits(60) for _ in range(70_000)]
    data = b"".join(words)
    judge = array("i")
    for word in words[-500:]:
        judge.extend(bpe.engine.encode(word))
    ids = bpe.encode_bytes(data)
    assert ids[-len(judge) :] == judge and bpe.decode_bytes(ids) == data


def test_special_tokens_are_one_token_and_the_longest_is_found():
    end, short = bpe.specials[END], bpe.specials["<|end"]
    assert (end, short) == (bpe.vocabulary - 2, bpe.vocabulary - 1)
    assert bpe.encode(f"a{END}<|end{END}").tolist() == [*bpe.encode("a"), end, short, end]
    assert bpe.decode([end]) == END
    assert [part["special"] for part in bpe.pieces(f"x{END}")] == [False, True]


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert bpe.decode(bpe.encode("a\ud83db")) == "a\ufffdb"
    assert bpe.decode(bpe.encode("\ud83d\ude42")) == "🙂"


@pytest.mark.parametrize("token", [-1, 512, 1 << 40])
def test_a_token_outside_the_vocabulary_is_refused(token):
    for use in (lambda: bpe.decode([token]), lambda: bpe.stream().push(token)):
        with pytest.raises(DataError) as caught:
            use()
        assert caught.value.code == "E-DATA-TOKEN"


def test_a_checkpoint_keeps_it():
    again = from_dict(bpe.to_dict())
    assert (again.tokens, again.merges, again.specials) == (bpe.tokens, bpe.merges, bpe.specials)
    assert again.to_dict() == bpe.to_dict() and again.vocabulary == bpe.vocabulary == bpe.to_dict()["vocabulary"]


def test_pieces_say_where_each_token_stands():
    text = "It's the naïve 漢"
    parts = bpe.pieces(text)
    data = text.encode()
    assert parts[0]["begin"] == 0 and parts[-1]["end"] == len(data)
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        assert bpe.tokens[part["id"]] == data[part["begin"] : part["end"]]
        assert following is None or part["end"] == following["begin"]
    assert byte_level.pieces("é") == [
        {"id": 0xC3, "text": "\\xc3", "begin": 0, "end": 1, "special": False},
        {"id": 0xA9, "text": "\\xa9", "begin": 1, "end": 2, "special": False},
    ]


def test_merges_are_shown_in_order_and_word_by_word():
    rows = bpe.merge_list()
    assert [row["rank"] for row in rows] == list(range(len(bpe.merges))) and rows[0]["id"] == 256
    for row in rows:
        assert row["text"] == row["left"] + row["right"] or "\\x" in row["left"] + row["right"]
    stages = bpe.merge_stages(" house")
    assert stages[0] == list(" house") and all("".join(stage) == " house" for stage in stages)
    assert [len(stage) for stage in stages] == list(range(6, 6 - len(stages), -1)), "one merge a stage"
    assert stages[-1] == [part["text"] for part in bpe.pieces(" house")]
    for wrong in ("", "two words", "a" * 2000):
        with pytest.raises(DataError, match="one word"):
            bpe.merge_stages(wrong)


def test_bytes_have_gpt2s_stand_ins():
    assert sorted(BYTE_ORDER) == list(range(256)) and len(set(SYMBOLS.values())) == 256
    assert to_symbols(b" the\n") == "ĠtheĊ" and to_symbols(b"\x00\xad\xff") == "ĀŃÿ"
    assert from_symbols(to_symbols(bytes(range(256)))) == bytes(range(256)) and from_symbols("a b") is None
    assert list(BYTE_ORDER) == sorted(range(256), key=lambda byte: ord(SYMBOLS[byte])), (
        "as BpeTrainer sorts its alphabet"
    )


@pytest.mark.parametrize(
    ("tokens", "merges", "specials", "said"),
    [
        ([bytes((byte,)) for byte in range(255)], [], {}, "0xff is none"),
        ([*byte_level.tokens, b"ab"], [(97, 300)], {}, "join tokens of the vocabulary"),
        ([*byte_level.tokens, b"ab"], [(97, 98), (97, 98)], {}, "merged once"),
        (byte_level.tokens, [(97, 98)], {}, "what a merge makes"),
        ([*byte_level.tokens, b"ab", b"ab"], [], {}, "spelt alike"),
        ([*byte_level.tokens, b"ab", b"<s>"], [(97, 257)], {"<s>": 257}, "join tokens of the vocabulary"),
        ([*byte_level.tokens, "Ã©".encode(), "é".encode()], [], {"Ã©": 256}, "spelt alike"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(tokens, merges, specials, said):
    with pytest.raises(DataError, match=said):
        BPETokenizer(tokens, merges, specials)
