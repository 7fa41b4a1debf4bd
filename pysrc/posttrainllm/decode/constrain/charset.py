"""Sets of characters as ranges of code points, and the machines that read one character of a set in UTF-8."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from .machine import Machine

Ranges = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
ANY: Ranges = ((0, 0xD7FF), (0xE000, LAST))  # half a surrogate pair is no character of UTF-8
# Each ends where characters need one byte more.
_LENGTHS = ((0x00, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST))
_TO_ESCAPE = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Any ranges as sorted, disjoint ones without surrogates."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(part for low, high in found for part in _without_surrogates(low, high))


def _without_surrogates(low: int, high: int) -> list[tuple[int, int]]:
    parts = ((low, min(high, 0xD7FF)), (max(low, 0xE000), high))
    return [(a, b) for a, b in parts if a <= b]


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Every other character."""
    found, place = [], 0
    for low, high in union(ranges):
        if low > place:
            found.append((place, low - 1))
        place = high + 1
    if place <= LAST:
        found.append((place, LAST))
    return union(found)


def common(a: Iterable[tuple[int, int]], b: Iterable[tuple[int, int]]) -> Ranges:
    """Characters of both."""
    return complement(complement(a) + complement(b))


def byte_ranges(low: int, high: int) -> list[tuple[tuple[int, int], ...]]:
    """Code points low … high as sequences of byte ranges, whose products are exactly their encodings in UTF-8."""
    found: list[tuple[tuple[int, int], ...]] = []
    for first, last in _LENGTHS:
        if low <= last and high >= first:
            for a, b in _without_surrogates(max(low, first), min(high, last)):
                _same_length(a, b, found)
    return found


def _same_length(low: int, high: int, found: list) -> None:
    """Cut until all but the first differing byte run through their whole range."""
    length = len(chr(low).encode())
    for tail in range(1, length):
        mask = (1 << 6 * tail) - 1
        if low & ~mask != high & ~mask:
            if low & mask:
                _same_length(low, low | mask, found)
                return _same_length((low | mask) + 1, high, found)
            if high & mask != mask:
                _same_length(low, (high & ~mask) - 1, found)
                return _same_length(high & ~mask, high, found)
    found.append(tuple(zip(chr(low).encode(), chr(high).encode())))
    return None


def json_escape(code: int) -> bytes:
    """A character as it stands in a JSON string: in UTF-8, escaped only where it must be and then the shortest way."""
    return json.dumps(chr(code), ensure_ascii=False).encode()[1:-1]


@lru_cache(256)
def char_machine(ranges: Ranges, in_json: bool) -> Machine:
    """The smallest machine that reads one of these characters."""
    from .nfa import Nfa, smallest

    nfa = Nfa()
    start, end = nfa.state(), nfa.state()
    plain = common(ranges, complement(_TO_ESCAPE)) if in_json else ranges
    sequences = [sequence for low, high in plain for sequence in byte_ranges(low, high)]
    if in_json:
        escaped = common(ranges, _TO_ESCAPE)
        sequences += [
            tuple((byte, byte) for byte in json_escape(code)) for low, high in escaped for code in range(low, high + 1)
        ]
    shared: dict[tuple, int] = {(): end}  # by what is still to come: equal tails are one state

    def state_before(rest: tuple) -> int:
        if rest not in shared:
            shared[rest] = nfa.state()
            low, high = rest[0]
            nfa.moves[shared[rest]].append((low, high, state_before(rest[1:])))
        return shared[rest]

    for (low, high), *rest in sequences:
        nfa.moves[start].append((low, high, state_before(tuple(rest))))
    return smallest(nfa, start, end)
