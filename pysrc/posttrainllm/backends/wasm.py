"""cpu, in the tab: the same C++ engine as WebAssembly (static/wasm.mjs), in a memory of fixed size beside Pyodide's.

Weights never enter Python's heap: Python holds addresses, and JavaScript views of the engine's regions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..compile.graph import REGIONS
from ..compile.tape import OFFSET_MASK, RECORD_BYTES, REGION_SHIFT, Tape
from ..dims import round_up
from ..errors import DeviceError, DeviceLimitError, DeviceOutOfMemoryError, DeviceUnavailableError
from .base import engine_error, require_same_kernels
from .kinds import by_kind

LIMIT_BYTES = 4032 << 20
"""Of a memory with 32-bit addresses."""
WIDE_LIMIT_BYTES = 16 << 30
"""Of one with 64-bit addresses (Memory64), in Chromium."""
OVERHEAD_BYTES = 16 << 20
"""Beside the regions: the engine's stacks and scratch, tapes, and the C++ runtime."""
RESERVE_BYTES = 8 << 20
"""What a model asks for beside its regions (model/choosing.py)."""
PAGE_BYTES, LEAST_BYTES = 1 << 16, 32 << 20
"""Of any memory (wasm.mjs): its size is a multiple of the first and at least the second."""
_OTHERS_BYTES = 6 << 30
_REMEDY = "choose a smaller model or a smaller batch"


def reach_bytes(device_bytes: int, wide: bool) -> int:
    """What the regions of a model may take in a tab, of a machine with `device_bytes` as the browser says it (rounded to a power
    of two; 0: it does not say). Half of it, or all but 6 GiB for the system and others where that is more."""
    limit = (WIDE_LIMIT_BYTES if wide and device_bytes else LIMIT_BYTES) - OVERHEAD_BYTES
    return min(limit, max(device_bytes // 2, device_bytes - _OTHERS_BYTES)) if device_bytes else limit


spares: list["WasmMachine"] = []
"""Engines that stand ready for plain code where Python may not wait for a new one."""


def spare(total_bytes: int) -> "WasmMachine | None":
    """One of the spares with room for so many bytes, no spare any more; None where there is none."""
    for machine in spares:
        if machine.memory_bytes >= total_bytes + OVERHEAD_BYTES:
            spares.remove(machine)
            return machine
    return None


async def open_wasm(total_bytes: int, threads: int | None = None) -> "WasmMachine":
    """The engine with room for `total_bytes` of regions: the build with 64-bit addresses where 32 do not reach. threads None: as
    many as cores, at most 8; 1 on a page that is not isolated. Falls back to one thread where the threaded build does not start.

    Raises DeviceLimitError, DeviceOutOfMemoryError or DeviceUnavailableError.
    """
    import posttrainllm_host as host  # registered by worker.mjs

    nbytes = total_bytes + OVERHEAD_BYTES
    wide = _addresses_of_64_bits(nbytes, str(host.memory_64()) if hasattr(host, "memory_64") else "never")
    wanted = threads or host.default_threads()
    reason = ""
    for count in dict.fromkeys((wanted, 1)):
        try:
            engine = await (host.open_engine(nbytes, count, True) if wide else host.open_engine(nbytes, count))
            return WasmMachine(engine, reason)
        except Exception as error:  # a JsException: the module did not start, or there is no memory for it
            if "memory" in str(error):
                most = int(host.most_bytes(nbytes, wide)) if hasattr(host, "most_bytes") else 0
                raise DeviceOutOfMemoryError(
                    "cpu", f"the model needs {nbytes:,} bytes in one piece",
                    "the browser refused" + (f"; it gives {most:,}" if most else ""), f"close other tabs, or {_REMEDY}",
                ) from error
            reason = str(error)
    raise DeviceUnavailableError("cpu", "the WebAssembly engine starts", reason, "reload the page, or use another browser")


def _addresses_of_64_bits(nbytes: int, memory_64: str) -> bool:
    """Whether a memory takes 64-bit addresses, which this browser and page have ("yes"), have not ("never") or are to use
    "always". Raises DeviceLimitError where no addresses reach so far."""
    wide = memory_64 == "always" or (memory_64 == "yes" and nbytes > LIMIT_BYTES)
    limit = WIDE_LIMIT_BYTES if wide else LIMIT_BYTES
    if nbytes > limit:
        why = "" if wide else ", since this browser has no Memory64 or this page is not isolated"
        raise DeviceLimitError("cpu", f"this engine addresses {limit:,} bytes{why}", f"the model needs {nbytes:,}", _REMEDY)
    return wide


@dataclass(frozen=True)
class Predictor:
    """What a model will hold in a tab: the engine's whole memory, whose size is settled when it is opened."""

    def __call__(self, tapes: Iterable[Tape], region_bytes: dict[str, int], row_bytes: int = 0) -> dict[str, int]:
        """Bytes by kind, and in all: what is not a region's is "other"."""
        need = sum(region_bytes.values())
        whole = max(LEAST_BYTES, round_up(need + RESERVE_BYTES + OVERHEAD_BYTES, PAGE_BYTES))
        return by_kind(region_bytes, other_bytes=whole - need)


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

    predictor = Predictor()

    def memory(self) -> dict[str, int]:
        """Bytes held, by kind: the engine's whole memory; what is not a region's is "other"."""
        return by_kind(self._bytes, other_bytes=self.memory_bytes - sum(self._bytes.values()))

    @property
    def memory_bytes(self) -> int:
        """Size of the engine's whole memory."""
        return int(self._engine.bytes)

    def allocate(self, region_bytes: dict[str, int]) -> None:
        for region, nbytes in region_bytes.items():
            kept = self._bytes[region]
            if nbytes <= kept:
                continue
            index = REGIONS.index(region)
            if not (self._engine.grow(index, nbytes, kept) if kept else self._engine.allocate(index, nbytes)):
                raise DeviceOutOfMemoryError(
                    "cpu", f"region {region} needs {nbytes:,} bytes", f"the engine's memory has {self.memory_bytes:,} in all", _REMEDY
                )
            self._bytes[region] = nbytes

    def view(self, address: int, nbytes: int):
        """A JavaScript Uint8Array over the engine's memory; nothing is copied."""
        region, offset = address >> REGION_SHIFT, address & OFFSET_MASK
        if offset + nbytes > self._bytes[REGIONS[region]]:
            raise DeviceError(
                "cpu", f"region {REGIONS[region]} holds {self._bytes[REGIONS[region]]:,} bytes", f"{nbytes:,} at {offset:,} came"
            )
        return self._engine.view(region, offset, nbytes)

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
        self._bytes = dict.fromkeys(REGIONS, 0)
        self._engine.close()
