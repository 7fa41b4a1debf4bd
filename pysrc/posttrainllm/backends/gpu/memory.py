"""Which buffers a host holds, by number: regions, in parts where they are larger than one may be, and the engine's own. The arena
has none of its own: its values lie in banks (see banks.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from ...compile.graph import ARENA, REGIONS
from ...compile.tape import OFFSET_MASK, REGION_SHIFT, Tape
from ...dims import round_up
from ...errors import DeviceError
from .dispatch import BANK, SCRATCH, buffer_name
from .limits import Limits
from .lower import Lowered
from .parts import KIND_MASK, LENT_PART_BYTES, PART_SHIFT, Cuts, Edges, Operand

SMALLEST_BYTES = 256


class Buffers(Protocol):
    """What a host does for Memory."""

    def make_buffer(self, number: int, nbytes: int) -> None:
        """Buffer `number` becomes so long and keeps what it held."""

    def copy_buffer(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        """Bytes from one buffer to another."""

    def drop_buffer(self, number: int) -> None:
        """Give a buffer back."""


class Memory:
    """What is allocated. `generation` counts changes: bind groups made before one are stale. `cuts` says which regions lie in
    several buffers: a tape lowered for other cuts is lowered again."""

    def __init__(self, limits: Limits, host: Buffers | None = None) -> None:
        self.limits, self.nbytes, self.generation = limits, {}, 0
        self.cuts = Cuts()
        self._host, self._edges, self._regions = host, Edges(), {}
        self.last: Lowered | None = None
        """The tape last run: whose activations the banks hold."""

    # Regions

    def expect(self, tapes: Iterable[Tape]) -> None:
        """Cut regions so that these tapes can run, from now on: before the regions are made none has to be cut anew."""
        self._edges = Edges()
        for tape in tapes:
            self._edges.add(tape)

    def allocate(self, region_bytes: dict[str, int]) -> None:
        """Make every region at least this large."""
        wanted = {REGIONS.index(region): _rounded(nbytes) for region, nbytes in region_bytes.items() if region != REGIONS[ARENA]}
        wanted = {number: nbytes for number, nbytes in wanted.items() if nbytes > self._regions.get(number, 0)}
        laid = {number: self._starts(number, nbytes) for number, nbytes in wanted.items()}  # refused before anything is made
        for number, starts in laid.items():
            self._lay(number, starts, wanted[number])

    def trim(self, region_bytes: dict[str, int]) -> None:
        """Make regions no larger than this; one that is made smaller becomes zero. Of the arena, whatever its size: its banks go, and the
        tapes that run next make those that they need."""
        for region, nbytes in region_bytes.items():
            number = REGIONS.index(region)
            if number == ARENA:
                self.release()
            if self._regions.get(number, 0) <= _rounded(nbytes):
                continue
            for buffer, _, _ in self._runs(number):
                self._drop(buffer)
            del self._regions[number]
            self._cut(number, None)
            self.allocate({region: nbytes})

    def require(self, tape: Tape) -> None:
        """Make what lends a tape room; cut regions anew where a value of it is cut by them; what they held stays."""
        self.allocate(dict((tape.apart() if tape.apart else tape).lends))
        if not self.cuts.parts:
            return
        own = Edges()
        own.add(tape)
        for number, parts in list(self.cuts.parts.items()):
            if not all(own.allow(number, at) for at, _ in parts):
                self._edges.add(tape)
                self._lay(number, self._starts(number, self._regions[number]), self._regions[number])

    def _starts(self, number: int, nbytes: int) -> tuple[int, ...]:
        most = self.limits.buffer_bytes // SMALLEST_BYTES * SMALLEST_BYTES
        if number in self._edges.lent:
            most = min(most, LENT_PART_BYTES)
        if nbytes <= most and number not in self.cuts.parts:
            return (0,)
        return self._edges.cut(number, nbytes, most, tuple(at for at, _ in self.cuts.parts.get(number, ())))

    def _runs(self, number: int) -> list[tuple[int, int, int]]:
        """(buffer, first byte, bytes) of each part that a region has."""
        held = self._regions.get(number, 0)
        if not held:
            return []
        parts = (*self.cuts.parts.get(number, ((0, number),)), (held, -1))
        return [(buffer, at, parts[i + 1][0] - at) for i, (at, buffer) in enumerate(parts[:-1])]

    def _lay(self, number: int, starts: tuple[int, ...], nbytes: int) -> None:
        """Region `number` in parts from these bytes on, with what it holds."""
        old = {at: (buffer, size) for buffer, at, size in self._runs(number)}
        taken, parts, fresh = {buffer for buffer, _ in old.values()}, [], []
        for at, stop in zip(starts, (*starts[1:], nbytes)):
            buffer, size = old.get(at, (-1, 0))
            if buffer < 0 or size > stop - at:
                buffer = next(each for each in (number | part << PART_SHIFT for part in range(1 << PART_SHIFT)) if each not in taken)
                taken.add(buffer)
                fresh.append(buffer)
            parts.append((at, stop, buffer))
        try:
            for at, stop, buffer in parts:
                self.resize(buffer, stop - at)
                for start, (other, size) in old.items():
                    low, high = max(at, start), min(stop, start + size)
                    if other != buffer and low < high:
                        self._host.copy_buffer(other, low - start, buffer, low - at, high - low)
        except BaseException:
            for buffer in fresh:
                if buffer in self.nbytes:
                    self._drop(buffer)
            raise
        for buffer, _ in old.values():
            if buffer not in {each for _, _, each in parts}:
                self._drop(buffer)
        self._regions[number] = nbytes
        self._cut(number, tuple((at, buffer) for at, _, buffer in parts))

    def _cut(self, number: int, parts: tuple[tuple[int, int], ...] | None) -> None:
        parts = None if parts == ((0, number),) else parts
        if self.cuts.parts.get(number) != parts:
            rest = {each: at for each, at in self.cuts.parts.items() if each != number}
            self.cuts = Cuts(rest | ({number: parts} if parts else {}))
            self.generation += 1

    # Buffers

    def resize(self, number: int, nbytes: int) -> None:
        """A buffer becomes at least so long, and keeps what it held."""
        with self.growing(number, nbytes) as size:
            if size:
                self._host.make_buffer(number, size)

    def grow(self, number: int, nbytes: int) -> int:
        """Bytes of the buffer to make anew so that it holds `nbytes`; 0 when it does already."""
        nbytes = _rounded(nbytes)
        if nbytes <= self.nbytes.get(number, 0):
            return 0
        self.limits.require_buffer(buffer_name(number), nbytes)
        self.nbytes[number] = nbytes
        self.generation += 1
        return nbytes

    @contextmanager
    def growing(self, number: int, nbytes: int) -> Iterator[int]:
        """`grow`; where the buffer cannot be made, what was held is still what is held."""
        held = self.nbytes.get(number)
        try:
            yield self.grow(number, nbytes)
        except BaseException:
            self.nbytes.pop(number, None)
            self.nbytes |= {} if held is None else {number: held}
            raise

    def release(self) -> None:
        """Give back all that tapes need for themselves, banks and scratch: those that run next make them anew."""
        self.last = None
        for number in [number for number in self.nbytes if number & KIND_MASK >= BANK or number == SCRATCH]:
            self._drop(number)

    def _drop(self, buffer: int) -> None:
        del self.nbytes[buffer]
        self.generation += 1
        self._host.drop_buffer(buffer)

    # Places

    def check(self, operand: Operand, what: str) -> None:
        """Raise DeviceError where a dispatch's operand does not lie inside its buffer."""
        held = self.nbytes.get(operand.region, 0)
        if operand.offset_bytes + operand.nbytes > held:
            name = buffer_name(operand.region)
            raise DeviceError(
                what, f"{name} holds {held:,} bytes", f"{operand.nbytes:,} at {operand.offset_bytes:,} came"
            )

    def runs(self, address: int, nbytes: int, to_write: bool = False) -> list[tuple[int, int, int]]:
        """(buffer's number, offset, bytes) of each stretch of bytes at a tape's address. Activations are there to be read after
        the tape that made them alone."""
        number, start = address >> REGION_SHIFT, address & OFFSET_MASK
        if number == ARENA:
            if to_write:
                raise DeviceError("webgpu", "what is uploaded goes to another region than activations", f"{nbytes:,} bytes came")
            if self.last is None:
                raise DeviceError("webgpu", "activations are read after a tape ran", "none has run")
            operand = self.last.banks.find(address, nbytes)
            number, start = operand.region, operand.offset_bytes
        found = list(self.cuts.runs(number, start, nbytes))
        for run in found:
            self.check(Operand(*run), "webgpu")
        return found

    def parts_from(self, number: int, start: int) -> list[tuple[int, int, int]]:
        """(buffer's number, first byte, end) of what a region has from byte `start` on."""
        return [(buffer, max(0, start - at), size) for buffer, at, size in self._runs(number) if at + size > start]

    def find(self, address: int, nbytes: int) -> tuple[int, int]:
        """(buffer's number, offset) of bytes that lie in one."""
        run, *more = self.runs(address, nbytes)
        if more:
            raise DeviceError("webgpu", "what is copied by the step lies in one buffer", f"{nbytes:,} bytes lie in {1 + len(more)}")
        return run[:2]


def _rounded(nbytes: int) -> int:
    return round_up(max(nbytes, SMALLEST_BYTES), 256)
