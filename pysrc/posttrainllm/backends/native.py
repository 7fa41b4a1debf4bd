"""cpu, natively: the C++ engine as a CPython extension (ext/native.cpp), replaying tapes on a thread pool."""

from __future__ import annotations

from ..compile.graph import REGIONS
from ..compile.tape import OFFSET_MASK, REGION_SHIFT, Tape
from ..errors import DeviceError, DeviceOutOfMemoryError, DeviceUnavailableError
from .base import engine_error, require_same_kernels

ISA_NAMES = {"avx512": "AVX-512", "avx2": "AVX2", "sse2": "SSE2", "neon": "NEON"}


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
        return tape.data

    def replay(self, loaded: bytes) -> None:
        self._call(self._engine.replay, loaded)

    def _call(self, method, data: bytes) -> None:
        try:
            method(data)
        except (RuntimeError, ValueError) as error:
            raise engine_error(str(error)) from error

    def close(self) -> None:
        self._views = []
        self._engine = None
