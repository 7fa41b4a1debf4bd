"""What a step lends of its gradients' memory on a GPU: until the backward comes to a gradient, activations may lie in its place.

WebGPU counts access by whole buffer, so a guest is no neighbour of what a dispatch writes into the same buffer: a weight's gradient
is not made of an activation that lies in the same part of the gradients, and a result in one part is made of nothing there. Large
gradients are cut into parts for that (Memory), and the last blocks' activations lie in the first blocks' gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from ...compile.graph import REGIONS
from ...dims import ALIGN_BYTES, round_up
from .dispatch import Operand, Span
from .fuse import Step
from .parts import LENT, Cuts

Busy = tuple[int, int, int, int]
"""First and last record, first byte and the one behind the last."""


@dataclass(frozen=True)
class Lender:
    """A buffer of a region: its number, its first byte in the region, its bytes, and which of them are taken from when on."""

    region: int
    number: int
    start: int
    nbytes: int
    taken: tuple[Busy, ...]

    def offset(self, span: Span, guests: list[Busy]) -> int | None:
        """From which byte of the buffer on there is room for a value while it lives. Seen from the end the lowest gap is the one that
        is taken soonest, since the last block's gradients come first; so what lives long finds the first blocks'."""
        nbytes, after = round_up(span.nbytes, ALIGN_BYTES), 0
        for first, last, low, high in sorted((*self.taken, *guests), key=lambda busy: -busy[3]):
            if first <= span.last and span.first <= last:
                if self.nbytes - high - after >= nbytes:
                    break
                after = max(after, round_up(self.nbytes - low, ALIGN_BYTES))
        found = self.nbytes - after - nbytes
        return found if found >= 0 else None


def lenders(steps: list[Step], cuts: Cuts, lends: tuple[tuple[str, int], ...]) -> list[Lender]:
    """What can be lent by the records of a tape, the part that is taken first at first: gradients that it fills before anything else
    there is touched (what it never fills may hold something), and `lends`, regions that hold nothing at all."""
    found = [
        Lender(number, buffer, at, nbytes, ())
        for number, size in ((REGIONS.index(region), size) for region, size in lends)
        for at, buffer, nbytes in _buffers(number, size, cuts)
    ]
    free: list[tuple[int, int, int]] = []
    touched: list[tuple[int, int]] = []
    for index, step in enumerate(steps):
        for use in step.uses.values():
            if isinstance(use, Operand) and use.region == LENT:
                start, stop = use.offset_bytes, use.offset_bytes + use.nbytes
                if step.record.kernel.name == "fill" and not any(low < stop and start < high for low, high in touched):
                    free.append((start, stop, index))
                touched.append((start, stop))
    if any(index for *_, index in free):
        found = [*_parts(sorted(free), cuts, len(steps))][::-1] + found
    return found


def _buffers(region: int, nbytes: int, cuts: Cuts) -> Iterator[tuple[int, int, int]]:
    """(first byte in the region, number, bytes) of each buffer of a region."""
    start = 0
    for number, _, size in cuts.runs(region, 0, nbytes // ALIGN_BYTES * ALIGN_BYTES):
        yield start, number, size
        start += size


def _parts(free: list[tuple[int, int, int]], cuts: Cuts, end: int) -> Iterator[Lender]:
    for start, number, nbytes in _buffers(LENT, max(stop for _, stop, _ in free), cuts):
        taken, at = [], 0
        for low, high, index in free:
            low, high = max(0, low - start), min(nbytes, high - start)
            if low < high:
                taken += [(0, end, at, low)] * (at < low) + [(index, end, low, high)]
                at = high
        taken += [(0, end, at, nbytes)] * (at < nbytes)
        yield Lender(LENT, number, start, nbytes, tuple(taken))


def lend(spans: list[Span], lending: list[Lender], records: int) -> None:
    """Give values places that are lent: the largest of those alive where most is alive, until nothing there finds one."""
    guests: dict[int, list[Busy]] = {lender.number: [] for lender in lending}
    hosts: dict[Span, int] = {}
    tried: set[Span] = set()
    while True:
        alive = [0] * (records + 2)
        for span in spans:
            if span not in hosts:
                alive[span.first] += span.nbytes
                alive[span.last + 1] -= span.nbytes
        alive = list(accumulate(alive))
        most = alive.index(max(alive))
        waiting = sorted((s for s in spans if s.first <= most <= s.last and s not in tried), key=lambda s: (-s.nbytes, -s.first))
        lent = len(hosts)
        for span in waiting:
            tried.add(span)
            for lender in lending:
                if lender.number in span.near or any(hosts.get(other) == lender.number for other in span.beside):
                    continue
                offset = lender.offset(span, guests[lender.number])
                if offset is not None:
                    guests[lender.number].append((span.first, span.last, offset, offset + round_up(span.nbytes, ALIGN_BYTES)))
                    hosts[span], span.lent, span.offset = lender.number, lender.region, lender.start + offset
                    break
        if len(hosts) == lent:
            return


def note_gradients(steps: list[Step], cuts: Cuts) -> None:
    """Which buffers of the gradients a dispatch touches beside the values that it reads or writes."""
    for step in steps:
        if step.record.kernel.name == "layernorm_backward":
            continue  # its gradients of weights are summed by a dispatch of their own, from scratch
        near = {
            number
            for use in step.uses.values()
            if isinstance(use, Operand) and use.region == LENT
            for number, *_ in cuts.runs(LENT, use.offset_bytes, use.nbytes)
        }
        for use in step.uses.values():
            if isinstance(use, Span):
                use.near |= near
