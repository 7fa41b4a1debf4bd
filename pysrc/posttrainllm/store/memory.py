"""Runs kept in memory: for tests, and for a browser that gives the page no storage (they go when the tab does)."""

from __future__ import annotations

from typing import Any

from posttrainllm.errors import StoreBusyError, StoreCorruptError, StoreQuotaError
from posttrainllm.store.buffers import in_python, nbytes
from posttrainllm.store.volume import FILES, HEAD_BYTES, check_run_id, missing


class MemoryFile:
    """A file as a bytearray; `room` says how many bytes its volume may still grow by."""

    def __init__(self, volume: MemoryVolume):
        self.data = bytearray()
        self._volume = volume

    def size(self) -> int:
        return len(self.data)

    def read_at(self, offset: int, nbytes: int) -> bytes:
        return bytes(self.data[offset : offset + nbytes])

    def read_into(self, offset: int, target: Any) -> None:
        piece = self.read_at(offset, nbytes(target))
        if len(piece) < nbytes(target):
            raise StoreCorruptError("runs", "the file holds what its header says", "it ends early", "open another run")
        if hasattr(target, "assign"):
            target.assign(piece)
        else:
            target[:] = piece

    def write_at(self, offset: int, piece: Any) -> None:
        data = in_python(piece, bytearray(nbytes(piece)))
        growth = offset + len(data) - len(self.data)
        if growth > 0:
            self._volume.grow(growth)
            self.data.extend(bytes(growth))
        self.data[offset : offset + len(data)] = data

    def truncate(self, nbytes: int) -> None:
        if nbytes > len(self.data):
            self._volume.grow(nbytes - len(self.data))
            self.data.extend(bytes(nbytes - len(self.data)))
        del self.data[nbytes:]

    def flush(self) -> None: ...

    def close(self) -> None: ...


class MemoryFolder:
    def __init__(self, volume: MemoryVolume, run_id: str):
        self.files = volume.runs[run_id]
        self._held, self._run_id = volume.held, run_id

    def close(self) -> None:
        self._held.discard(self._run_id)


class MemoryVolume:
    """A volume of at most `limit_bytes` bytes."""

    def __init__(self, limit_bytes: int | None = None):
        self.runs: dict[str, dict[str, Any]] = {}
        self.held: set[str] = set()
        self.limit_bytes = limit_bytes

    def grow(self, nbytes: int) -> None:
        used = sum(file.size() for files in self.runs.values() for file in files.values())
        if self.limit_bytes is not None and used + nbytes > self.limit_bytes:
            raise StoreQuotaError(
                "save",
                f"all runs together take at most {self.limit_bytes:,} bytes",
                f"{used + nbytes:,} are needed",
                "delete a run; the save before this one is unharmed",
            )

    async def list_runs(self) -> list[str]:
        return sorted(self.runs)

    async def open_run(self, run_id: str, create: bool = False) -> MemoryFolder:
        if check_run_id(run_id) in self.held:
            raise StoreBusyError(f"run {run_id}", "it is open once", "it is open already", "close it there first")
        if run_id not in self.runs:
            if not create:
                raise missing(run_id)
            self.runs[run_id] = {name: MemoryFile(self) for name in FILES}
        self.held.add(run_id)
        return MemoryFolder(self, run_id)

    async def delete_run(self, run_id: str) -> None:
        if check_run_id(run_id) in self.held:
            raise StoreBusyError(
                f"run {run_id}", "a run is closed before it is deleted", "it is open", "close it first"
            )
        if self.runs.pop(run_id, None) is None:
            raise missing(run_id)

    async def peek(self, run_id: str) -> dict[str, tuple[int, bytes]]:
        if run_id not in self.runs:
            raise missing(run_id)
        return {name: (file.size(), file.read_at(0, HEAD_BYTES)) for name, file in self.runs[run_id].items()}
