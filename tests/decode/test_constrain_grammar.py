"""Grammars in lark's notation: what is written is parsed by lark, recursion and ambiguity of every kind included."""

import itertools
import random

import pytest

from posttrainllm.decode.constrain import grammar
from posttrainllm.decode.constrain.constraint import Constraint
from posttrainllm.decode.constrain.nodes import EMPTY, Alt, Call, Members, Repeat, Seq, Text, alt, seq, walk
from posttrainllm.errors import ConfigError
from tests.helpers.constrained import BYTES, MANY, SEVERAL, Noise, samples, written

lark = pytest.importorskip("lark", reason="grammars are read by lark")

GRAMMARS = {
    "sums": """
        start: expr
        ?expr: term | expr "+" term | expr "-" term
        ?term: factor | term "*" factor
        ?factor: NUMBER | "-" factor | "(" expr ")" | CNAME
        %import common.NUMBER
        %import common.CNAME
        %import common.WS
        %ignore WS
    """,
    "json": """
        ?start: value
        ?value: object | array | string | SIGNED_NUMBER | "true" | "false" | "null"
        array: "[" [value ("," value)*] "]"
        object: "{" [pair ("," pair)*] "}"
        pair: string ":" value
        string: ESCAPED_STRING
        %import common.ESCAPED_STRING
        %import common.SIGNED_NUMBER
        %import common.WS
        %ignore WS
    """,
    "ambiguous": 'start: s\n s: s s | "a" | "(" s ")" | s "b" |',
    "palindromes": 'start: "a" start "a" | "b" start "b" | /[c-e]/?',
    "templates": """
        start: _sep{item, ";"} "."~1..3
        _sep{x, d}: x (d x)*
        item: WORD "=" start? | "é"i ~ 2
        WORD: /(?i)[a-z]{1,3}/
    """,
    "comments": r"""
        start: (KW | NAME | "/")+
        KW.2: "if"
        NAME: /[a-z]+/
        COMMENT: "#" /[^\n]*/ | "/*" /(.|\n)*?/ "*/"
        %ignore COMMENT
        %ignore /[ \n]/
    """,
    "preferences": r'start: A* B | "<" start ">"' + "\n A: /a|ab/\n B: /b+?c?/",
    "left": 'start: b "x" | "c"\n b: start "y" | start+ "z" | "q"?',
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_whatever_is_written_parses(name):
    judge = lark.Lark(GRAMMARS[name], parser="earley", lexer="dynamic_complete")
    for text in samples(lambda vocabulary: grammar(GRAMMARS[name], vocabulary), MANY, tokens=16):
        judge.parse(text)


def test_the_test_above_sees_a_wrong_constraint():
    judge = lark.Lark(GRAMMARS["palindromes"], parser="earley", lexer="dynamic_complete")
    with pytest.raises(lark.exceptions.LarkError):
        for text in samples(
            lambda vocabulary: grammar('start: ("a"|"b")* /[c-e]/? ("a"|"b")*', vocabulary), 40, tokens=16
        ):
            judge.parse(text)


def test_a_long_text_of_each_grammar_ends_in_time():
    for name, text in GRAMMARS.items():
        _, last = written(Noise(seed=3), grammar(text, BYTES), 400, end="longest")
        assert last.reason == "complete", name


DEFINITIONS = {
    "palindromes": {"s": alt(seq(Text(b"a"), Call("s"), Text(b"a")), seq(Text(b"b"), Call("s"), Text(b"b")), EMPTY)},
    "ambiguous": {"s": alt(seq(Call("s"), Call("s")), Text(b"a"), seq(Text(b"("), Call("s"), Text(b")")))},
    "sums": {
        "s": alt(seq(Call("s"), Text(b"+"), Call("t")), Call("t")),
        "t": alt(seq(Call("t"), Text(b"*"), Call("f")), Call("f")),
        "f": alt(Text(b"n"), seq(Text(b"("), Call("s"), Text(b")"))),
    },
    "left in circles": {
        "s": alt(seq(Call("b"), Text(b"x")), Text(b"c")),
        "b": alt(seq(Call("s"), Text(b"y")), seq(Repeat(Call("s"), 1, 2), Text(b"z"))),
    },
    "empty": {
        "s": seq(Call("n"), Call("m")),
        "n": alt(EMPTY, Text(b"n")),
        "m": alt(EMPTY, seq(Call("n"), Text(b"<"), Call("m"), Text(b">"), Call("n"), Call("m"))),
    },
    "right in circles": {
        "s": alt(seq(Text(b"a"), Call("t")), Text(b"b")),
        "t": alt(seq(Text(b"c"), Call("s"), Call("u")), seq(Text(b"("), Call("t"), Text(b")"))),
        "u": alt(EMPTY, seq(Text(b"u"), Call("s"))),
    },
    "all ends": {
        "s": alt(
            seq(Call("s"), Text(b"a"), Call("s")),
            seq(Text(b"b"), Call("s")),
            seq(Call("s"), Text(b"c")),
            Text(b"d"),
            Call("s"),
        )
    },
    "units": {
        "s": alt(Call("t"), Text(b"a")),
        "t": alt(Call("s"), seq(Text(b"("), Call("t"), Text(b")"), Call("u"))),
        "u": alt(Call("t"), EMPTY),
    },
    "members": {
        "s": alt(
            seq(Text(b"("), Members(((Text(b"a"), False), (Call("s"), True)), Text(b","), Text(b"c")), Text(b")")),
            Text(b"x"),
        )
    },
    "members at will": {
        "s": alt(
            seq(Text(b"("), Members(((Text(b"a"), False), (Call("s"), False)), Text(b",")), Text(b")")), Text(b"x")
        )
    },
}


def member(definitions, text):
    """Whether a text follows the definitions, found by trying every way (a fixed point over all its parts)."""
    known = set()

    def holds(node, i, j):
        if isinstance(node, Text):
            return text[i:j] == node.data
        if isinstance(node, Call):
            return (node.name, i, j) in known
        if isinstance(node, Alt):
            return any(holds(option, i, j) for option in node.options)
        if isinstance(node, Repeat):
            return any(
                holds(Seq((node.part,) * times), i, j) for times in range(node.low, (node.high or j - i + 1) + 1)
            )
        if isinstance(node, Members):
            return any(holds(each, i, j) for each in members(node))
        ends = {i}
        for part in node.parts:
            ends = {k for end in ends for k in range(end, j + 1) if holds(part, end, k)}
        return j in ends

    def members(node):
        for there in itertools.product((True, False), repeat=len(node.items)):
            if all(here or not needed for here, (_, needed) in zip(there, node.items, strict=True)):
                for more in range(4 if node.rest else 1):
                    parts = [item for here, (item, _) in zip(there, node.items, strict=True) if here] + [
                        node.rest
                    ] * more
                    yield seq(*[each for part in parts for each in (node.separator, part)][1:])

    places = [(i, j) for i in range(len(text) + 1) for j in range(i, len(text) + 1)]
    while True:
        more = {
            (name, i, j)
            for name, node in definitions.items()
            for i, j in places
            if (name, i, j) not in known and holds(node, i, j)
        }
        if not more:
            return ("s", 0, len(text)) in known
        known |= more


@pytest.mark.parametrize("name", DEFINITIONS)
def test_exactly_the_texts_of_the_definitions_are_accepted(name):
    definitions = DEFINITIONS[name]
    constraint = Constraint(definitions, "s", BYTES, "test")
    letters = sorted(
        {byte for node in definitions.values() for part in walk(node) if isinstance(part, Text) for byte in part.data}
    )
    count = 0
    for length in range(6 if len(letters) < 5 else 5):
        for text in map(bytes, itertools.product(letters, repeat=length)):
            state = constraint.start()
            for byte in text:
                state = constraint.advance(state, byte)
                if state is None:
                    break
            accepted = state is not None and constraint.finished(state)
            assert accepted == member(definitions, text), text
            count += accepted
    assert count


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("vocabulary", [BYTES, SEVERAL], ids=["bytes", "several"])
def test_from_every_state_an_end_is_in_reach(name, vocabulary):
    """Distances fall by one with some token, and are 0 where the text is accepted: so a budget is never run over."""
    definitions = DEFINITIONS[name]
    try:
        constraint = Constraint({**definitions, "s": alt(definitions["s"], Text(b"cab"))}, "s", vocabulary, "test")
    except ConfigError:
        pytest.skip("these tokens cannot spell it")
    noise, state = random.Random(1), constraint.start()
    for _ in range(300):
        assert (constraint.shortest(state) == 0) == constraint.finished(state)
        allowed = constraint.allowed(state)
        assert allowed == tuple(
            token for token in range(len(vocabulary)) if constraint.advance(state, token) is not None
        )
        if not constraint.finished(state):
            assert min(
                constraint.shortest(constraint.advance(state, token)) for token in allowed
            ) < constraint.shortest(state)
        state = constraint.advance(state, noise.choice(allowed)) if allowed else constraint.start()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_over_bytes_the_shortest_way_is_exact(name):
    constraint = Constraint(DEFINITIONS[name], "s", BYTES, "test")
    noise, state = random.Random(2), constraint.start()
    for _ in range(25):
        level, distance = {state}, 0
        while not any(map(constraint.finished, level)) and distance < 5:
            level = {constraint.advance(each, token) for each in level for token in constraint.allowed(each)}
            distance += 1
        assert constraint.shortest(state) == distance or distance == 5 < constraint.shortest(state)
        allowed = constraint.allowed(state)
        state = constraint.advance(state, noise.choice(allowed)) if allowed and distance < 5 else constraint.start()


@pytest.mark.parametrize(
    ("text", "begin", "again"),
    [
        ('start: "a" start | "b"', b"", b"a"),
        ('start: start "a" | "b"', b"b", b"a"),
        ('start: "a" t | "b"\n t: "c" start', b"", b"ac"),
        ('start: t "a" | "b"\n t: start "c"', b"b", b"ca"),
        ('start: "a" t | "b"\n t: "c" start | "<" t "d"', b"", b"ac"),
        ('start: "a" t | "b"\n t: "c" start | "<" t "d"', b"a<", b"ca"),
        ('start: "a" t | start "e" | "b"\n t: "c" start u | "<" t "d"\n u: ("<" u ">")?', b"b", b"e"),
    ],
)
def test_recursion_at_an_end_takes_no_room(text, begin, again):
    constraint = grammar(text, BYTES)
    state = constraint.start()
    for byte in begin + again * 100:
        state = constraint.advance(state, byte)
        assert state is not None
    assert len(constraint._states._known) < 12


def test_many_states_are_let_go(monkeypatch):
    from posttrainllm.decode.constrain import states

    monkeypatch.setattr(states, "MOST_KEPT", 50)
    constraint = grammar(GRAMMARS["palindromes"], BYTES)
    early = constraint.start()
    for seed in range(20):
        text, _ = written(Noise(seed=seed), constraint, 41, end="longest")
        assert text == text[::-1]
    assert len(constraint._states._known) <= 50 and constraint.advance(early, ord("a")) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start: x", "lark can read it"), ('x: "a"', "lark can read it"), ("start: A?\nA: /a*/", "zero-width"), ("start: A\nA: /(a)\\1/", "terminal A: .*reference"),
        ("%declare A\nstart: A", "every terminal has a pattern"), ("start: /a(?=b)/", "lookahead"), ("start: /^a/", "an anchor"), ("", "lark"),
        ('start: "(" start ")"', "none does"), ("start: start", "none does"), ('start: a\na: b "x"\nb: a', "none does"), ("%import no.such\nstart: such", "lark"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_refused_with_a_sentence(text, said):
    with pytest.raises(ConfigError, match=said):
        grammar(text, BYTES)


def test_without_lark_the_sentence_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(ConfigError, match="pip install lark"):
        grammar('start: "a"', BYTES)
