"""Regions larger than a buffer may be: each is cut into parts, which are buffers of their own.

A cut falls where no value of the tapes to come is cut by it: between two of them, or between two rows of a table (wte, which
every kernel that reads it can take by pieces of the vocabulary). Flat kernels are cut anywhere: see flat.pieces.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from math import lcm

from ...compile.graph import ARENA, REGIONS
from ...compile.tape import Tape, decode
from ...dims import ALIGN_BYTES, ELEMENT_BYTES, product, round_up
from ...errors import DeviceError, DeviceLimitError

PART_SHIFT = 16
KIND_MASK = (1 << PART_SHIFT) - 1
LENT = REGIONS.index("grads")
LENT_PART_BYTES = 256 << 20
"""Gradients that lend their memory (see lending.py) lie in buffers of at most so much: what is lent of one may stand beside what is
made in another. Every further one costs two or three dispatches a step."""
TABLES = ("wte", "dwte")
"""Arguments [V,C] that may be cut, between ROWS rows."""
ROWS = 128
"""So much of the vocabulary, or of the rows of logits, starts at a multiple of 256 bytes in either precision; and it is the least
that a sum over the vocabulary is cut into for other reasons (tiles.LEAST_CHUNK), so that a cut need not change its bits."""
PACKED = {"adamw_bf16": (2, 4), "adamw_8bit": (64, 68)}
"""AdamW with smaller moments: elements of the least part of a moment that can be cut, and its bytes."""
FREE_BYTES = 1 << 16
"""Where nothing stands against it a region is cut at a multiple of this: of what AdamW and the gradient's norm take at once."""
NEAR = 7 / 8
"""Of a buffer, after which a cut may fall: the one with the most zeros in its address is taken."""


@dataclass(frozen=True)
class Operand:
    """A range of a buffer: its number (a region's index, SCRATCH … HALVES, or BANK + bank), offset and size in bytes.

    Of a region that is cut, either the range of the whole region or, once `Cuts.locate` found it, of one part.
    """

    region: int
    offset_bytes: int
    nbytes: int


@dataclass(frozen=True)
class Cuts:
    """((first byte, its buffer's number) …) by number of what is cut; all else is one buffer of its own number."""

    parts: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def runs(self, number: int, start: int, nbytes: int) -> Iterator[tuple[int, int, int]]:
        """Bytes from `start` on by the buffers where they lie: (buffer's number, offset there, bytes)."""
        parts = self.parts.get(number)
        if parts is None:
            yield number, start, nbytes
            return
        stop, index = start + nbytes, bisect_right(parts, (start, KIND_MASK << PART_SHIFT | KIND_MASK)) - 1
        while True:
            first, buffer = parts[index]
            end = parts[index + 1][0] if index + 1 < len(parts) else stop
            yield buffer, start - first, min(stop, end) - start
            if stop <= end:
                return
            start, index = end, index + 1

    def locate(self, operand: Operand) -> Operand:
        """Where an operand lies. Raises DeviceError where a cut goes through it."""
        if operand.region not in self.parts:
            return operand
        runs = list(self.runs(operand.region, operand.offset_bytes, operand.nbytes))
        if len(runs) > 1:
            raise DeviceError(
                "webgpu", "a value that a shader sees at once lies in one buffer",
                f"{operand.nbytes:,} bytes at {operand.offset_bytes:,} lie in {len(runs)}", "please report this",
            )  # fmt: skip
        return Operand(*runs[0])

    def inside(self, operand: Operand) -> list[int]:
        """Where an operand is cut, in bytes from its start."""
        start, stop = operand.offset_bytes, operand.offset_bytes + operand.nbytes
        return [first - start for first, _ in self.parts.get(operand.region, ()) if start < first < stop]


class Edges:
    """Where the values of some tapes begin and end, by region: what a cut must respect. `lent`: regions that a tape fills late."""

    def __init__(self) -> None:
        self.lent: set[int] = set()
        self._solid: dict[int, set[tuple[int, int]]] = {}
        self._tables: dict[int, set[tuple[int, int, int]]] = {}
        self._units: dict[int, int] = {}
        self._seen: set[bytes] = set()

    def add(self, tape: Tape) -> None:
        """Respect the values of this tape too."""
        tape = tape.apart() if tape.apart else tape
        if tape.data in self._seen:
            return
        self._seen.add(tape.data)
        for index, record in enumerate(decode(tape)):
            for argument, (region, start) in zip(record.kernel.args, record.operands):
                number = REGIONS.index(region)
                if number == LENT and index and record.kernel.name == "fill":
                    self.lent.add(number)
                if number == ARENA or argument.dims == ("N",):
                    continue
                stop = start + round_up(product(record.kernel.shape(argument, record.sizes)) * ELEMENT_BYTES, ALIGN_BYTES)
                if argument.dims == ("W",):
                    unit = lcm(PACKED[record.kernel.name][1], ALIGN_BYTES)
                    self._units[number] = lcm(self._units.get(number, 1), unit)
                elif argument.name in TABLES:
                    step = ROWS * record.sizes["C"] * ELEMENT_BYTES
                    self._tables.setdefault(number, set()).add((start, stop, step))
                else:
                    self._solid.setdefault(number, set()).add((start, stop))

    def allow(self, number: int, at: int) -> bool:
        """Whether a region may be cut there."""
        if at % self._units.get(number, 1):
            return False
        return all(not start < at < stop for start, stop in self._solid.get(number, ())) and all(
            not start < at < stop or (at - start) % step == 0 for start, stop, step in self._tables.get(number, ())
        )

    def cut(self, number: int, nbytes: int, most: int, kept: tuple[int, ...] = ()) -> tuple[int, ...]:
        """First bytes of parts of at most `most` bytes for a region of `nbytes`; those of `kept` stay as far as they can.

        Raises DeviceLimitError where a value alone is larger.
        """
        starts = [0]
        for at in kept:
            if 0 < at < nbytes and self.allow(number, at) and at - starts[-1] <= most:
                starts.append(at)
        while nbytes - starts[-1] > most:
            starts.append(self._next(number, starts[-1], most))
        return tuple(starts)

    def _next(self, number: int, start: int, most: int) -> int:
        end = start + most
        tables = [t for t in self._tables.get(number, ()) if t[0] < end < t[1]]
        unit = self._units.get(number, ALIGN_BYTES)
        free = lcm(FREE_BYTES, unit)
        found = {end // free * free, end // unit * unit, *(first + (end - first) // step * step for first, _, step in tables)}
        found |= {at for value in (*self._solid.get(number, ()), *self._tables.get(number, ())) for at in value[:2]}
        downwards = (at for at in sorted(found, reverse=True) if start < at <= end and self.allow(number, at))
        last = next(downwards, 0)
        if not last:
            raise DeviceLimitError(
                "webgpu", f"one buffer holds at most {most:,} bytes on this device, and each value lies in one",
                f"a value of region {REGIONS[number]} is larger", "choose fewer channels",
            )  # fmt: skip
        near = takewhile(lambda at: at >= start + NEAR * (last - start), downwards)
        return max((last, *near), key=lambda at: (at & -at, at))
