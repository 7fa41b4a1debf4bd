"""Constrained writing: masks and samplers together, where a text ends, and the tokens that it may take."""

import json
import re

import pytest

from posttrainllm.decode.constrain import Vocabulary, read_file, regex, vocabulary_of
from posttrainllm.decode.constrain.guide import ENDS, Guide
from posttrainllm.decode.generate import write
from posttrainllm.decode.sampler import Sampler, SamplerSettings
from posttrainllm.errors import ConfigError, DataError, NonFiniteError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from tests.helpers.constrained import BYTES, WORD_VOCABULARY, WORDS, Noise, written


class Script(Noise):
    """A model that wants these bytes, one after another; the last of them for ever."""

    def __init__(self, text):
        super().__init__()
        self.wanted, self.asked = text.encode(), 0

    async def logits_async(self, window):
        row = [-float(byte) / 100 for byte in range(self.config.vocabulary)]
        row[self.wanted[min(self.asked, len(self.wanted) - 1)]] = 50.0
        self.asked += 1
        return row


@pytest.mark.parametrize(
    ("end", "text", "asked"),
    [("model", "abc", 4), ("first", "ab", 2), ("longest", "abcaaaaa", 8)],
)
def test_where_a_text_ends(end, text, asked):
    model = Script("abc!")
    found, last = written(model, regex("[a-c]{2,}", BYTES), 8, end=end, temperature=0)
    assert (found, last.reason, last.tokens, model.asked) == (text, "complete", len(text), asked)


def test_it_ends_where_nothing_may_come_without_asking_the_model_again():
    model = Script("ab")
    for end in ENDS:
        model.asked = 0
        found, last = written(model, regex("ab|b", BYTES), 8, end=end, temperature=0)
        assert (found, last.tokens, model.asked) == ("ab", 2, 2)


def test_the_empty_text_may_be_all():
    for end, tokens in (("first", 0), ("model", 0), ("longest", 7)):
        text, last = written(Script("x"), regex("a*", BYTES), 7, end=end, temperature=0)
        assert (text, last.tokens, last.reason) == ("a" * tokens, tokens, "complete")


@pytest.mark.parametrize("tokens", [3, 4, 5, 9, 30])
@pytest.mark.parametrize("end", ENDS)
def test_the_budget_is_never_run_over(tokens, end):
    for model, vocabulary in ((Noise(), BYTES), (Noise(WORDS), WORD_VOCABULARY)):
        constraint = regex(r"(a(bc){0,9}(de){3,9}f|gh?[0-9]{1,20}i)", vocabulary)
        for seed in range(40):
            text, last = written(model, constraint, tokens, end=end, seed=seed)
            assert last.tokens <= tokens and last.reason == "complete" and re.fullmatch(r"(a(bc){0,9}(de){3,9}f|gh?[0-9]{1,20}i)", text)


def test_a_budget_too_small_is_refused_at_once():
    with pytest.raises(ConfigError, match="its shortest text, 5 tokens; at most 4 were to be written; allow 5 tokens or more"):
        write(Noise(), "x", 4, constraint=regex("[a-z]{5,}", BYTES))


@pytest.mark.parametrize(
    "how", [{"temperature": 0}, {"top_k": 1}, {"top_k": 5}, {"top_p": 0.3}, {"min_p": 0.5}, {"repetition_penalty": 1.5}, {"temperature": 5.0, "top_k": 3, "top_p": 0.9}],
)
@pytest.mark.parametrize("end", ENDS)
def test_every_filter_keeps_within_the_constraint(how, end):
    pattern = r"[A-Z]{2}(-[0-9a-f]{2})+é?"
    for model, vocabulary in ((Noise(spread=4.0), BYTES), (Noise(WORDS, spread=4.0), WORD_VOCABULARY)):
        constraint = regex(pattern, vocabulary)
        for seed in range(20):
            text, _ = written(model, constraint, 20, end=end, **{"seed": seed, **how})
            assert re.fullmatch(pattern, text)


def test_the_mask_comes_before_the_filters():
    logits = [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    draws = lambda **how: {sampler.draw(logits, (), (2, 4, 5)) for sampler in [Sampler(SamplerSettings(**how))] for _ in range(300)}  # noqa: E731
    assert draws(temperature=1.0, top_k=2) == {2, 4}, "of the allowed, the two likeliest"
    assert draws(temperature=0) == {2}
    assert draws(temperature=1.0, top_k=0) == {2, 4, 5}
    assert draws(temperature=1.0, top_k=0, min_p=0.1) == {2, 4}


def test_a_masked_draw_is_the_draw_of_the_masked_logits():
    noise = Noise()
    row = noise._rows[0][:256]
    allowed = tuple(range(3, 250, 7))
    masked = [value if token in allowed else float("-inf") for token, value in enumerate(row)]
    for how in ({}, {"top_p": 0.5}, {"temperature": 0}, {"min_p": 0.2, "top_k": 9}, {"repetition_penalty": 2.0}):
        for seed in range(30):
            one, two = (Sampler(SamplerSettings(seed=seed, **how)) for _ in range(2))
            assert one.draw(row, (3, 10), allowed) == two.draw(masked, (3, 10))


def test_broken_logits_are_an_error_under_a_mask_too():
    with pytest.raises(NonFiniteError, match="earlier save"):
        Sampler(SamplerSettings()).draw([float("nan"), 1.0], (), (1,))
    with pytest.raises(NonFiniteError, match="an allowed token has a logit"):
        Sampler(SamplerSettings()).draw([float("-inf"), 1.0], (), (0,))


def test_a_stop_string_still_cuts():
    text, last = written(Script("abc;d"), regex("[a-z;]+", BYTES), 20, stop=";", temperature=0)
    assert (text, last.reason) == ("abc", "stop")
    text, last = written(Script("abc;d"), regex("[a-z;]{4}", BYTES), 20, stop=";d", temperature=0)
    assert (text, last.reason) == ("abc;", "complete"), "what could have begun a stop is shown when the text ends"
    text, last = written(Script("ab;!"), regex("[a-z;]+", BYTES), 20, stop=";d", temperature=0)
    assert (text, last.reason, last.tokens) == ("ab;", "complete", 3)


def test_characters_come_whole():
    pieces = list(write(Script("é🙂"), "x", 20, constraint=regex("é🙂?", BYTES), end="longest", temperature=0))
    assert [piece.text for piece in pieces] == ["", "é", "", "", "", "🙂"]
    for model, vocabulary in ((Noise(), BYTES), (Noise(WORDS), WORD_VOCABULARY)):
        constraint = regex("[^a-z]{1,9}", vocabulary)
        for seed in range(60):
            text, last = written(model, constraint, 12, seed=seed)
            assert 1 <= len(text) <= 9 and text.encode().decode() == text and last.tokens <= 12


def test_states_can_be_gone_back_to():
    """As speculation does: a draft's tokens are taken and given up, and what came of it leaves no trace."""
    guide = Guide(regex("(ab?c|[d-f]{2}g)*", BYTES), "longest")
    state = start = guide.start(20, Noise().tokenizer)
    seen = [(state, guide.allowed(state, 9), hash(state))]
    for byte in b"abcdeg":
        state = guide.take(state, byte, 9)
        seen.append((state, guide.allowed(state, 9), hash(state)))
    for state, allowed, number in seen:
        assert guide.allowed(state, 9) == allowed and hash(state) == number
        for token in allowed:
            assert guide.take(state, token, 9) is guide.take(state, token, 9) is not None
    assert guide.take(start, ord("b"), 9) is None and guide.take(start, ord("a"), 1) is None and seen[6][0] is start


def test_a_mask_is_a_byte_for_each_token():
    constraint = regex("[a-c]|de", BYTES)
    start = constraint.start()
    assert constraint.allowed(start) == tuple(b"abcd") and constraint.allowed(start, 1) == tuple(b"abc")
    assert constraint.mask(start) == bytes(int(byte in b"abcd") for byte in range(256))
    assert constraint.mask(start, 1) == bytes(int(byte in b"abc") for byte in range(256))
    assert constraint.mask(start, 7) is constraint.mask(start, 8), "made once"
    after = constraint.advance(start, ord("d"))
    assert not constraint.finished(after) and constraint.mask(after, 1) == bytes(int(byte in b"e") for byte in range(256))
    done = constraint.advance(after, ord("e"))
    assert constraint.finished(done) and constraint.must_stop(done) and not any(constraint.mask(done))
    assert constraint.advance(start, 256) is constraint.advance(start, -1) is None


def test_tokens_without_bytes_are_never_allowed():
    vocabulary = vocabulary_of(WORDS)
    assert vocabulary.tokens[-1] == b"" and WORDS.tokens[-1] == b"<|end|>"
    constraint = regex("(?s:.)*", vocabulary)
    assert len(vocabulary) - 1 not in constraint.allowed(constraint.start()) and constraint.advance(constraint.start(), len(vocabulary) - 1) is None
    with pytest.raises(ConfigError, match="bytes in its tokens"):
        Vocabulary([b"", b""])


def test_a_mark_for_the_end_ends_the_text():
    class Ends(Noise):
        async def logits_async(self, window):
            row = [0.0] * self.config.vocabulary
            row[self.tokenizer.vocabulary - 1] = 30.0
            return row

    text, last = written(Ends(WORDS), regex("[a-z]{3,}", WORD_VOCABULARY), 30)
    assert last.reason == "complete" and 3 <= len(text) <= 7, "as soon as it may end, it does"


def test_another_vocabulary_or_rule_is_refused():
    with pytest.raises(ConfigError, match="made for the model's vocabulary"):
        write(Noise(), "x", 9, constraint=regex("a", WORD_VOCABULARY))
    with pytest.raises(ConfigError, match="end is one of model, first, longest"):
        write(Noise(), "x", 9, constraint=regex("a", BYTES), end="soon")


def test_from_a_file(tmp_path):
    (tmp_path / "a").write_text("[a-z]", "utf-8")
    assert read_file("regex", tmp_path / "a", BYTES).allowed(read_file("regex", tmp_path / "a", BYTES).start()) == tuple(range(97, 123))
    for name, said in (("none", "a UTF-8 file"), ("bad", "a UTF-8 file")):
        (tmp_path / "bad").write_bytes(b"\xff")
        with pytest.raises(DataError, match=said):
            read_file("regex", tmp_path / name, BYTES)
    with pytest.raises(ConfigError, match="its kind is"):
        read_file("xml", tmp_path / "a", BYTES)


CONFIG = GPTConfig(layers=2, channels=16, heads=2, context=20, batch=2)


def test_an_untrained_model_keeps_to_it(any_machine):
    model = GPT(CONFIG, any_machine, Program(CONFIG, training=False))
    model.initialise(3)
    constraint = regex(r"\{\"n\":[1-9][0-9]{0,4}(,\"s\":\"[^\"\\\x00-\x1f]{0,9}\")?\}", vocabulary_of(model.tokenizer))
    found = [model.generate("Once", tokens=50, constraint=constraint, seed=seed, temperature=3.0, top_k=0) for seed in range(6)]
    assert all(set(json.loads(text)) <= {"n", "s"} for text in found) and len(set(found)) > 1
    assert found[0] == model.generate("Once", tokens=50, constraint=constraint, seed=0, temperature=3.0, top_k=0)
