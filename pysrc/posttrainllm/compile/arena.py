"""place: lifetimes, and a byte offset for every Value in the arena.

Offsets are chosen largest first, each at the lowest gap that no Value alive at the same time uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import ALIGN_BYTES, round_up
from .graph import REGIONS, Graph, Value


@dataclass(frozen=True)
class Lifetime:
    """First and last node (inclusive) at which an arena Value holds something needed."""

    value: Value
    first: int
    last: int

    def overlaps(self, other: "Lifetime") -> bool:
        """Whether both are alive at some node."""
        return self.first <= other.last and other.first <= self.last


def lifetimes(graph: Graph) -> list[Lifetime]:
    """One Lifetime per arena Value, in order of birth."""
    spans: dict[Value, list[int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.values.values():
            if value.region == "arena":
                spans.setdefault(value, [index, index])[1] = index
    end = len(graph.nodes) - 1
    return [Lifetime(value, first, end if value.keep else last) for value, (first, last) in spans.items()]


@dataclass(frozen=True)
class Plan:
    """A Graph with an address for every Value, and the bytes that each region must hold."""

    graph: Graph
    arena: tuple[Lifetime, ...]
    region_bytes: dict[str, int]

    def total_bytes(self) -> int:
        """Bytes of all regions together."""
        return sum(self.region_bytes.values())


def place(graph: Graph) -> Plan:
    """Give every arena Value an offset (multiple of 256 bytes) such that no two alive together overlap."""
    spans = lifetimes(graph)
    done: list[tuple[Lifetime, int, int]] = []
    arena_bytes = 0
    for span in sorted(spans, key=lambda s: (-s.value.nbytes, s.first)):
        nbytes = round_up(span.value.nbytes, ALIGN_BYTES)
        busy = sorted((start, stop) for other, start, stop in done if other.overlaps(span))
        offset = 0
        for start, stop in busy:
            if start - offset >= nbytes:
                break
            offset = max(offset, stop)
        span.value.offset_bytes = offset
        done.append((span, offset, offset + nbytes))
        arena_bytes = max(arena_bytes, offset + nbytes)
    region_bytes = dict.fromkeys(REGIONS, 0)
    region_bytes["arena"] = arena_bytes
    for value in graph.values():
        if value.region != "arena":
            stop = round_up(value.offset_bytes + value.nbytes, ALIGN_BYTES)
            region_bytes[value.region] = max(region_bytes[value.region], stop)
    return Plan(graph, tuple(spans), region_bytes)
