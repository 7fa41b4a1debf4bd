"""Bytes as tokens: any text comes back, and a stream never shows half a character."""

import pytest

from posttrainllm.data.tokenizers import ByteTokenizer, from_dict
from posttrainllm.errors import DataError, FormatError

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies
few = hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
bytes_ = ByteTokenizer()


@few
@hypothesis.given(st.text())
def test_a_text_comes_back(text):
    tokens = bytes_.encode(text)
    assert bytes_.decode(tokens) == text and all(0 <= token < bytes_.vocabulary for token in tokens)
    stream, shown = bytes_.stream(), []
    for token in tokens:
        shown.append(stream.push(token))
        assert "\ufffd" not in shown[-1] or "\ufffd" in text
    assert "".join(shown) == text and stream.finish() == ""


@few
@hypothesis.given(st.binary())
def test_a_stream_of_any_bytes_says_what_decode_says(data):
    stream = bytes_.stream()
    assert "".join([*map(stream.push, data), stream.finish()]) == bytes_.decode(data)


def test_an_unfinished_character_waits_and_then_is_replaced():
    stream = bytes_.stream()
    assert [stream.push(token) for token in "é🙂".encode()[:-1]] == ["", "é", "", "", ""]
    assert stream.finish() == "\ufffd"


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert bytes_.encode("a\ud83db") == "a\ufffdb".encode()
    assert bytes_.encode("\ud83d\ude42") == "🙂".encode(), "a whole pair, as JavaScript may send it, is its character"


def test_a_checkpoint_names_its_tokenizer():
    assert from_dict(bytes_.to_dict()).to_dict() == {"name": "bytes", "vocabulary": 256}
    for settings in ({"name": "wordpiece"}, {}, {"name": ["bytes"]}):
        with pytest.raises(DataError, match="newer version"):
            from_dict(settings)
    for settings in ({"name": "bpe"}, {"name": "bpe", "json": ["{}"]}):
        with pytest.raises(FormatError, match="tokenizer.json"):
            from_dict(settings)
