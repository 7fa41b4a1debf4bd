"""Speculative decoding: greedy text is the very text without a draft, whatever the draft, the window and the constraint."""

import re
from dataclasses import replace

import pytest

from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.decode.constrain import ENDS, regex
from posttrainllm.decode.generate import window_start, write
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from tests.helpers.constrained import BYTES, WORDS, Noise
from tests.helpers.machines import open_once
from tests.helpers.trained import DRAFT, DRAFT_STEPS, TARGET, trained
from tests.model.test_cache import made, whole

CONTEXT = TARGET.context
GREEDY = {"temperature": 0.0}


@pytest.fixture
def models(machine):
    """A target and a draft that is right every other time; made anew for each test, since tests share the engines."""
    return trained(machine), trained(open_once("cpu-1"), DRAFT, DRAFT_STEPS)


def stranger(context, machine=None):
    """A model that never learned anything."""
    config = GPTConfig(layers=1, channels=12, heads=3, context=context, vocabulary=256, batch=1)
    model = GPT(config, machine or open_once("cpu-1"), Program(config, False))
    model.initialise(8)
    return model


def text_of(model, prompt, tokens, **how):
    """(every piece's text, the last piece)."""
    pieces = list(write(model, prompt, tokens, **{**GREEDY, **how}))
    return [(piece.text, piece.tokens, piece.reason) for piece in pieces], pieces[-1]


TOKENS = 1006  # a thousand, and room for a line that ends
PROMPTS = {count: "".join(chr(97 + 7 * index % 26) for index in range(count)) for count in (1, CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT)}
PATTERN = r"(?:[A-Z][a-z,' -]{4,30}[.;:!?]\n?)*"
LINES = regex(PATTERN, BYTES)


@pytest.fixture(scope="module")
def plain(machine):
    """The texts without a draft, by length of the prompt and whether there is a grammar."""
    target = trained(machine)
    return {
        (count, bound): text_of(target, prompt, TOKENS, **({"constraint": LINES, "end": "longest"} if bound else {}))[0]
        for count, prompt in PROMPTS.items()
        for bound in (False, True)
    }


@pytest.mark.parametrize("bound", [False, True], ids=["free", "grammar"])
@pytest.mark.parametrize("ahead", range(1, 9))
def test_a_thousand_greedy_tokens_are_those_without_a_draft(models, plain, ahead, bound):
    model, draft = models
    how = {"constraint": LINES, "end": "longest"} if bound else {}
    for count, prompt in PROMPTS.items():
        pieces, last = text_of(model, prompt, TOKENS, draft=draft, ahead=ahead, **how)
        assert pieces == plain[count, bound], f"a prompt of {count} tokens"
        assert last.tokens >= 1000
        assert 0.2 < last.acceptance.rate < 0.95, "both verdicts must come"
        assert last.acceptance.tokens == last.tokens, "what a text of this length cannot use is not proposed"
        text = "".join(piece for piece, _, _ in pieces)
        assert len(set(text)) > 20, "it must say something"
        assert not bound or re.fullmatch(PATTERN, text)


@pytest.mark.parametrize("context", [1, 5, 24, 70])
def test_a_draft_of_any_context(models, plain, context):
    draft = trained(open_once("cpu-1"), replace(DRAFT, context=context), 50)
    assert text_of(models[0], PROMPTS[25], TOKENS, draft=draft, ahead=5)[0] == plain[25, False]


def test_a_draft_that_knows_nothing_changes_nothing(models, plain):
    pieces, last = text_of(models[0], PROMPTS[1], TOKENS, draft=stranger(30), ahead=3)
    assert pieces == plain[1, False] and last.acceptance.rate < 0.1


@pytest.mark.parametrize("how", [GREEDY, {"temperature": 0.9, "top_k": 30}, {"temperature": 1.0, "repetition_penalty": 1.3}], ids=str)
def test_a_draft_that_is_the_model_itself_is_always_right(models, how):
    model = models[0]
    twin = trained(open_once("cpu-1"))
    for draft in (model, twin):  # one cache for both, too
        last = text_of(model, "A", 400, draft=draft, ahead=5, **how)[1]
        assert last.acceptance.proposed == last.acceptance.accepted > 200
        assert last.acceptance.tokens_per_pass > 2, "a window of 24 hops every 6 tokens"


def test_tokens_a_pass(models):
    """Without a hop in the way: all of five proposals and one more."""
    config = GPTConfig(layers=1, channels=16, heads=2, context=64, vocabulary=256, batch=1)
    model = made(models[0].machine, config)
    last = text_of(model, "x", 61, draft=model, ahead=5)[1]
    acceptance = last.acceptance
    assert acceptance.tokens == 61 and acceptance.passes == 11, "one for the prompt alone, then ten of six"
    assert acceptance.proposed == acceptance.accepted == 50 and acceptance.rate == 1.0
    assert acceptance.model_seconds > 0 and acceptance.draft_seconds > 0
    assert acceptance.model_seconds + acceptance.draft_seconds <= last.seconds


def test_the_numbers_grow_while_it_writes(models):
    target, draft = models
    pieces = list(write(target, "x", 60, draft=draft, ahead=4, **GREEDY))
    passes = [piece.acceptance.passes for piece in pieces]
    assert passes[0] == 1 and passes == sorted(passes) and passes[-1] < 60
    assert all(piece.acceptance.tokens >= piece.tokens for piece in pieces)
    assert next(iter(write(target, "x", 1))).acceptance is None


def test_the_passes_of_the_model(models, monkeypatch):
    """The target sees the windows that it sees without a draft, the carried token and proposals in one pass each."""
    target, draft = models
    seen, right = [], target.logits_of_async

    async def watched(tokens, last):
        seen.append((list(tokens), last))
        return await right(tokens, last)

    monkeypatch.setattr(target, "logits_of_async", watched)
    text = list(b"Hello, you") + [token for token in _tokens(target, "Hello, you", 150)]
    list(write(target, "Hello, you", 150, draft=draft, ahead=4, **GREEDY))
    stands = 10
    for tokens, last in seen:
        known = len(tokens) - (last - 1)  # without the proposals
        start = window_start(stands, CONTEXT)
        assert tokens[:known] == text[start:stands], "the window as without a draft"
        assert len(tokens) <= CONTEXT and window_start(stands + last - 1, CONTEXT) == start, "no proposal past a hop"
        agreed = 0
        while agreed < last - 1 and tokens[known + agreed] == text[stands + agreed]:
            agreed += 1
        stands += agreed + 1
    assert stands == 160
    assert {last for _, last in seen} == {1, 2, 3, 4, 5}


def _tokens(model, prompt, count):
    seen = list(prompt.encode())
    for _ in range(count):
        seen.append(int(whole(model, seen[window_start(len(seen), CONTEXT) :])[-1].argmax()))
    return seen[len(prompt) :]


def test_what_was_refused_leaves_no_trace_in_either_cache(models):
    """After any number of refused proposals both caches hold what a fresh one would, bit for bit."""
    target, draft = models
    for count, _ in enumerate(write(target, "To be", 90, draft=draft, ahead=6, **GREEDY), 1):
        if count % 10 == 0:
            for model in (target, draft):
                text = model.cached_tokens
                before = bytes(model.logits([*text[:-1], 7]))  # everything but the last row is from the cache
                model.forget_cache()
                assert bytes(model.logits([*text[:-1], 7])) == before


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("pattern", [r"[a-f]{3,40}", r"(yes|no|perhaps)( and so on)*", r"\{\"n\": -?\d{1,9}\}", r"é{1,5}🙂?", ""])
def test_constraints_end_as_without_a_draft(models, pattern, end):
    model, draft = models
    constraint = regex(pattern, BYTES)
    for seed, tokens in enumerate((12, 20, 45)):
        for how in (GREEDY, {"temperature": 1.5, "top_k": 0, "seed": seed}):
            pieces, last = text_of(model, "x", tokens, draft=draft, ahead=4, constraint=constraint, end=end, **how)
            text = "".join(piece for piece, _, _ in pieces)
            assert last.reason == "complete" and re.fullmatch(pattern, text) and last.tokens == len(text.encode()) <= tokens
        assert text_of(model, "x", tokens, draft=draft, constraint=constraint, end=end)[0] == text_of(
            model, "x", tokens, constraint=constraint, end=end
        )[0]


def test_stop_strings_and_whole_characters(models):
    model, draft = models
    prompt = "now I hear them, Ding-dong, bell"
    pieces, _ = text_of(model, prompt, 200)
    text = "".join(piece for piece, _, _ in pieces)
    assert "Où" in text and "" in {piece for piece, _, _ in pieces}, "characters of several tokens must come"
    for stop in ((text[60:63],), (text[100:102], text[150:153]), ("Où",), ("never this",)):
        expected = text_of(model, prompt, 200, stop=stop)[0]
        assert text_of(model, prompt, 200, stop=stop, draft=draft, ahead=7)[0] == expected


def test_a_penalty_is_of_what_the_model_sees(models):
    model, draft = models
    for penalty in (0.8, 1.5):
        how = {"repetition_penalty": penalty}
        assert text_of(model, "Once", 300, draft=draft, **how)[0] == text_of(model, "Once", 300, **how)[0]


def test_choices_are_the_models(models):
    model, draft = models
    expected = [piece.choice for piece in write(model, "Once", 60, choices=3, **GREEDY)]
    assert [piece.choice for piece in write(model, "Once", 60, choices=3, draft=draft, **GREEDY)] == expected


def test_a_seed_repeats_and_another_does_not(models):
    model, draft = models
    how = {"temperature": 1.0, "draft": draft}
    assert text_of(model, "x", 80, seed=1, **how)[0] == text_of(model, "x", 80, seed=1, **how)[0]
    assert text_of(model, "x", 80, seed=1, **how)[0] != text_of(model, "x", 80, seed=2, **how)[0]


@pytest.mark.parametrize("ahead", [0, 17, -1, 2.0, True, None])
def test_a_wrong_number_is_refused_at_once(models, ahead):
    with pytest.raises(ConfigError, match="ahead is a whole number from 1 to 16"):
        write(models[0], "x", 5, draft=models[1], ahead=ahead)


def test_a_draft_with_another_tokenizer_is_refused_at_once(models):
    class Other(ByteTokenizer):
        name = "other"

        def to_dict(self):
            return {"name": "other"}

    draft = stranger(8)
    draft.tokenizer = Other()
    with pytest.raises(ConfigError, match=r"draft: .*the model's tokenizer.*other tokenizer of 256 tokens came for a model with a bytes"):
        write(models[0], "x", 5, draft=draft)


def test_a_larger_draft_may_propose_too(models):
    """It costs time only."""
    model = stranger(16)
    assert text_of(model, "x", 100, draft=models[0])[0] == text_of(model, "x", 100)[0]


def test_a_vocabulary_of_words_and_rows_that_are_no_tokens():
    """Proposals of several bytes each, under a constraint; models with more rows than tokens."""

    class Fixed(Noise):
        def __init__(self, seed):
            super().__init__(WORDS, seed)

        async def logits_async(self, window):
            return self._rows[window[-1] % 50]

        async def logits_of_async(self, tokens, last):
            return [self._rows[token % 50] for token in tokens[-last:]]

    from posttrainllm.decode.constrain import vocabulary_of

    model, draft = Fixed(1), Fixed(2)
    draft._rows[:25] = model._rows[:25]
    constraint = regex("[a-j,. ]{40,90}", vocabulary_of(WORDS))
    for how in ({}, {"constraint": constraint, "end": "longest"}):
        pieces, last = text_of(model, "x", 50, draft=draft, **how) if how else ([], None)
        if how:
            assert pieces == text_of(model, "x", 50, **how)[0] and 0 < last.acceptance.rate < 1
