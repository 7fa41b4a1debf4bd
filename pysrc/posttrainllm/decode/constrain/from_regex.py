"""Python's regular expressions as trees, read by Python's own parser (re._parser) so that both mean the same.

What a character class or a letter without case means is asked of `re` itself, over every character there is. Refused, each
with a sentence: references to groups, lookahead, lookbehind but for one ASCII character that may not come before, word
boundaries, anchors that are not at an end, possessive and atomic parts (they forbid texts that the rest would allow).
"""

from __future__ import annotations

import re
from functools import lru_cache
from re import _compiler, _constants, _parser

from ...errors import ConfigError
from .charset import ANY, LAST, Ranges, complement, union
from .machine import Machine
from .nfa import machine_of
from .nodes import EMPTY, NOTHING, Chars, Node, NotEnding, Repeat, Text, alt, nullable, seq

OP = {name: getattr(_constants, name, None) for name in (
    "LITERAL", "NOT_LITERAL", "ANY", "IN", "BRANCH", "SUBPATTERN", "MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT", "AT",
    "ASSERT", "ASSERT_NOT", "GROUPREF", "GROUPREF_EXISTS", "ATOMIC_GROUP", "RANGE", "FAILURE",
)}  # fmt: skip
BEGINNINGS = (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING)
ENDS = (_constants.AT_END, _constants.AT_END_STRING)
_REFUSED = {
    "GROUPREF": "a reference to a group", "GROUPREF_EXISTS": "a reference to a group", "ASSERT": "a lookahead or lookbehind",
    "ASSERT_NOT": "a lookahead or lookbehind", "POSSESSIVE_REPEAT": "a possessive repeat", "ATOMIC_GROUP": "an atomic group",
}  # fmt: skip
ANYTHING = Repeat(Chars(ANY))


def regex(pattern: str, *, search: bool = False, in_json: bool = False, alone: bool = True) -> Node:
    """The tree of all texts that re.fullmatch(pattern) takes, or with `search` those in which re.search finds it.

    in_json: of their spellings inside a JSON string. alone False: other text may stand around it, so no anchor holds. Raises ConfigError for what is no regex, or not a regular one.
    """
    try:
        parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError("regex", "Python's re can read it", f"{pattern!r} came: {error}", "correct it") from None
    reader = _Reader(pattern, in_json)
    try:
        if search:
            return reader.search(parsed, parsed.state.flags)
        return reader.sequence(list(parsed), parsed.state.flags, alone, alone)
    except RecursionError:
        raise ConfigError("regex", "groups nest a few hundred deep at most", "more came", "write it flatter") from None


class _Reader:
    def __init__(self, pattern: str, in_json: bool) -> None:
        self.pattern, self.in_json = pattern, in_json

    def refuse(self, what: str) -> ConfigError:
        return ConfigError("regex", "only what can be checked from left to right", f"{what} came in {self.pattern!r}", "rewrite it without")

    def search(self, items, flags: int) -> Node:
        """Anything around the match, but where an anchor forbids it."""
        items = list(items)
        for place in (0, -1):  # alternatives that hold anchors are searched for one by one
            if items and items[place][0] in (OP["BRANCH"], OP["SUBPATTERN"]) and _anchored(items[place]):
                op, value = items[place]
                inner = flags
                if op == OP["BRANCH"]:
                    branches = [list(branch) for branch in value[1]]
                else:
                    inner = _combined(flags, value[1], value[2])
                    branches = [list(value[3])]
                if inner != flags and len(items) > 1:
                    raise self.refuse("an anchor inside a group with flags of its own")
                if place == 0:
                    return alt(*(self.search(branch + items[1:], inner) for branch in branches))
                return alt(*(self.search(items[:-1] + branch, inner) for branch in branches))
        before, after = ANYTHING, ANYTHING
        while items and items[0][0] == OP["AT"] and items[0][1] in BEGINNINGS:
            items, before = items[1:], EMPTY
        while items and items[-1][0] == OP["AT"] and items[-1][1] in ENDS:
            items, after = items[:-1], EMPTY
        if self.in_json:
            before, after = (EMPTY if part is EMPTY else Repeat(Chars(ANY, True)) for part in (before, after))
        return seq(before, self.sequence(items, flags, False, False), after)

    def sequence(self, items: list, flags: int, first: bool, last: bool) -> Node:
        """Items in order; `first` and `last` tell whether an anchor before and behind them holds by itself."""
        parts: list[Node] = []
        for place, (op, value) in enumerate(items):
            at_first = first and all(_is_anchor(item) for item in items[:place])
            at_last = last and all(_is_anchor(item) for item in items[place + 1 :])
            if op == OP["ASSERT_NOT"] and value[0] < 0:
                parts = [self.without_last(parts, list(value[1]), flags, first)]
            else:
                parts.append(self.item(op, value, flags, at_first, at_last))
        return seq(*parts)

    def item(self, op, value, flags: int, first: bool, last: bool) -> Node:
        if op in (OP["LITERAL"], OP["NOT_LITERAL"], OP["ANY"], OP["IN"]):
            return self.character(op, value, flags)
        if op == OP["BRANCH"]:
            return alt(*(self.sequence(list(branch), flags, first, last) for branch in value[1]))
        if op == OP["SUBPATTERN"]:
            _, added, removed, inner = value
            return self.sequence(list(inner), _combined(flags, added, removed), first, last)
        if op in (OP["MAX_REPEAT"], OP["MIN_REPEAT"]):
            low, high, inner = value
            part = self.sequence(list(inner), flags, False, False)
            return Repeat(part, low, None if high == _constants.MAXREPEAT else high, op == OP["MIN_REPEAT"])
        if op == OP["FAILURE"]:
            return NOTHING
        if op == OP["AT"]:
            if (value in BEGINNINGS and first) or (value in ENDS and last):
                return EMPTY
            inside = value in BEGINNINGS + ENDS
            raise self.refuse("an anchor that is not at an end" if inside else "a word boundary")
        name = next((name for name, known in OP.items() if known == op), str(op))
        raise self.refuse(_REFUSED.get(name, name))

    def without_last(self, parts: list[Node], forbidden: list, flags: int, first: bool) -> Node:
        """What `parts` are, but where the last character is one of the forbidden: (?<!x) behind them."""
        before = seq(*parts)
        whole = self.sequence(forbidden, flags, False, False)
        codes = [ord(whole.data)] if isinstance(whole, Text) and len(whole.data) == 1 else None
        if isinstance(whole, Chars) and not self.in_json:
            codes = [code for low, high in whole.ranges for code in range(low, min(high, 128) + 1)]
        if codes is None or max(codes, default=0) > 127 or self.in_json:
            raise self.refuse("a lookbehind for more than one ASCII character")
        if nullable(before, set()) and not first:
            raise self.refuse("a lookbehind past the beginning of its group")
        return NotEnding(before, bytes(codes))

    def character(self, op, value, flags: int) -> Node:
        """One character, as ranges."""
        if op == OP["LITERAL"] and not flags & re.IGNORECASE:
            if 0xD800 <= value <= 0xDFFF:
                raise self.refuse("half a surrogate pair, which no UTF-8 text holds,")
            return Chars(((value, value),), True) if self.in_json else Text(chr(value).encode())
        ranges = _simple(op, value) if not flags & re.IGNORECASE else None
        if ranges is None:
            key = flags & (re.IGNORECASE | re.DOTALL | re.ASCII | re.UNICODE)
            ranges = _asked(repr((op, value)), _Key(op, value), key)
        return Chars(ranges, self.in_json) if ranges else NOTHING


def _combined(flags: int, added: int, removed: int) -> int:
    """Flags inside of a group that has some of its own; (?a:…) and (?u:…) take each other's place."""
    kinds = re.ASCII | re.LOCALE | re.UNICODE
    return ((flags & ~kinds if added & kinds else flags) | added) & ~removed


def _is_anchor(item) -> bool:
    return item[0] == OP["AT"] and item[1] in BEGINNINGS + ENDS


def _anchored(item) -> bool:
    """Whether an anchor stands anywhere in an item."""
    op, value = item
    if op == OP["AT"]:
        return value in BEGINNINGS + ENDS
    if op == OP["BRANCH"]:
        return any(_anchored(inner) for branch in value[1] for inner in branch)
    return op == OP["SUBPATTERN"] and any(_anchored(inner) for inner in value[3])


def _simple(op, value) -> Ranges | None:
    """The ranges of what needs no look into Unicode's tables."""
    if op == OP["NOT_LITERAL"]:
        return complement(((value, value),))
    if op != OP["IN"]:
        return None
    turned = value[0][0] == _constants.NEGATE
    found = []
    for kind, what in value[turned:]:
        if kind == OP["LITERAL"]:
            found.append((what, what))
        elif kind == OP["RANGE"]:
            found.append(what)
        else:
            return None
    return complement(found) if turned else union(found)


class _Key:
    """A parsed item that is equal to any: its text beside it is the key of the cache."""

    def __init__(self, op, value) -> None:
        self.op, self.value = op, value

    def __eq__(self, other) -> bool:
        return isinstance(other, _Key)

    def __hash__(self) -> int:
        return 0


@lru_cache(1)
def _every_character() -> str:
    return "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, LAST + 1)))


@lru_cache(256)
def _asked(_name: str, item: _Key, flags: int) -> Ranges:
    """The characters that `re` itself takes for this item."""
    whole = _parser.SubPattern(_parser.State(), [(item.op, item.value)])
    whole.state.flags = flags
    runs = _parser.SubPattern(whole.state, [(_constants.MAX_REPEAT, (1, _constants.MAXREPEAT, whole))])
    every = _every_character()
    found = _compiler.compile(runs, flags).finditer(every)
    return union((ord(every[match.start()]), ord(every[match.end() - 1])) for match in found)


def regex_machine(pattern: str, **how) -> Machine:
    """The machine of a regex, without calls."""
    return machine_of(regex(pattern, **how))
