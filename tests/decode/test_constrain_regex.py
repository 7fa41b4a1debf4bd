"""Regular expressions: what is written is what `re` accepts, what `re` accepts may be written, and the rest is refused."""

import random
import re

import pytest

from posttrainllm.decode.constrain import regex
from posttrainllm.decode.constrain.from_regex import regex_machine
from posttrainllm.errors import ConfigError
from tests.helpers.constrained import BYTES, MANY, SEVERAL, WORD_VOCABULARY, samples

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies

PATTERNS = [
    r"[a-z]{2,9}(-\d+)?",
    r"(?i)straße|K|\w\s\w",
    r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d",
    r"(foo|bar|[^x]{3})+!?",
    r"[^\W\d_]{1,20}",
    r"(é|€|🙂|[а-я])*\.",
    r"(?s:.){0,8}",
    r"(?a:\w)+|[\u0600-\U0001F642]",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_whatever_is_written_matches(pattern):
    count = 0
    for text in samples(lambda vocabulary: regex(pattern, vocabulary), MANY, tokens=30):
        assert re.fullmatch(pattern, text), text
        count += 1
    assert count == MANY


def test_the_test_above_sees_a_wrong_constraint():
    texts = samples(lambda vocabulary: regex("[a-z]{2,9}(-[0-9]*)?", vocabulary), 250, tokens=30)
    assert not all(re.fullmatch(PATTERNS[0], text) for text in texts)


def patterns():
    char = st.sampled_from(["a", "b", "é", "🙂", r"\d", r"\w", r"\s", ".", "[ab]", "[^a]", "[b-é]", r"[\w-]", r"\."])
    return st.recursive(
        char,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}?", "*?", "+?"])).map(
                lambda two: f"(?:{two[0]}){two[1]}"
            ),
            inner.map(lambda one: f"(?i:{one})"),
            inner.map(lambda one: f"(?as:{one})"),
            inner.map(lambda one: f"(?P<n>{one})" if "?P" not in one else one),
        ),
        max_leaves=8,
    )


def read(pattern):
    try:
        return re.compile(pattern)
    except re.error:  # two groups of one name
        return None


@hypothesis.settings(max_examples=400, deadline=None, derandomize=True)
@hypothesis.given(patterns(), st.lists(st.text("abAé🙂1 .\n-É", max_size=6), min_size=1, max_size=12))
def test_a_machine_accepts_what_re_accepts(pattern, texts):
    known = read(pattern)
    hypothesis.assume(known)
    machine = regex_machine(pattern)
    for text in texts:
        assert machine.matches(text.encode()) == bool(known.fullmatch(text)), text


@hypothesis.settings(max_examples=200, deadline=None, derandomize=True)
@hypothesis.given(patterns(), st.integers(0, 1 << 30))
def test_random_walks_match_and_end_in_time(pattern, seed):
    known, noise = read(pattern), random.Random(seed)
    hypothesis.assume(known)
    for vocabulary in (BYTES, WORD_VOCABULARY):
        constraint = regex(pattern, vocabulary)
        state, left, data = constraint.start(), constraint.shortest(constraint.start()) + noise.randrange(6), b""
        while left and constraint.allowed(state, left) and not (constraint.finished(state) and noise.random() < 0.2):
            token = noise.choice(constraint.allowed(state, left))
            state, left, data = constraint.advance(state, token), left - 1, data + vocabulary.tokens[token]
        assert known.fullmatch(data.decode()), data


@hypothesis.settings(max_examples=100, deadline=None, derandomize=True)
@hypothesis.given(st.binary(max_size=5))
def test_bytes_that_are_no_text_never_pass(data):
    try:
        whole = len(data.decode()) <= 3
    except UnicodeDecodeError:
        whole = False
    assert regex_machine("(?s).{0,3}").matches(data) == whole


@pytest.mark.parametrize(
    "pattern", [r"^ab", r"ab$", r"a|^b$", r"(^a|b)c", r"^(a|b)$", r"^$", r"a?", r"c(a|b$)", r"\Aa|b\Z"]
)
def test_searching_finds_what_re_finds(pattern):
    machine, noise = regex_machine(pattern, search=True), random.Random(1)
    for _ in range(1000):
        text = "".join(noise.choice("abc") for _ in range(noise.randrange(5)))
        assert machine.matches(text.encode()) == bool(re.search(pattern, text)), text


def test_a_preferred_match_is_the_one_that_re_returns():
    from posttrainllm.decode.constrain.from_regex import regex as tree
    from posttrainllm.decode.constrain.nfa import machine_of

    noise = random.Random(1)
    for pattern in (
        r"a|ab",
        r"ab|a",
        r"a+?b*",
        r"(a|ab)(c|bcd)?",
        r'".*?"',
        r'".*?(?<!\\)(\\\\)*?"',
        r"a{1,3}?b?",
        r"(?:ab??)+",
    ):
        machine = machine_of(tree(pattern, alone=False), preferred=True)
        for _ in range(1500):
            text = "".join(noise.choice('abcd"\\') for _ in range(noise.randrange(7)))
            if noise.random() < 0.4:
                text = f'"{text}"'
            found = re.match(pattern, text)
            assert machine.matches(text.encode()) == bool(found and found.end() == len(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"(a)\1", "a reference to a group"), (r"a(?=b)", "lookahead"), (r"\bx", "a word boundary"), (r"a^b", "an anchor"),
        (r"(?<!ab)c", "a lookbehind"), (r"(?<=a)c", "lookbehind"), (r"x(?:y|(?<!a)b)", "a lookbehind past"), ("[", "Python's re can read it"),
        (r"a{2,1}", "Python's re"), (r"(a{100}){300}", "at most 20,000 states"), ("(a|b)*a.{30}", "at most 20,000 states"), (r"\ud800", "half a surrogate"),
    ]
    + [(r"a++", "a possessive"), (r"(?>a)", "an atomic group")],
)  # fmt: skip
def test_what_cannot_be_checked_is_refused_with_a_sentence(pattern, said):
    with pytest.raises(ConfigError, match=said) as caught:
        regex(pattern, BYTES)
    assert str(caught.value).count(";") >= 2, "the rule; what came; what to do"


def test_parts_that_nest_too_deep_are_refused_not_a_crash():
    for depth in (200, 20_000):
        pattern = "(?:a" * depth + ")?" * depth
        try:
            assert regex(pattern, BYTES).shortest(regex(pattern, BYTES).start()) == 1 - (depth > 0)
        except ConfigError as error:
            assert "deep" in str(error) or "re can read it" in str(error)


@pytest.mark.parametrize("pattern", [r"(?!)", r"[^\s\S]", r"a(?!)b"])
def test_a_language_without_a_text_is_refused(pattern):
    with pytest.raises(ConfigError):
        regex(pattern, BYTES)


def test_what_the_tokens_cannot_spell_is_refused():
    with pytest.raises(ConfigError, match="none does"):
        regex("a{3}d", SEVERAL)
    assert regex("a{7}b", SEVERAL).shortest(regex("a{7}b", SEVERAL).start()) == 4, "aa aa aa ab"


def test_the_shortest_way_is_counted_in_tokens():
    for pattern in ("abab(c|ab)", "(ab|c)+b", "a{6}|(bc){2}c"):
        constraint = regex(pattern, SEVERAL)
        level, distance = {constraint.start()}, 0
        while not any(map(constraint.finished, level)):
            level = {constraint.advance(state, token) for state in level for token in constraint.allowed(state)}
            distance += 1
        assert constraint.shortest(constraint.start()) == distance, pattern
