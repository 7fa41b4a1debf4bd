"""When gradients become zero in a step: all of them at its start, or late, so that their memory can be lent until then."""

from __future__ import annotations

from ..compile import Graph, Value
from ..dims import ELEMENT_BYTES
from .gpt import Layout

FEW_BYTES = 16 << 20
"""On a GPU, where each fill is a dispatch, gradients become zero together so many bytes at a time."""


def flat(layout: Layout, region: str, start: int, stop: int) -> Value:
    """Bytes start … stop of the flat buffers as they stand in params; the other regions begin at what is trained."""
    offset = start if region == "params" else start - layout.frozen_bytes
    return Value(f"{region}[{offset}:{offset + stop - start}]", ((stop - start) // ELEMENT_BYTES,), "f32", region, offset)


def zero_gradients(graph: Graph, layout: Layout) -> None:
    """Append: every gradient becomes zero, so that the backward may add to it."""
    everything = flat(layout, "grads", layout.frozen_bytes, layout.total_bytes)
    graph.call("fill", {"N": everything.nbytes // ELEMENT_BYTES}, (0.0,), x=everything)


def worth_zeroing_late(layout: Layout) -> bool:
    """Whether gradients are so many that a GPU lends them: fewer are one fill at a step's start."""
    return layout.total_bytes - layout.frozen_bytes >= 2 * FEW_BYTES


def zero_late(graph: Graph, layout: Layout, least_bytes: int = 0) -> None:
    """Insert: every gradient becomes zero just before the backward first adds to it or to one of its block's, not at the start; so
    the memory of those that are still to come can be lent. Blocks that follow each other there become zero together until they have
    `least_bytes`."""
    groups: dict[str, list[int]] = {}  # by what is filled at once: offset, and where that is
    for parameter in layout.trainable:
        start, name = layout.offsets_bytes[parameter.name], parameter.name
        tail = start >= layout.decayed_bytes and not layout.frozen_bytes
        groups.setdefault("tail" if tail else ".".join(name.split(".")[: 2 if name.startswith("blocks.") else 1]), []).append(start)
    starts = sorted(min(offsets) for offsets in groups.values())
    firsts: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.values.values():
            if value.region == "grads":
                at = layout.frozen_bytes + value.offset_bytes
                firsts.setdefault(max(start for start in starts if start <= at), index)
    stops = dict(zip(starts, [*starts[1:], layout.total_bytes]))
    for start, after in reversed(list(zip(starts, starts[1:]))):
        near = stops[after] - after < least_bytes and firsts.get(start, -1) >= firsts.get(after, len(graph.nodes))
        if near:
            stops[start], firsts[start] = stops.pop(after), firsts.pop(after)
    for start, index in sorted(firsts.items(), key=lambda each: -each[1]):
        fill = Graph()
        part = flat(layout, "grads", start, stops[start])
        graph.nodes.insert(index, fill.call("fill", {"N": part.nbytes // ELEMENT_BYTES}, (0.0,), x=part))
