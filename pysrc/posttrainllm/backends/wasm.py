"""cpu, in the tab: the same C++ engine as WebAssembly (static/wasm.mjs), in a memory of fixed size beside Pyodide's.

Weights never enter Python's heap: Python holds addresses, and JavaScript views of the engine's regions.
"""

from __future__ import annotations

from ..compile.graph import REGIONS
from ..compile.tape import OFFSET_MASK, RECORD_BYTES, REGION_SHIFT, Tape
from ..errors import DeviceError, DeviceLimitError, DeviceOutOfMemoryError, DeviceUnavailableError
from .base import engine_error, require_same_kernels

LIMIT_BYTES = 4032 << 20
OVERHEAD_BYTES = 16 << 20
"""Beside the regions: the engine's stacks and scratch, tapes, and the C++ runtime."""


async def open_wasm(total_bytes: int, threads: int | None = None) -> "WasmMachine":
    """The engine with room for `total_bytes` of regions. threads None: as many as cores, at most 8; 1 on a page that is
    not isolated. Falls back to one thread where the threaded build does not start.

    Raises DeviceLimitError, DeviceOutOfMemoryError or DeviceUnavailableError.
    """
    import posttrainllm_host as host  # registered by worker.mjs

    nbytes = total_bytes + OVERHEAD_BYTES
    if nbytes > LIMIT_BYTES:
        raise DeviceLimitError(
            "cpu", f"this engine addresses {LIMIT_BYTES:,} bytes", f"the model needs {nbytes:,}",
            "choose a smaller model or a smaller batch",
        )
    wanted = threads or host.default_threads()
    reason = ""
    for count in dict.fromkeys((wanted, 1)):
        try:
            return WasmMachine(await host.open_engine(nbytes, count), reason)
        except Exception as error:  # a JsException: the module did not start, or there is no memory for it
            if "memory" in str(error):
                raise DeviceOutOfMemoryError(
                    "cpu", f"the model needs {nbytes:,} bytes in one piece", "the browser refused",
                    "close other tabs, or choose a smaller model or a smaller batch",
                ) from error
            reason = str(error)
    raise DeviceUnavailableError("cpu", "the WebAssembly engine starts", reason, "reload the page, or use another browser")


class WasmMachine:
    """The engine in this worker. Closed once; a run of another size opens another."""

    name = "cpu"

    def __init__(self, engine, reason: str = "") -> None:
        require_same_kernels(list(engine.kernelNames()))
        self._engine, self._replay = engine, engine.replay
        self.threads, self.isa, self.fallback_reason = engine.threads, str(engine.isa), reason
        plural = "" if self.threads == 1 else "s"
        self.description = f"CPU, WebAssembly SIMD, {self.threads} thread{plural}"
        self._bytes = dict.fromkeys(REGIONS, 0)
        self._views: list = [None] * len(REGIONS)

    @property
    def memory_bytes(self) -> int:
        """Size of the engine's whole memory."""
        return int(self._engine.bytes)

    def allocate(self, region_bytes: dict[str, int]) -> None:
        for region, nbytes in region_bytes.items():
            if nbytes <= self._bytes[region]:
                continue
            index = REGIONS.index(region)
            kept = self._views[index].to_bytes() if self._bytes[region] else b""
            if not self._engine.allocate(index, nbytes):
                self._restore(index, kept)
                raise DeviceOutOfMemoryError(
                    "cpu", f"region {region} needs {nbytes:,} bytes", f"the engine's memory has {self.memory_bytes:,} in all",
                    "choose a smaller model or a smaller batch",
                )
            self._bytes[region] = nbytes
            self._views[index] = self._engine.view(index, nbytes)
            if kept:
                self._views[index].subarray(0, len(kept)).assign(kept)

    def _restore(self, index: int, kept: bytes) -> None:
        """A region as it was before it was refused more: its old place is free, and fits it."""
        if kept and self._engine.allocate(index, len(kept)):
            self._views[index] = self._engine.view(index, len(kept))
            self._views[index].assign(kept)

    def view(self, address: int, nbytes: int):
        """A JavaScript Uint8Array over the engine's memory; nothing is copied."""
        region, offset = address >> REGION_SHIFT, address & OFFSET_MASK
        if offset + nbytes > self._bytes[REGIONS[region]]:
            raise DeviceError(
                "cpu", f"region {REGIONS[region]} holds {self._bytes[REGIONS[region]]:,} bytes", f"{nbytes:,} at {offset:,} came"
            )
        return self._views[region].subarray(offset, offset + nbytes)

    def upload(self, address: int, data) -> None:
        if hasattr(data, "subarray"):
            self.view(address, data.byteLength).set(data)
        else:
            self.view(address, memoryview(data).nbytes).assign(data)

    def download(self, address: int, nbytes: int) -> bytes:
        return self.view(address, nbytes).to_bytes()

    def load(self, tape: Tape) -> tuple[int, int]:
        import posttrainllm_host as host

        pointer = self._engine.load(host.to_uint8(tape.data))
        if not pointer:
            raise DeviceError("engine", str(self._engine.error()) or "there is no memory left for a tape")
        return pointer, host.bigint(len(tape.data) // RECORD_BYTES)

    def replay(self, loaded: tuple[int, object]) -> None:
        if self._replay(*loaded):
            raise engine_error(str(self._engine.error()))

    def close(self) -> None:
        self._views = [None] * len(REGIONS)
        self._engine.close()
