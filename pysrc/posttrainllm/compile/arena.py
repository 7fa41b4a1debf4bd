"""place: lifetimes, and a byte offset for every Value in the arena.

Offsets are chosen largest first, each at the lowest gap that no Value alive at the same time uses. A kernel's result takes the place
of an argument that is needed no more, where the kernel can bear it (Arg.over).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..dims import ALIGN_BYTES, round_up
from .graph import REGIONS, Graph, Value


@dataclass(frozen=True)
class Lifetime:
    """First and last node (inclusive) at which an arena Value has a place of its own: the last that needs it, or the one before
    where that node's result takes its place."""

    value: Value
    first: int
    last: int


def lifetimes(graph: Graph) -> list[Lifetime]:
    """One Lifetime per arena Value, in order of birth."""
    spans, taken = _spans(graph), _takeovers(graph).values()
    return [Lifetime(value, first, last - (value in taken)) for value, (first, last) in spans.items()]


def _spans(graph: Graph) -> dict[Value, tuple[int, int]]:
    """First and last node that names each arena Value."""
    spans: dict[Value, tuple[int, int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.values.values():
            if value.region == "arena":
                spans[value] = (spans.get(value, (index,))[0], index)
    end = len(graph.nodes) - 1
    return {value: (first, end if value.keep else last) for value, (first, last) in spans.items()}


def _takeovers(graph: Graph) -> dict[Value, Value]:
    """Results that take the place of an argument: result to argument."""
    spans, found, taken = _spans(graph), {}, set()
    for index, node in enumerate(graph.nodes):
        for argument in node.kernel.args:
            result = node.arg(argument.name)
            if not argument.over or spans.get(result, (-1,))[0] != index:
                continue
            for name in argument.over:
                other = node.arg(name)
                bound = {each for each, value in node.values.items() if value is other}
                dies = other not in taken and spans.get(other, (index, -1))[1] == index and other.nbytes == result.nbytes
                if dies and not other.keep and bound <= set(argument.over):
                    found[result] = other
                    taken.add(other)
                    break
    return found


def _chains(graph: Graph, spans: list[Lifetime]) -> Iterator[tuple[Lifetime, list[Value]]]:
    """Values that follow each other in one place, and the life of that place."""
    takeovers, chains = _takeovers(graph), {}
    for span in spans:  # in order of birth: what is taken over comes first
        chain = chains.get(takeovers.get(span.value)) or []
        chain.append(span)
        chains[span.value] = chain
    for chain in {id(chain): chain for chain in chains.values()}.values():
        yield Lifetime(chain[0].value, chain[0].first, chain[-1].last), [span.value for span in chain]


@dataclass(frozen=True)
class Plan:
    """A Graph with an address for every Value, and the bytes that each region must hold."""

    graph: Graph
    arena: tuple[Lifetime, ...]
    region_bytes: dict[str, int]

    def total_bytes(self) -> int:
        """Bytes of all regions together."""
        return sum(self.region_bytes.values())


def _gap(done: list[tuple[int, int, int, int]], span: Lifetime, nbytes: int) -> int:
    """The lowest offset from which so many bytes are free while a value lives."""
    own_first, own_last, offset = span.first, span.last, 0
    for start, stop in sorted([(start, stop) for first, last, start, stop in done if first <= own_last and own_first <= last]):
        if start - offset >= nbytes:
            break
        offset = max(offset, stop)
    return offset


@dataclass
class _Packed:
    """Region and offset by place, and the arena's bytes."""

    places: list[tuple[list[Value], str, int]]
    arena_bytes: int


def _pack(chains: list[tuple[Lifetime, list[Value]]], lenders: dict[str, tuple[list, int]], from_end: bool) -> _Packed:
    """Each chain at the lowest gap of the first region that lends one, seen from its beginning or its end, else of the arena."""
    lent = {
        region: [(first, last, total - stop, total - start) if from_end else (first, last, start, stop) for first, last, start, stop in taken]
        for region, (taken, total) in lenders.items()
    }
    done: list[tuple[int, int, int, int]] = []  # first and last node, first byte and the one behind the last
    packed = _Packed([], 0)
    for span, values in chains:
        nbytes = round_up(span.value.nbytes, ALIGN_BYTES)
        for region, (_, total) in lenders.items():
            offset = _gap(lent[region], span, nbytes)
            if offset + nbytes <= total:
                lent[region].append((span.first, span.last, offset, offset + nbytes))
                packed.places.append((values, region, total - offset - nbytes if from_end else offset))
                break
        else:
            offset = _gap(done, span, nbytes)
            done.append((span.first, span.last, offset, offset + nbytes))
            packed.arena_bytes = max(packed.arena_bytes, offset + nbytes)
            packed.places.append((values, "arena", offset))
    return packed


def _taken(graph: Graph, region: str) -> list[tuple[int, int, int, int]]:
    """From which node on (to the end) which bytes of a region are taken."""
    firsts: dict[Value, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.values.values():
            if value.region == region:
                firsts.setdefault(value, index)
    end = len(graph.nodes)
    return [(first, end, value.offset_bytes, value.offset_bytes + round_up(value.nbytes, ALIGN_BYTES)) for value, first in firsts.items()]


def place(graph: Graph, lend: dict[str, int] | None = None) -> Plan:
    """Give every arena Value an offset (multiple of 256 bytes) such that no two alive together overlap.

    `lend` names regions, with the bytes they have besides what the graph names there: whose Values are written whole before anything
    reads them, and hold to the end of the tape. Before that their bytes are lent to what fits there, which then lies in that region.
    (A gradient is nothing before its part of the backward, and by then many an activation is gone. They come last block first: seen
    from the end, the lowest gap is the one that is taken soonest, and what is needed long finds the first blocks' free. Whichever way
    leaves the smaller arena is taken.)
    """
    spans, lenders = lifetimes(graph), {}
    for region, nbytes in (lend or {}).items():
        taken = _taken(graph, region)
        lenders[region] = taken, max((stop for *_, stop in taken), default=nbytes)
    chains = sorted(_chains(graph, spans), key=lambda each: (-each[0].value.nbytes, each[0].first))
    ways = [_pack(chains, lenders, from_end) for from_end in ((True, False) if lenders else (False,))]
    best = min(ways, key=lambda packed: packed.arena_bytes)
    for values, region, offset in best.places:
        for value in values:
            value.region, value.offset_bytes = region, offset
    region_bytes = dict.fromkeys(REGIONS, 0)
    region_bytes["arena"] = best.arena_bytes
    for value in graph.values():
        if value.region != "arena":
            stop = round_up(value.offset_bytes + value.nbytes, ALIGN_BYTES)
            region_bytes[value.region] = max(region_bytes[value.region], stop)
    return Plan(graph, tuple(spans), region_bytes)
