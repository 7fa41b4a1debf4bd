"""A stand-in engine: the reference kernels run on float32 bytes. It exercises the harness itself, and carries mutants.

It is not a product backend: where an engine under test must be compared, the judge is the float64 reference.
"""

import numpy as np

from posttrainllm.compile.graph import REGIONS
from posttrainllm.compile.tape import OFFSET_MASK, REGION_SHIFT, decode
from posttrainllm.dims import product

DTYPES = {"f32": "<f4", "i32": "<i4"}


class Float32Machine:
    """Regions are bytes; `replaced` gives another run(sizes, params, *arrays) for some kernels by name."""

    name = "float32"
    description = "float32 NumPy (tests only)"

    def __init__(self, replaced=None):
        self._replaced = replaced or {}
        self._regions = {region: np.zeros(0, np.uint8) for region in REGIONS}

    def allocate(self, region_bytes):
        for region, nbytes in region_bytes.items():
            old = self._regions[region]
            if old.size < nbytes:
                self._regions[region] = np.zeros(nbytes, np.uint8)
                self._regions[region][: old.size] = old

    def _bytes(self, address, nbytes):
        start = address & OFFSET_MASK
        part = self._regions[REGIONS[address >> REGION_SHIFT]][start : start + nbytes]
        assert part.size == nbytes, f"an operand of {nbytes} bytes at {start} is outside its region"
        return part

    def upload(self, address, data):
        data = np.frombuffer(data, np.uint8)
        self._bytes(address, data.size)[...] = data

    def download(self, address, nbytes):
        return self._bytes(address, nbytes).tobytes()

    def load(self, tape):
        calls = []
        for entry in decode(tape):
            arrays = []
            for argument, (region, offset) in zip(entry.kernel.args, entry.operands):
                shape = entry.kernel.shape(argument, entry.sizes)
                place = (REGIONS.index(region) << REGION_SHIFT) | offset
                arrays.append(self._bytes(place, product(shape) * 4).view(DTYPES[argument.dtype]).reshape(shape))
            calls.append((entry, self._replaced.get(entry.kernel.name, entry.kernel.run), arrays))
        return calls

    def replay(self, loaded):
        with np.errstate(all="ignore"):
            for entry, run, arrays in loaded:
                run(entry.sizes, entry.params, *arrays)

    def close(self):
        self._regions = {}
