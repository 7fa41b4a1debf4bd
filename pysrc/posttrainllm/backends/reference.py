"""reference: the float64 judge. It replays the same tape on NumPy, so it also proves the plan's addresses.

Every four bytes of a region are one float64 here; integers (tokens, seeds) are held exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..compile.graph import REGIONS
from ..compile.tape import OFFSET_MASK, REGION_SHIFT, Tape, decode
from ..dims import ELEMENT_BYTES, product
from ..errors import DataError, DeviceError
from ..ops.lazy import np


@dataclass
class Loaded:
    """A tape and its records with their arrays, of the regions as they stood at `generation`."""

    tape: Tape
    generation: int
    calls: list


class ReferenceMachine:
    """The tape on float64 arrays. Slow and right."""

    name = "reference"
    description = "float64 reference (NumPy)"

    def __init__(self) -> None:
        self._regions: dict[str, object] = {region: np.zeros(0) for region in REGIONS}
        self._generation = 0
        self._words: set[str] = set()

    def expect(self, tapes: Iterable[Tape]) -> None:
        """Which tapes come: where their AdamW keeps its moments packed, these regions hold integers from now on."""
        steps = [entry for tape in tapes for entry in decode(tape) if entry.kernel.name.startswith("adamw")]
        if steps:
            found = [(arg.dtype, region) for entry in steps for arg, (region, _) in zip(entry.kernel.args, entry.operands)]
            self._words = {region for dtype, region in found if dtype == "i32" and region in ("m", "v")}

    def allocate(self, region_bytes: dict[str, int]) -> None:
        for region, nbytes in region_bytes.items():
            old = self._regions[region]
            if old.size * ELEMENT_BYTES < nbytes:
                fresh = self._regions[region] = np.zeros(nbytes // ELEMENT_BYTES)
                fresh[: old.size] = old
                self._generation += 1

    def _part(self, address: int, elements: int):
        region, offset = REGIONS[address >> REGION_SHIFT], (address & OFFSET_MASK) // ELEMENT_BYTES
        part = self._regions[region][offset : offset + elements]
        if part.size != elements:
            raise DeviceError("reference", f"region {region} holds the operand", f"{elements} elements at {offset} came")
        return part

    def _integral(self, address: int) -> bool:
        """Inputs, the seed, the position and packed moments are i32; everything else is f32."""
        region = REGIONS[address >> REGION_SHIFT]
        return region == "inputs" or region in self._words or (region == "slots" and (address & OFFSET_MASK) in (256, 768))

    def upload(self, address: int, data) -> None:
        values = np.frombuffer(data, "<i4" if self._integral(address) else "<f4")
        self._part(address, values.size)[...] = values

    def download(self, address: int, nbytes: int) -> bytes:
        values = self._part(address, nbytes // ELEMENT_BYTES)
        return values.astype("<i4" if self._integral(address) else "<f4").tobytes()

    def view(self, address: int, nbytes: int) -> memoryview:
        return memoryview(self.download(address, nbytes))

    def download_f64(self, address: int, nbytes: int):
        """The same in full precision, for tests: a float64 array of nbytes/4 elements."""
        return self._part(address, nbytes // ELEMENT_BYTES).copy()

    def load(self, tape: Tape) -> Loaded:
        self.expect([tape])
        return Loaded(tape, self._generation, self._bound(tape))

    def _bound(self, tape: Tape) -> list:
        """Records with their arrays, as the regions stand now."""
        calls = []
        for index, entry in enumerate(decode(tape)):
            arrays = []
            for argument, (region, offset) in zip(entry.kernel.args, entry.operands):
                shape = entry.kernel.shape(argument, entry.sizes)
                place = (REGIONS.index(region) << REGION_SHIFT) | offset
                arrays.append(self._part(place, product(shape)).reshape(shape))
            calls.append((index, entry, arrays))
        return calls

    def replay(self, loaded: Loaded) -> None:
        if loaded.generation != self._generation:
            loaded.generation, loaded.calls = self._generation, self._bound(loaded.tape)
        for index, entry, arrays in loaded.calls:
            try:
                entry.kernel.run(entry.sizes, entry.params, *arrays)
            except IndexError as error:
                raise DataError(f"record {index} {entry.kernel.name}: a token or target lies outside the vocabulary ({error})") from error

    def close(self) -> None:
        self._regions = {}
