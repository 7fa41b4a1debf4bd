"""Where a region's bytes lie: in one buffer, or, for an arena larger than a buffer may be, in overlapping windows.

A value of the arena is written and read as a whole, so only its start decides its window: window i begins at i·stride and
is longer than the stride by as much as the largest value. Two values that share bytes at different times need not share memory.
The flat regions (weights, gradients, moments) are seen both whole and in parts, and must lie in one buffer.
"""

from __future__ import annotations

from ...compile.graph import ARENA, REGIONS
from ...compile.tape import OFFSET_MASK, REGION_SHIFT
from ...dims import round_up
from ...errors import DeviceError, DeviceLimitError
from .dispatch import SCRATCH
from .limits import Limits

BUFFERS = SCRATCH + 1
SMALLEST_BYTES = 256


class Memory:
    """Sizes of regions, and the buffers that a host must hold for them. A buffer's number is region + BUFFERS·window."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.nbytes = [0] * BUFFERS
        self.generation = 0

    @property
    def overlap_bytes(self) -> int:
        """The largest value that an arena in windows may hold."""
        return min(self.limits.binding_bytes, self.limits.buffer_bytes // 4) // 256 * 256

    @property
    def stride_bytes(self) -> int:
        """From one window's start to the next."""
        return self.limits.buffer_bytes // 256 * 256 - self.overlap_bytes

    def windows(self, region: int, nbytes: int) -> list[int]:
        """Sizes of a region's buffers."""
        if region != ARENA or nbytes <= self.limits.buffer_bytes:
            name = (*REGIONS, "scratch")[region]
            self.limits.require_buffer(f"region {name}", nbytes)
            return [nbytes]
        sizes, start = [], 0
        while True:
            sizes.append(min(self.stride_bytes + self.overlap_bytes, nbytes - start))
            if start + sizes[-1] >= nbytes:
                return sizes
            start += self.stride_bytes

    def grow(self, region: int, nbytes: int) -> list[tuple[int, int]]:
        """(buffer number, bytes) of the buffers to make anew so that a region holds `nbytes`; none when it does already."""
        nbytes = round_up(max(nbytes, SMALLEST_BYTES), 256)
        if nbytes <= self.nbytes[region]:
            return []
        sizes = self.windows(region, nbytes)
        self.nbytes[region] = nbytes
        self.generation += 1
        return [(region + BUFFERS * window, size) for window, size in enumerate(sizes)]

    def locate(self, region: int, offset: int, nbytes: int, what: str = "webgpu") -> tuple[int, int]:
        """(buffer number, offset in it) of a value. Raises DeviceError outside the region, DeviceLimitError across windows."""
        total = self.nbytes[region]
        if offset + nbytes > total:
            name = (*REGIONS, "scratch")[region]
            raise DeviceError(what, f"region {name} holds {total:,} bytes", f"{nbytes:,} at {offset:,} came")
        if total <= self.limits.buffer_bytes:
            return region, offset
        window = min(offset // self.stride_bytes, len(self.windows(region, total)) - 1)
        inside = offset - window * self.stride_bytes
        if inside + nbytes > self.stride_bytes + self.overlap_bytes:
            raise DeviceLimitError(
                "webgpu", f"an activation has at most {self.overlap_bytes:,} bytes where all of them need more than one buffer",
                f"{nbytes:,} came", "choose a smaller batch",
            )
        return region + BUFFERS * window, inside

    def find(self, address: int, nbytes: int, dispatches=()) -> tuple[int, int]:
        """The same for a tape's address, which may point into a value of the tape last run (`dispatches`)."""
        region, offset = address >> REGION_SHIFT, address & OFFSET_MASK
        if self.nbytes[region] > self.limits.buffer_bytes:
            for dispatch in dispatches:
                for _, operand, _ in dispatch.bindings:
                    start = operand.offset_bytes
                    if operand.region == region and start <= offset and offset + nbytes <= start + operand.nbytes:
                        buffer, first = self.locate(region, start, operand.nbytes)
                        return buffer, first + offset - start
        return self.locate(region, offset, nbytes)
