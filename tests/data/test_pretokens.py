"""The pre-tokenizer: the engine cuts where GPT-2's regular expression does, whatever the text, and so do pieces of it."""

import random
import sys
import unicodedata
from array import array

import pytest

from posttrainllm.backends.bpe import open_bpe
from posttrainllm.data.bpe_reference import ReferenceBpe
from posttrainllm.data.pretokens import CLASSES, pieces, runs, split
from posttrainllm.data.unicode_classes import VERSION
from posttrainllm.errors import DeviceError
from tests.data.texts import any_bytes, unicode_text


@pytest.fixture(params=["python", "engine"])
def engine(request):
    return ReferenceBpe() if request.param == "python" else open_bpe(runs())


def words(engine, data):
    found, at = [], 0
    for length in engine.split(data):
        found.append(data[at : at + length])
        at += length
    assert at == len(data)
    return found


def test_here_is_the_engine_that_belongs_here():
    engine = open_bpe(runs())
    assert engine is not None and engine.name == ("wasm" if sys.platform == "emscripten" else "native")


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("Hello world's end", "Hello| world|'s| end"),
        ("we'll they'RE don't''s", "we|'ll| they|'|RE| don|'t|''|s"),
        ("a  b   c", "a| | b|  | c"),
        ("x \n y\n\n", "x| \n| y|\n\n"),
        ("  \n", "  \n"),
        (" 3.14abc½x", " 3|.|14|abc|½|x"),
        ("é́e\u0301", "é|\u0301|e|\u0301"),
        ("\u3000漢字\u3000", "\u3000|漢字|\u3000"),
        (" 🙂🙂 !?", " 🙂🙂| !?"),
        ("\u00a0\u00a0a", "\u00a0|\u00a0|a"),
        ("", ""),
    ],
)
def test_known_cuts(engine, text, cut):
    assert words(engine, text.encode()) == [part.encode() for part in cut.split("|") if part]


def test_the_engine_cuts_where_the_regular_expression_does():
    engine, rng = open_bpe(runs()), random.Random(11)
    for _ in range(2000):
        data = any_bytes(rng)
        assert words(engine, data) == split(data), data


def test_every_code_point_has_its_class_in_the_engine():
    """Between a letter, number or mark and a line feed, a character joins what is before it just where it is of its class."""
    engine, letters = open_bpe(runs()), "".join(CLASSES[run & 3] * (run >> 2) for run in runs())
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for before, letter in (("a", "l"), ("1", "n"), ("!", "o")):
        data = "".join(f"{before}{chr(code)}\n" for code in codes).encode()
        expected = array("i")
        for code in codes:
            nbytes = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
            expected.extend((1 + nbytes, 1) if letters[code] == letter else (1, nbytes, 1))
        assert engine.split(data) == expected


def test_the_classes_are_those_of_unicode():
    letters = []
    for run in runs():
        letters += CLASSES[run & 3] * (run >> 2)
    assert len(letters) == 0x110000
    for code, letter in enumerate(letters):
        category = unicodedata.category(chr(code))
        if category == "Cn" and unicodedata.unidata_version < VERSION:
            continue  # this Python's Unicode is older and has no such character yet
        space = category[0] == "Z" or 9 <= code <= 13 or code == 0x85
        assert letter == ("s" if space else {"L": "l", "N": "n"}.get(category[0], "o")), hex(code)


def test_pieces_make_no_difference():
    rng = random.Random(5)
    for _ in range(300):
        data = b"".join(any_bytes(rng) for _ in range(rng.randrange(1, 12)))
        parts = list(pieces(data, rng.randrange(1, 60)))
        assert b"".join(parts) == data and all(parts)
        assert [word for part in parts for word in split(part)] == split(data)
    assert len(list(pieces(b"word " * 1000, 100))) > 40, "it does cut"
    assert list(pieces(b"\xff" * 1000, 100)) == [b"\xff" * 1000], "and not where it must not"


@pytest.mark.native_only(reason="compares with the tokenizers library")
def test_cuts_are_those_of_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    rng = random.Random(3)
    for _ in range(3000):
        text = unicode_text(rng)
        cuts = [text[begin:end].encode() for _, (begin, end) in theirs.pre_tokenize_str(text)]
        assert split(text.encode()) == cuts, text


def test_the_engine_refuses_tables_that_do_not_hold_together():
    engine = open_bpe(runs())
    good = [*range(256), 1, 2, 256]
    for table in (
        [],
        good[:255],
        good[:-1],
        [*good, 1, 2, 257],
        [*good[:-1], -1],
        [-1, *good[1:]],
        [*good, -3, 2, 257],
    ):
        with pytest.raises(DeviceError):
            engine.load(array("i", table))
    engine.load(array("i", good))
    assert engine.encode(bytes([0, 1, 2, 3])).tolist() == [0, 256, 3]
    engine.load(array("i", [*range(256), 0, 1, 256]))
    assert engine.encode(bytes([0, 1, 2, 3])).tolist() == [256, 2, 3], "what was encoded before is forgotten"
    engine.load(array("i", [257 + byte for byte in range(256)]))
    with pytest.raises(DeviceError):
        engine.train(10, 2)
    for tokens, minimum in ((-1, 2), (10, 0)):
        engine.load(array("i", range(256)))
        with pytest.raises(DeviceError):
            engine.train(tokens, minimum)
