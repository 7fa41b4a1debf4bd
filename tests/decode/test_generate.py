"""Writing: whole characters, stop strings wherever they fall, the sliding window, and a real model."""

import pytest

from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.decode.generate import window_start, write
from posttrainllm.errors import ConfigError, DataError, NonFiniteError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies


class Script:
    """A model that writes the bytes it was given, and remembers what it saw."""

    tokenizer = ByteTokenizer()
    config = GPTConfig(layers=1, channels=4, heads=1, context=8, vocabulary=300)

    def __init__(self, text):
        self.data = text if isinstance(text, bytes) else text.encode()
        self.windows = []

    async def logits_async(self, window):
        self.windows.append(list(window))
        row = [-20.0] * self.config.vocabulary
        row[self.data[len(self.windows) - 1]] = 20.0
        row[290] = 50.0  # a row of the vocabulary that is no token
        return row


def written(text, tokens=None, **how):
    model = Script(text)
    pieces = list(write(model, "x", tokens or len(model.data), **how))
    return pieces, "".join(piece.text for piece in pieces)


def test_text_comes_in_whole_characters():
    pieces, text = written("añ🙂b")
    assert text == "añ🙂b"
    assert [piece.text for piece in pieces] == ["a", "", "ñ", "", "", "", "🙂", "b"]
    assert [piece.tokens for piece in pieces] == list(range(1, 9))
    assert [piece.reason for piece in pieces] == [None] * 7 + ["length"]


def test_a_character_cut_off_by_the_length_becomes_the_replacement_character():
    assert written("a🙂", tokens=3)[1] == "a\ufffd"


def test_seconds_rise():
    pieces, _ = written("abc")
    assert 0 <= pieces[0].seconds <= pieces[1].seconds <= pieces[2].seconds


@pytest.mark.parametrize(
    ("text", "stop", "left"),
    [
        ("one END two", "END", "one "),
        ("one EEND two", "END", "one E"),
        ("ENEND", "END", "EN"),
        ("aabaabaac", "aabaac", "aab"),
        ("no stop here", "END", "no stop here"),
        ("ends with EN", "END", "ends with EN"),
        ("Grüße🙂!", "🙂", "Grüße"),
        ("END", "END", ""),
        ("x\n\ny", "\n\n", "x"),
    ],
)
def test_a_stop_string_across_tokens_ends_the_text_and_is_not_shown(text, stop, left):
    pieces, shown = written(text, stop=(stop,))
    assert shown == left
    assert pieces[-1].reason == ("stop" if stop in text else "length")


def test_the_earliest_of_several_stops_counts():
    assert written("abcdef", stop=("ef", "cd", ""))[1] == "ab"
    assert written("abcdef", stop="cd")[1] == "ab", "one text instead of several"


@hypothesis.settings(max_examples=300, deadline=None, derandomize=True)
@hypothesis.given(st.text("abé", min_size=1, max_size=12), st.lists(st.text("abé", min_size=1, max_size=4), max_size=3))
def test_stops_cut_as_find_does(text, stops):
    ends = [text.encode().find(stop.encode()) + len(stop.encode()) for stop in stops if stop in text]
    model = Script(text)
    pieces = list(write(model, "x", len(model.data), stop=tuple(stops)))
    shown = "".join(piece.text for piece in pieces)
    if not ends:
        assert shown == text
        return
    end = min(ends)  # the text is cut when the first stop is complete, before the earliest that it holds
    so_far = text.encode()[:end].decode()
    assert shown == so_far[: min(so_far.find(stop) for stop in stops if stop in so_far)]
    assert pieces[-1].tokens == end and pieces[-1].reason == "stop"


def test_past_the_context_the_window_moves_by_quarters_of_it():
    """The context is 8: it hops by 2, and the model sees 7 or 8 tokens."""
    model = Script("abcdefghijkl")
    list(write(model, "xyz", 12))
    assert model.windows[0] == list(b"xyz") and model.windows[-1] == list(b"defghijk")
    assert [len(window) for window in model.windows] == [3, 4, 5, 6, 7, 8, 7, 8, 7, 8, 7, 8]
    text = b"xyzabcdefghijkl"
    for count, window in enumerate(model.windows, 3):
        assert text[:count].endswith(bytes(window)), "the last tokens, none left out"


@pytest.mark.parametrize(("context", "hop"), [(1, 1), (3, 1), (4, 1), (8, 2), (20, 5), (128, 32)])
def test_window_starts(context, hop):
    starts = [window_start(count, context) for count in range(1, 4 * context + 2)]
    assert starts[: context] == [0] * context
    for count, start in enumerate(starts, 1):
        assert start % hop == 0 and 1 <= count - start <= context
        assert count <= context or count - start > context - hop


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True, None, 1_000_001])
def test_a_length_outside_its_range_is_refused_at_once(tokens):
    with pytest.raises(ConfigError, match="tokens is a whole number"):
        write(Script("a"), "x", tokens)


def test_an_empty_prompt_or_a_wrong_setting_is_refused_at_once():
    with pytest.raises(DataError, match="at least one character"):
        write(Script("a"), "")
    with pytest.raises(ConfigError, match="top_p"):
        write(Script("a"), "x", top_p=2)


CONFIG = GPTConfig(layers=2, channels=16, heads=2, context=20, batch=2)


@pytest.fixture
def model(any_machine):
    made = GPT(CONFIG, any_machine, Program(CONFIG, training=False))
    made.initialise(3)
    return made


def test_a_real_model_repeats_by_its_seed_and_slides_past_its_context(model):
    text = model.generate("Once", tokens=40, seed=1)
    assert text == model.generate("Once", tokens=40, seed=1) != model.generate("Once", tokens=40, seed=2)


def test_greedy_takes_the_largest_logit(model):
    logits = list(model.logits(b"Once"))
    first = next(write(model, "Once", 1, temperature=0))
    assert first.text.encode() in (bytes([logits.index(max(logits))]), "\ufffd".encode())


def test_a_prompt_longer_than_the_context_is_cut_by_write_and_refused_by_logits(model):
    assert len(list(write(model, "x" * 100, 3))) == 3
    for tokens in (b"", b"x" * 21):
        with pytest.raises(DataError, match="1 to 20 tokens"):
            model.logits(tokens)


def test_broken_weights_end_the_text_with_an_error(any_machine):
    made = GPT(CONFIG, any_machine, Program(CONFIG, training=False))
    made.initialise(3)
    made.set_weight_bytes("ln_f.bias", b"\0\0\xc0\x7f" * 16)
    with pytest.raises(NonFiniteError):
        next(write(made, "x", 3))
