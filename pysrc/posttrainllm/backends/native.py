"""cpu, natively: the C++ engine as a CPython extension (ext/native.cpp), replaying tapes on a thread pool."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from ..compile.graph import REGIONS
from ..compile.tape import OFFSET_MASK, REGION_SHIFT, Tape
from ..errors import DeviceError, DeviceOutOfMemoryError, DeviceUnavailableError
from .base import engine_error, require_same_kernels
from .kinds import by_kind

ISA_NAMES = {"avx512": "AVX-512", "avx2": "AVX2", "sse2": "SSE2", "neon": "NEON"}


THREAD_SCRATCH_BYTES, SHARED_SCRATCH_BYTES = 768 << 10, (1 << 20) + (1 << 16)
"""As ext/run.h has them."""


def scratch_bytes(threads: int) -> int:
    """What the engine holds for its threads."""
    return THREAD_SCRATCH_BYTES * threads + SHARED_SCRATCH_BYTES


@dataclass(frozen=True)
class Predictor:
    """What a model will hold on an engine of so many threads."""

    threads: int

    def __call__(self, tapes: Iterable[Tape], region_bytes: dict[str, int], row_bytes: int = 0) -> dict[str, int]:
        """Bytes by kind, and in all."""
        return by_kind(region_bytes, scratch_bytes(self.threads), sum(len(tape.data) for tape in tapes))


class CpuMachine:
    """The C++ engine in this process. `isa` forces "sse2", "avx2" or "avx512" (tests); default the widest there is."""

    name = "cpu"

    def __init__(self, threads: int = 1, isa: str | None = None) -> None:
        try:
            from .. import _native
        except ImportError as error:
            raise DeviceUnavailableError(
                "cpu", "the engine is built when the package is installed", f"it cannot be loaded ({error})", "run ./build.sh setup"
            ) from error
        require_same_kernels(_native.kernel_names())
        try:
            self._engine = _native.Engine(threads, isa)
        except ValueError as error:
            raise DeviceUnavailableError("cpu", "an engine build and a number of threads that this host runs", str(error)) from error
        self.threads, self.isa = threads, self._engine.isa
        plural = "" if threads == 1 else "s"
        self.description = f"CPU, {ISA_NAMES.get(self.isa, self.isa)}, {threads} thread{plural}"
        self._bytes = dict.fromkeys(REGIONS, 0)
        self._tapes: dict[int, int] = {}
        self._views: list = [memoryview(b"")] * len(REGIONS)

    def allocate(self, region_bytes: dict[str, int]) -> None:
        for region, nbytes in region_bytes.items():
            if nbytes <= self._bytes[region]:
                continue
            index = REGIONS.index(region)
            kept = bytes(self._views[index])
            try:
                self._engine.allocate(index, nbytes)
            except MemoryError as error:
                self._engine.allocate(index, len(kept))  # as it was: what the region held must not be lost
                self._views[index] = memoryview(self._engine.view(index)).cast("B")
                self._views[index][:] = kept
                raise DeviceOutOfMemoryError(
                    "cpu", f"region {region} needs {nbytes:,} bytes", "the system refused", "use a smaller model or batch"
                ) from error
            self._bytes[region] = nbytes
            self._views[index] = memoryview(self._engine.view(index)).cast("B")
            self._views[index][: len(kept)] = kept

    def trim(self, region_bytes: dict[str, int]) -> None:
        """Make regions no larger than this; one that is made smaller becomes zero."""
        for region, nbytes in region_bytes.items():
            if nbytes < self._bytes[region]:
                index = REGIONS.index(region)
                self._views[index] = memoryview(b"")
                self._engine.allocate(index, nbytes)
                self._bytes[region], self._views[index] = nbytes, memoryview(self._engine.view(index)).cast("B")

    def view(self, address: int, nbytes: int) -> memoryview:
        offset = address & OFFSET_MASK
        view = self._views[address >> REGION_SHIFT]
        if offset + nbytes > len(view):
            raise DeviceError("cpu", f"region {REGIONS[address >> REGION_SHIFT]} holds {len(view):,} bytes", f"{nbytes:,} at {offset:,} came")
        return view[offset : offset + nbytes]

    def upload(self, address: int, data) -> None:
        data = memoryview(data).cast("B")
        self.view(address, len(data))[:] = data

    def download(self, address: int, nbytes: int) -> bytes:
        return bytes(self.view(address, nbytes))

    def load(self, tape: Tape) -> bytes:
        self._call(self._engine.check, tape.data)
        if id(tape) not in self._tapes:
            self._tapes[id(tape)] = len(tape.data)
            weakref.finalize(tape, self._tapes.pop, id(tape), None)
        return tape.data

    def replay(self, loaded: bytes) -> None:
        self._call(self._engine.replay, loaded)

    def _call(self, method, data: bytes) -> None:
        try:
            method(data)
        except (RuntimeError, ValueError) as error:
            raise engine_error(str(error)) from error

    @property
    def predictor(self) -> Predictor:
        """See Machine's."""
        return Predictor(self.threads)

    def memory(self) -> dict[str, int]:
        """Bytes held, by kind: regions, the threads' scratch, and the tapes that were loaded."""
        return by_kind(self._bytes, scratch_bytes(self.threads), sum(self._tapes.values()))

    def close(self) -> None:
        self._views = []
        self._engine = None
