"""Sizes of the buffers a host holds, by number; the arena has none of its own: its values lie in banks (see banks.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...compile.graph import ARENA
from ...compile.tape import OFFSET_MASK, REGION_SHIFT
from ...dims import round_up
from ...errors import DeviceError
from .dispatch import Operand, buffer_name
from .limits import Limits
from .lower import Lowered

SMALLEST_BYTES = 256


class Memory:
    """What is allocated. `generation` counts changes: bind groups made before one are stale."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.nbytes, self.generation = limits, {}, 0
        self.last: Lowered | None = None
        """The tape last run: whose activations the banks hold."""

    def require(self, number: int, nbytes: int) -> None:
        """Raise DeviceLimitError where a buffer cannot be that large."""
        if number != ARENA:
            self.limits.require_buffer(buffer_name(number), nbytes)

    def grow(self, number: int, nbytes: int) -> int:
        """Bytes of the buffer to make anew so that it holds `nbytes`; 0 when it does already."""
        nbytes = round_up(max(nbytes, SMALLEST_BYTES), 256)
        if number == ARENA or nbytes <= self.nbytes.get(number, 0):
            return 0
        self.require(number, nbytes)
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

    def shrink(self, number: int, nbytes: int) -> bool:
        """Forget a buffer that holds more than `nbytes`; whether it did. What it holds is given up."""
        if self.nbytes.get(number, 0) <= round_up(max(nbytes, SMALLEST_BYTES), 256):
            return False
        del self.nbytes[number]
        self.generation += 1
        return True

    def check(self, operand: Operand, what: str) -> None:
        """Raise DeviceError where an operand does not lie inside its buffer."""
        held = self.nbytes.get(operand.region, 0)
        if operand.offset_bytes + operand.nbytes > held:
            name = buffer_name(operand.region)
            raise DeviceError(
                what, f"{name} holds {held:,} bytes", f"{operand.nbytes:,} at {operand.offset_bytes:,} came"
            )

    def find(self, address: int, nbytes: int, to_write: bool = False) -> tuple[int, int]:
        """(buffer number, offset) of a tape's address. Activations are there to be read after the tape that made them alone."""
        operand = Operand(address >> REGION_SHIFT, address & OFFSET_MASK, nbytes)
        if operand.region == ARENA:
            if to_write:
                raise DeviceError("webgpu", "what is uploaded goes to another region than activations", f"{nbytes:,} bytes came")
            if self.last is None:
                raise DeviceError("webgpu", "activations are read after a tape ran", "none has run")
            operand = self.last.banks.find(address, nbytes)
        self.check(operand, "webgpu")
        return operand.region, operand.offset_bytes
