"""The longest match against a judge that looks everywhere."""

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from posttrainllm.study.matches import Matches, shared_length, sorted_suffixes


def built(data, block_bytes=1 << 20):
    made = Matches(data, block_bytes)
    list(made.build())
    return made


def judge(data, query):
    """Length of the longest beginning of query that stands in data."""
    length = 0
    while length < len(query) and query[: length + 1] in data:
        length += 1
    return length


def every_place(data, query):
    return [start for start in range(len(data)) if data.startswith(query, start)]


few = st.lists(st.sampled_from(b"ab\x00"), max_size=60).map(bytes)
some = st.binary(max_size=40)
texts = st.one_of(few, some, few.map(lambda data: data * 3))


@given(texts)
@example(b"")
@example(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
@example(b"ab\x00\x00\x00\x00\x00\x00\x00\x00\x00ab\x00")
def test_suffixes_are_sorted(data):
    assert sorted_suffixes(data).tolist() == sorted(range(len(data)), key=lambda start: data[start:])


@given(few, st.sampled_from([16, 32]))
def test_up_to_the_reach_only(data, reach):
    order = sorted_suffixes(data, reach).tolist()
    beginnings = [data[start : start + reach] for start in order]
    assert sorted(order) == list(range(len(data))) and beginnings == sorted(beginnings)


@given(texts, texts)
def test_shared_length(one, other):
    wanted = next((n for n in range(min(len(one), len(other))) if one[n] != other[n]), min(len(one), len(other)))
    assert shared_length(one, other) == wanted


@settings(max_examples=300)
@given(texts, texts, st.sampled_from([3, 17, 1 << 20]))
def test_longest_matches_and_places(data, query, block_bytes):
    """Blocks of three bytes: most matches then cross from one into another."""
    index = built(data, block_bytes)
    length, place = index.longest(query)
    assert length == judge(data, query)
    assert data[place : place + length] == query[:length]
    assert index.lengths(query) == [judge(data, query[begin:]) for begin in range(len(query))]
    if query:
        assert index.places(query).tolist() == every_place(data, query)


@settings(max_examples=300)
@given(texts, texts, st.integers(1, 6), st.sampled_from([5, 1 << 20]))
def test_spans_point_to_identical_text(data, output, least, block_bytes):
    index = built(data, block_bytes)
    spans, end = index.spans(output, least), 0
    covered = set()
    for span in spans:
        assert span.begin >= end and span.end - span.begin >= least
        run, end = output[span.begin : span.end], span.end
        assert data[span.at : span.at + len(run)] == run
        assert span.occurrences == len(every_place(data, run)) and span.at == every_place(data, run)[0]
        assert span.line == data.count(b"\n", 0, span.at) + 1
        covered |= set(range(span.begin, span.end))
    if all(byte < 0x80 for byte in output):  # nothing long enough is left out
        for begin in range(len(output) - least + 1):
            if output[begin : begin + least] in data:
                assert covered & set(range(begin, begin + least)), begin


def test_a_span_stands_where_it_is_expected_if_it_does():
    index = built(b"the cat sat. the cat ran. the cat hid.")
    (span,) = index.spans(b"the cat ", 5, expected=13)
    assert (span.at, span.occurrences) == (13, 3)
    (span,) = index.spans(b"the cat ", 5, expected=14)
    assert span.at == 0
    (span,) = index.spans(b"X the cat ran!", 5, expected=10)
    assert (span.begin, span.end, span.at) == (1, 13, 12)


def test_a_span_has_whole_characters():
    data = "Zoë naïve café".encode()
    assert "ë".encode()[:1] == "×".encode()[:1], "the first bytes are alike, the characters are not"
    output = "a×b Zo× ïve café".encode()[:-1]
    spans = built(data).spans(output, 2)
    assert [output[span.begin : span.end].decode() for span in spans] == ["Zo", "ïve caf"]
    assert built(data).longest(b"caf\xc3")[0] == 4, "bytes match further than characters"


def test_lines_count_from_one():
    index = built(b"one\ntwo\n\nfour\n")
    assert [index.line(at) for at in (0, 2, 3, 4, 8, 9, 13)] == [1, 1, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("text", ["letters", "one letter"])
def test_a_megabyte_takes_a_second_or_two(text):
    """Natively 0.3 s; the limit leaves room for a busy machine and for a tab."""
    from posttrainllm.cli_run import _letters

    data = b"a" * 1_000_000 if text == "one letter" else _letters(100_000) * 10
    began = time.perf_counter()
    index = built(data)
    seconds = time.perf_counter() - began
    print(f"{len(data):,} bytes of {text} in {seconds:.2f} s")
    assert seconds < 20
    assert index.longest(data[5000:5400] + b"!") == (400, index.longest(data[5000:5400])[1])
