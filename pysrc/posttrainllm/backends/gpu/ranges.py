"""Tokens and positions are checked before a tape runs: a shader that meets one outside its table cannot say so."""

from __future__ import annotations

from dataclasses import dataclass

from ...compile.graph import REGIONS
from ...compile.tape import OFFSET_MASK, REGION_SHIFT, Tape, decode
from ...dims import product
from ...errors import DataError, DeviceError

WATCHED = tuple(REGIONS.index(region) for region in ("inputs", "slots"))


@dataclass(frozen=True, order=True)
class Range:
    """Integers of a tape that must lie between `least` and `most`: `nbytes` of a region from byte `start` on."""

    region: int
    start: int
    nbytes: int
    least: int
    most: int
    name: str


class TokenCheck:
    """A copy of what was uploaded to inputs and slots, and for each tape the ranges of integers that index a table."""

    def __init__(self) -> None:
        self._copies = {region: bytearray() for region in WATCHED}
        self._version = 0

    def uploaded(self, address: int, data) -> None:
        """Remember what goes to a region that is watched."""
        copy = self._copies.get(address >> REGION_SHIFT)
        if copy is not None:
            start = address & OFFSET_MASK
            copy.extend(bytes(max(0, start + len(data) - len(copy))))
            copy[start : start + len(data)] = data
            self._version += 1

    def ranges_of(self, tape: Tape) -> list[Range]:
        """The range of every argument of a tape that holds tokens, targets or a position."""
        found = set()
        for record in decode(tape):
            for argument, (region, offset) in zip(record.kernel.args, record.operands):
                bounds = _bounds(argument.name, record.sizes)
                if bounds and REGIONS.index(region) in WATCHED:
                    nbytes = product(record.kernel.shape(argument, record.sizes)) * 4
                    found.add(Range(REGIONS.index(region), offset, nbytes, *bounds, argument.name))
        return sorted(found)

    def require(self, loaded) -> None:
        """Raise DataError where a token of a loaded tape lies outside its vocabulary, DeviceError where a position lies outside
        the context. `loaded` has .ranges and .checked."""
        if loaded.checked == self._version:
            return
        for each in loaded.ranges:
            copy = self._copies[each.region]
            numbers = memoryview(copy[each.start : each.start + each.nbytes].ljust(each.nbytes, b"\0")).cast("i")
            _require(min(numbers), max(numbers), each)
        loaded.checked = self._version

    @staticmethod
    def require_bounds(loaded, bounds: tuple[tuple[int, int], tuple[int, int]]) -> None:
        """The same for a block of steps, whose tokens and targets lie between `bounds` = ((least, most), (least, most))."""
        for each in loaded.ranges:
            _require(*bounds[each.name == "targets"], each)
        loaded.checked = -1


def _bounds(name: str, sizes: dict[str, int]) -> tuple[int, int] | None:
    if name == "position":
        return 0, sizes["P"] - sizes["T"]
    return {"tokens": (0, sizes["V"] - 1), "targets": (-(1 << 31), sizes["V"] - 1)}.get(name) if "V" in sizes else None


def _require(low: int, high: int, allowed: Range) -> None:
    if allowed.least <= low and high <= allowed.most:
        return
    came = low if low < allowed.least else high
    if allowed.name == "position":
        raise DeviceError("webgpu", f"a position is a number from 0 to {allowed.most}", f"{came} came", "begin the window anew")
    raise DataError(
        "tokens",
        f"a token is a number from 0 to {allowed.most}",
        f"{came} came",
        "use the model's tokenizer",
        code="E-DATA-TOKEN",
    )
