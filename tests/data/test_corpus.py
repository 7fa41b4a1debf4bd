"""The corpus: what it refuses and in which words, what it cleans, how it is split."""

import hashlib
import sys

import pytest

from posttrainllm.configs import load
from posttrainllm.data import corpus as module
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import DataError
from posttrainllm.model.config import GPTConfig

TINY = GPTConfig(layers=1, channels=16, heads=2, context=8, batch=4)


def refusal(data, name="notes.txt"):
    with pytest.raises(DataError) as caught:
        Corpus.from_bytes(data, name)
    return caught.value


@pytest.mark.parametrize(
    "data", [b"", b" \n\t\r\n ", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"], ids=["empty", "blank", "mark", "mark and blank"]
)
def test_a_text_without_a_letter_is_refused(data):
    error = refusal(data)
    assert error.code == "E-DATA-EMPTY" and "notes.txt is empty" in str(error)


@pytest.mark.parametrize(
    ("data", "came"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary file (a zero byte at 8)"),
        ("wide".encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + "wide".encode("utf-16-be"), "UTF-16"),
        ("wide".encode("utf-16-le"), "binary file (a zero byte at 1)"),
        ("wide".encode("utf-32"), "UTF-16"),
        ("un café".encode("latin-1"), "byte 6 (0xe9) is not UTF-8"),
        (b"half \xe2\x82", "byte 5 (0xe2) is not UTF-8"),
        (b"\x1f\x8b\x08\x08", "byte 1 (0x8b) is not UTF-8"),
    ],
    ids=["png", "utf-16-le", "utf-16-be", "utf-16 without a mark", "utf-32", "latin-1", "cut off", "gzip"],
)
def test_what_is_not_utf8_text_is_refused_and_says_where(data, came):
    error = refusal(data)
    assert error.code == "E-DATA-ENCODING" and came in str(error) and "notes.txt" in str(error)


def test_half_a_surrogate_pair_is_refused_not_a_crash():
    with pytest.raises(DataError) as caught:
        Corpus.from_text("half \ud83d")
    assert caught.value.code == "E-DATA-ENCODING"


def test_a_text_above_the_limit_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(module, "LIMIT_BYTES", 1000)
    error = refusal(b"a" * 1001)
    assert error.code == "E-DATA-HUGE" and "1,000" in str(error) and "1,001" in str(error)
    assert len(Corpus.from_bytes(b"a" * 1000, "x").data) == 1000


@pytest.mark.native_only(reason="makes a sparse file")
def test_a_huge_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "huge.txt"
    with open(path, "wb") as file:
        file.truncate(module.LIMIT_BYTES + 1)
    monkeypatch.setattr(type(path), "read_bytes", lambda self: pytest.fail("it was read"))
    with pytest.raises(DataError) as caught:
        Corpus.from_file(path)
    assert caught.value.code == "E-DATA-HUGE"


def test_fifty_megabytes_are_taken_and_said_to_be_long():
    data = ("Über den Wolken muss die Freiheit wohl grenzenlos sein.\n" * 900_000).encode()[:50_000_000].rstrip(b"\xc3")
    corpus = Corpus.from_bytes(data, "long.txt")
    facts = corpus.facts()
    assert facts["bytes"] == len(data) and facts["characters"] == len(data) - data.count(b"\xc3")
    (said,) = corpus.advice(GPTConfig.preset("medium"))
    assert "long" in said and "21,97" in said  # 45,000,000 / 2,048 steps


def test_a_file_that_is_not_there_or_is_a_folder_is_a_sentence(tmp_path):
    for path in (tmp_path / "none.txt", tmp_path):
        with pytest.raises(DataError, match=r"a text file that can be read; .*check the path") as caught:
            Corpus.named(str(path))
        assert str(path) in str(caught.value)


def test_the_mark_goes_and_line_ends_become_one_kind():
    same = {
        Corpus.from_bytes(data, "x").sha256 for data in (b"a\nb\n", b"a\r\nb\r\n", b"a\rb\r", b"\xef\xbb\xbfa\r\nb\n")
    }
    assert same == {hashlib.sha256(b"a\nb\n").hexdigest()}


def test_a_text_from_a_file_keeps_its_name_and_bytes(tmp_path):
    path = tmp_path / "märchen.md"
    path.write_bytes("Es war einmal …\n".encode())
    corpus = Corpus.from_file(path)
    assert corpus.name == "märchen.md" and corpus.data.decode() == "Es war einmal …\n"


def test_the_split_takes_the_end_and_loses_nothing():
    corpus = Corpus("x", bytes(range(1, 101)))
    assert bytes(corpus.train) + bytes(corpus.validation) == corpus.data
    assert len(corpus.validation) == int(100 * load("training")["validation_fraction"])
    other = corpus.split_at(0.25)
    assert len(other.validation) == 25 and len(corpus.validation) == 10, "the first one must not change"
    assert other.data is corpus.data and other.sha256 == corpus.sha256
    assert corpus.split_at(corpus.validation_fraction) is corpus


def test_both_parts_must_hold_one_window():
    need = TINY.context + 1
    Corpus("x", b"a" * (2 * need), 0.5).check(TINY)
    for part, fraction, nbytes in (("training", 0.5, 2 * need - 2), ("validation", 0.1, 10 * need - 1)):
        with pytest.raises(DataError) as caught:
            Corpus("short.txt", b"a" * nbytes, fraction).check(TINY)
        assert caught.value.code == "E-DATA-SHORT"
        for word in (f"the {part} part", f"{need}", "short.txt", "longer text"):
            assert word in str(caught.value)


def test_a_text_too_small_for_the_model_is_said_once():
    corpus = Corpus("x", b"a" * 100_000)
    (said,) = corpus.advice(GPTConfig.preset("medium"))
    assert "90,000" in said and "842,496" in said
    assert corpus.advice(GPTConfig.preset("tiny")) == []


def test_facts_do_not_depend_on_the_pieces_they_are_read_in(monkeypatch):
    corpus = Corpus.from_text("Grüße, 世界!\nzwei 🙂 Zeilen")
    whole = corpus.facts()
    assert whole["characters"] == len("Grüße, 世界!\nzwei 🙂 Zeilen") and whole["lines"] == 2
    assert whole["distinct_characters"] == len(set("Grüße, 世界!\nzwei 🙂 Zeilen"))
    assert whole["distinct_bytes"] == len(set(corpus.data))
    for size in (1, 2, 3, 5, 7):
        monkeypatch.setattr(module, "PIECE_BYTES", size)
        assert corpus.facts() == whole


@pytest.mark.skipif(sys.platform == "emscripten", reason="the page fetches it; it is not in the package there")
def test_the_bundled_text_is_shakespeare():
    corpus = Corpus.named("shakespeare")
    assert corpus.name == "Shakespeare" and b"ROMEO" in corpus.data and b"\r" not in corpus.data
    corpus.check(GPTConfig.preset("mega"))
    assert Corpus.from_bytes(corpus.data, corpus.name).sha256 == corpus.sha256, "it is clean text as it stands"
