"""Tokens are checked before a tape runs: a shader that meets one outside the vocabulary cannot say so."""

from __future__ import annotations

from ...compile.graph import REGIONS
from ...compile.tape import OFFSET_MASK, REGION_SHIFT, Tape, decode
from ...dims import product
from ...errors import DataError

INPUTS = REGIONS.index("inputs")


class TokenCheck:
    """A copy of what was uploaded to the inputs region, and for each tape the ranges that must hold tokens below V."""

    def __init__(self) -> None:
        self._copy = bytearray()
        self._version = 0

    def resize(self, nbytes: int) -> None:
        """The region has this many bytes."""
        self._copy.extend(bytes(max(0, nbytes - len(self._copy))))

    def uploaded(self, address: int, data) -> None:
        """Remember what goes to the inputs region."""
        if address >> REGION_SHIFT == INPUTS:
            start = address & OFFSET_MASK
            self._copy[start : start + len(data)] = data
            self._version += 1

    def ranges_of(self, tape: Tape) -> list[tuple[int, int, int, int]]:
        """(first byte, bytes, least value, V) of every token argument of a tape."""
        found = set()
        for record in decode(tape):
            for argument, (region, offset) in zip(record.kernel.args, record.operands):
                if argument.name in ("tokens", "targets") and region == "inputs":
                    nbytes = product(record.kernel.shape(argument, record.sizes)) * 4
                    least = 0 if argument.name == "tokens" else -(1 << 31)
                    found.add((offset, nbytes, least, record.sizes["V"]))
        return sorted(found)

    def require(self, loaded) -> None:
        """Raise DataError when a token of a loaded tape lies outside its vocabulary. `loaded` has .ranges and .checked."""
        if loaded.checked == self._version:
            return
        for start, nbytes, least, vocabulary in loaded.ranges:
            tokens = memoryview(self._copy)[start : start + nbytes].cast("i")
            _require(min(tokens), max(tokens), least, vocabulary)
        loaded.checked = self._version

    @staticmethod
    def require_bounds(loaded, bounds: tuple[tuple[int, int], tuple[int, int]]) -> None:
        """The same for a block of steps, whose tokens and targets lie between `bounds` = ((least, most), (least, most))."""
        for _, _, least, vocabulary in loaded.ranges:
            _require(*bounds[least < 0], least, vocabulary)
        loaded.checked = -1


def _require(low: int, high: int, least: int, vocabulary: int) -> None:
    if low < least or high >= vocabulary:
        raise DataError(
            "tokens",
            f"a token is a number from 0 to {vocabulary - 1}",
            f"{low if low < least else high} came",
            "use the model's tokenizer",
            code="E-DATA-TOKEN",
        )
