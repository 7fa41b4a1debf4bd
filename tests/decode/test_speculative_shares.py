"""What speculation samples has exactly the model's distribution: chi-squared over whole short texts, against shares computed here."""

import math
from itertools import product

import pytest

from posttrainllm.decode import speculative
from posttrainllm.decode.constrain import Vocabulary, regex
from posttrainllm.decode.generate import write
from posttrainllm.decode.sampler import Sampler, SamplerSettings
from posttrainllm.errors import NonFiniteError
from posttrainllm.model.config import GPTConfig

LETTERS = "abcde"
LENGTH = 3
SAMPLES = 3000


class Tokenizer:
    """One token a letter."""

    name, vocabulary, specials = "letters", 5, {}
    tokens = tuple(letter.encode() for letter in LETTERS)

    def encode(self, text):
        return [LETTERS.index(letter) for letter in text]

    def to_dict(self):
        return {"name": self.name}

    def stream(self):
        class Stream:
            def push(self, token):
                return LETTERS[token]

            def finish(self):
                return ""

        return Stream()


class Table:
    """Logits by the last two tokens. There are two rows more than tokens, and they are the highest."""

    tokenizer = Tokenizer()

    def __init__(self, turn, scale, context=6):
        self.config = GPTConfig(layers=1, channels=4, heads=1, context=context, vocabulary=7)
        self._turn, self._scale = turn, scale

    def row(self, tokens):
        before = sum((index + 1) * token for index, token in enumerate(tokens[-2:]))
        return [self._scale * math.sin(self._turn * (3 * token + before + 1)) for token in range(5)] + [9.0, 9.0]

    async def logits_async(self, window):
        return self.row(window)

    async def logits_of_async(self, tokens, last):
        assert len(tokens) <= self.config.context
        return [self.row(tokens[: len(tokens) - last + 1 + index]) for index in range(last)]


MODEL, DRAFT = Table(1.3, 1.5), Table(1.6, 1.2)


def shares_of(logits, seen, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, allowed=None):
    """The sampler's distribution, written down anew."""
    scores = {token: logits[token] for token in (range(5) if allowed is None else allowed)}
    for token in set(seen) & set(scores):
        scores[token] *= 1 / repetition_penalty if scores[token] > 0 else repetition_penalty
    ranked = sorted(scores, key=lambda token: -scores[token])[: top_k or None]
    weights = {token: math.exp(scores[token] / temperature) for token in ranked}
    total, kept, mass = sum(weights.values()), [], 0.0
    for token in ranked:
        kept.append(token)
        mass += weights[token] / total
        if mass >= top_p:
            break
    kept = [token for token in kept if weights[token] >= min_p * weights[ranked[0]]]
    return {token: weights[token] / sum(weights[each] for each in kept) for token in kept}


def expected_texts(model, prompt, constraint=None, **how):
    """The probability of each text of LENGTH letters, or of each that the constraint accepts where it ends."""
    found, open_texts = {}, [("", 1.0, constraint.start() if constraint else None)]
    for left in range(LENGTH, 0, -1):
        rest = []
        for text, share, state in open_texts:
            seen = (Tokenizer().encode(prompt + text))[-model.config.context :]
            allowed = constraint.allowed(state, left) if constraint else None
            if constraint and state.accepts:
                if not allowed:
                    found[text] = found.get(text, 0.0) + share
                    continue
                allowed = None  # end="model": drawn from all, and what may not come is the end
            for token, chance in shares_of(model.row(seen), seen, allowed=allowed, **how).items():
                after = constraint.advance(state, token) if constraint else None
                if constraint and (after is None or after.distance >= left):
                    found[text] = found.get(text, 0.0) + share * chance
                else:
                    rest.append((text + LETTERS[token], share * chance, after))
        open_texts = rest
    for text, share, _ in open_texts:
        found[text] = found.get(text, 0.0) + share
    return found


def statistic(model, draft, ahead, samples=SAMPLES, prompt="ab", constraint=None, **how):
    """(Pearson's statistic, degrees of freedom) of texts written with a draft; one that cannot come fails at once."""
    expected, counts = expected_texts(model, prompt, constraint, **how), {}
    assert abs(sum(expected.values()) - 1) < 1e-9
    for seed in range(samples):
        pieces = write(model, prompt, LENGTH, draft=draft, ahead=ahead, seed=seed, constraint=constraint, **{"temperature": 1.0, "top_k": 0, **how})
        text = "".join(piece.text for piece in pieces)
        counts[text] = counts.get(text, 0) + 1
    assert set(counts) <= set(expected), "a text that cannot come"
    rare = {text for text, share in expected.items() if share * samples < 5}
    cells = [(counts.get(text, 0), share) for text, share in expected.items() if text not in rare]
    cells.append((sum(counts.get(text, 0) for text in rare), sum(expected[text] for text in rare)))
    cells = [cell for cell in cells if cell[1] > 0]
    return sum((count - samples * share) ** 2 / (samples * share) for count, share in cells), len(cells) - 1


def limit(degrees):
    """Exceeded once in 10,000 honest samples (Wilson and Hilferty's approximation)."""
    return degrees * (1 - 2 / (9 * degrees) + 3.719 * math.sqrt(2 / (9 * degrees))) ** 3


HOW = [
    {},
    {"temperature": 0.6},
    {"top_k": 3},
    {"top_p": 0.8},
    {"min_p": 0.3},
    {"repetition_penalty": 1.7},
    {"temperature": 1.4, "top_k": 4, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 0.7},
]


@pytest.mark.parametrize("how", HOW, ids=str)
def test_texts_come_as_often_as_without_a_draft(how):
    value, degrees = statistic(MODEL, DRAFT, 2, **how)
    assert value < limit(degrees)


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_a_draft_that_sees_the_texts_otherwise(ahead):
    value, degrees = statistic(MODEL, Table(0.4, 4.0, context=3), ahead, prompt="abcde")
    assert value < limit(degrees)


VOCABULARY = Vocabulary(Tokenizer.tokens)


@pytest.mark.parametrize("pattern", ["a?[bcd]{1,2}", "(a|bb|c[de]){1,3}", "[a-e]{3}"])
def test_under_a_constraint(pattern):
    """Also where a token that may not come ends the text (end="model")."""
    value, degrees = statistic(MODEL, DRAFT, 2, constraint=regex(pattern, VOCABULARY))
    assert value < limit(degrees)


def always(sampler, proposal, drafted, wanted):
    return proposal


def swapped(sampler, proposal, drafted, wanted):
    if sampler.uniform() * wanted.get(proposal, 0.0) < drafted[proposal]:
        return proposal
    return sampler.pick(wanted)


def drawn_again(sampler, proposal, drafted, wanted):
    """The right chance to stay, but a refused proposal is replaced by the model's own choice, not by what it misses."""
    if sampler.uniform() * drafted[proposal] < wanted.get(proposal, 0.0):
        return proposal
    return sampler.pick(wanted)


def too_strict(sampler, proposal, drafted, wanted):
    """Stays with p, not with p/q, and what the model misses comes in its place."""
    if sampler.uniform() < wanted.get(proposal, 0.0):
        return proposal
    return sampler.pick({token: max(0.0, share - drafted.get(token, 0.0)) for token, share in wanted.items()})


@pytest.mark.parametrize("rule", [always, swapped, drawn_again, too_strict], ids=lambda rule: rule.__name__)
def test_a_wrong_rule_is_seen(rule, monkeypatch):
    monkeypatch.setattr(speculative, "settled", rule)
    value, degrees = statistic(MODEL, DRAFT, 2)
    assert value > 1.5 * limit(degrees)


def test_a_draft_drawn_by_another_temperature_than_is_said_is_seen(monkeypatch):
    """The rule is right only for the distribution that the proposal was drawn from."""
    right = Sampler.pick
    monkeypatch.setattr(Sampler, "pick", lambda self, shares: right(self, {token: share**2 for token, share in shares.items()}))
    value, degrees = statistic(MODEL, DRAFT, 2)
    assert value > 1.5 * limit(degrees)


def test_one_place_is_settled_exactly():
    """The rule alone, over many draws: proposals by q come out by p."""
    drafted, wanted = {0: 0.6, 1: 0.3, 2: 0.1}, {0: 0.1, 1: 0.35, 3: 0.55}
    sampler, counts, draws = Sampler(SamplerSettings(seed=9)), dict.fromkeys(range(4), 0), 20_000
    for _ in range(draws):
        counts[speculative.settled(sampler, sampler.pick(drafted), drafted, wanted)] += 1
    assert counts[2] == 0
    assert sum((counts[token] - draws * share) ** 2 / (draws * share) for token, share in wanted.items()) < limit(2)


@pytest.mark.parametrize("how", [*HOW, {"temperature": 0.0}], ids=str)
def test_the_distribution_is_what_draw_draws_from(how):
    settings = SamplerSettings(**{"temperature": 1.0, "top_k": 0, **how})
    logits, seen = [1.0, 2.5, 2.5, -0.5, 0.25, -math.inf], [1, 4]
    for allowed in (None, (0, 2, 3, 5)):
        shares = Sampler(settings).distribution(logits, seen, allowed)
        drawn, counts = Sampler(settings), {}
        for _ in range(4000):
            token = drawn.draw(logits, seen, allowed)
            counts[token] = counts.get(token, 0) + 1
        assert set(counts) == set(shares) and abs(sum(shares.values()) - 1) < 1e-12
        assert list(shares.values()) == sorted(shares.values(), reverse=True)
        if len(shares) > 1:
            value = sum((counts[token] - 4000 * share) ** 2 / (4000 * share) for token, share in shares.items())
            assert value < limit(len(shares) - 1)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("which", ["model", "draft"])
def test_broken_weights_of_either_end_the_text_with_an_error(which, broken):
    class Broken(Table):
        def row(self, tokens):
            return [broken] * 7

    model, draft = (Broken(1, 1), DRAFT) if which == "model" else (MODEL, Broken(1, 1))
    with pytest.raises(NonFiniteError):
        list(write(model, "ab", 3, draft=draft))
