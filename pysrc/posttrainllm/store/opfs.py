"""Runs kept in the browser's origin-private file system, from a dedicated worker under Pyodide.

Files are held as synchronous access handles: reading, writing and `flush` are plain calls, and a handle is exclusive
over all tabs, so a run that is open here is StoreBusyError there and no other lock is needed. Bytes cross in pieces of
at most 4 MiB through one staging array; an engine's own Uint8Array goes to the file without passing through Python.

Never asks `navigator.storage.estimate()` whether there is room: Chromium's answer is wrong after a restart. The write
that fails is the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from posttrainllm.errors import StoreBusyError, StoreCorruptError, StoreError, StoreQuotaError
from posttrainllm.store.buffers import CHUNK_BYTES, is_js, nbytes
from posttrainllm.store.volume import FILES, HEAD_BYTES, check_run_id, is_run_id, missing

_RETRY_SECONDS = 0.05


class OpfsFile:
    """A FileSystemSyncAccessHandle. Options go to JavaScript as keywords: Pyodide makes them its last argument."""

    def __init__(self, handle: Any, volume: OpfsVolume, place: str):
        self._handle, self._volume, self._place = handle, volume, place

    def size(self) -> int:
        with _as_store_errors(self._place):
            return int(self._handle.getSize())

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        target = memoryview(bytearray(max(0, min(nbytes, self.size() - offset))))
        self.read_into(offset, target)
        return target

    def read_into(self, offset: int, target: Any) -> None:
        total, done = nbytes(target), 0
        while done < total:
            count = min(CHUNK_BYTES, total - done)
            part = target.subarray(done, done + count) if is_js(target) else self._volume.staging.subarray(0, count)
            with _as_store_errors(self._place):
                came = int(self._handle.read(part, at=offset + done))
            if came == 0:
                raise StoreCorruptError(
                    self._place, "the file holds what its header says", "it ends early", "open another run"
                )
            if not is_js(target):
                part.subarray(0, came).assign_to(target[done : done + came])
            done += came

    def write_at(self, offset: int, piece: Any) -> None:
        total, done = nbytes(piece), 0
        while done < total:
            count = min(CHUNK_BYTES, total - done)
            if is_js(piece):
                part = piece.subarray(done, done + count)
            else:
                part = self._volume.staging.subarray(0, count)
                part.assign(memoryview(piece)[done : done + count])
            with _as_store_errors(self._place):
                taken = int(self._handle.write(part, at=offset + done))
            if taken == 0:
                raise _no_room(self._place)
            done += taken

    def truncate(self, nbytes: int) -> None:
        with _as_store_errors(self._place):
            self._handle.truncate(nbytes)

    def flush(self) -> None:
        with _as_store_errors(self._place):
            self._handle.flush()

    def close(self) -> None:
        self._handle.close()


class OpfsFolder:
    def __init__(self, files: dict[str, OpfsFile]):
        self.files = files

    def close(self) -> None:
        for file in self.files.values():
            file.close()


class OpfsVolume:
    """A volume in one directory of the origin's file system; make it with `await OpfsVolume.open()`.

    A page that was just reloaded may find its own run still held by the worker that is going away: opening tries again
    for `patience_seconds` before it says StoreBusyError.
    """

    def __init__(self, directory: Any, new_bytes: Any, patience_seconds: float = 2.0):
        self._directory, self._new_bytes, self._patience_seconds = directory, new_bytes, patience_seconds
        self._name = ""  # of the directory in the root, where it is known
        self._staging: Any = None

    @classmethod
    async def open(cls, directory: str = "runs") -> OpfsVolume:
        """The volume in `directory`, made if need be; StoreError E-STORE-UNAVAILABLE where the browser has none."""
        import js  # only there under Pyodide

        try:
            root = await js.navigator.storage.getDirectory()
            found = await root.getDirectoryHandle(directory, create=True)
            if not hasattr(js.FileSystemFileHandle.prototype, "createSyncAccessHandle"):
                raise AttributeError("createSyncAccessHandle")
        except Exception as error:  # private windows and old browsers fail each in their own way
            raise StoreError(
                "saved runs",
                "the browser lets a page keep files",
                f"it does not here ({_text(error)})",
                "leave private browsing, or export the run before closing the tab",
                code="E-STORE-UNAVAILABLE",
            ) from error
        volume = cls(found, js.Uint8Array.new)
        volume._name = directory
        return volume

    async def _present(self) -> None:
        """The directory anew: a browser that took a page's storage away took the one that there was."""
        if self._name:
            self._directory = (await OpfsVolume.open(self._name))._directory

    @property
    def staging(self) -> Any:
        if self._staging is None:
            self._staging = self._new_bytes(CHUNK_BYTES)
        return self._staging

    async def list_runs(self) -> list[str]:
        found = []
        await self._present()
        with _as_store_errors("saved runs"):
            async for name in self._directory.keys():  # a JavaScript iterator, not a dict
                if is_run_id(name):
                    found.append(name)
        return sorted(found)

    async def open_run(self, run_id: str, create: bool = False) -> OpfsFolder:
        place = f"run {check_run_id(run_id)}"
        await self._present()
        with _as_store_errors(place, run_id):
            folder = await self._directory.getDirectoryHandle(run_id, create=create)
        files: dict[str, OpfsFile] = {}
        try:
            for name in FILES:
                with _as_store_errors(place, run_id):
                    entry = await folder.getFileHandle(name, create=True)
                files[name] = OpfsFile(await self._hold(entry, place), self, place)
        except BaseException:
            OpfsFolder(files).close()
            raise
        return OpfsFolder(files)

    async def _hold(self, entry: Any, place: str) -> Any:
        waited = 0.0
        while True:
            try:
                with _as_store_errors(place):
                    return await entry.createSyncAccessHandle()
            except StoreBusyError:
                if waited >= self._patience_seconds:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)
            waited += _RETRY_SECONDS

    async def delete_run(self, run_id: str) -> None:
        with _as_store_errors(f"run {check_run_id(run_id)}", run_id):
            await self._directory.removeEntry(run_id, recursive=True)

    async def peek(self, run_id: str) -> dict[str, tuple[int, bytes]]:
        found = {}
        with _as_store_errors(f"run {check_run_id(run_id)}", run_id):
            folder = await self._directory.getDirectoryHandle(run_id)
            for name in FILES:
                try:
                    file = await (await folder.getFileHandle(name)).getFile()
                except Exception as error:
                    if getattr(error, "name", "") != "NotFoundError":
                        raise
                    continue
                head = await file.slice(0, HEAD_BYTES).arrayBuffer()
                found[name] = (int(file.size), head.to_bytes())
        return found


@contextlib.contextmanager
def _as_store_errors(place: str, run_id: str = "") -> Iterator[None]:
    """Turn a DOMException, by its name, into the house's error."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        name = getattr(error, "name", "")
        if name == "QuotaExceededError":
            raise _no_room(place) from error
        if name == "NoModificationAllowedError":
            raise StoreBusyError(
                place,
                "it is open in one place at a time",
                "another tab, or this one, has it open",
                "close it there first",
            ) from error
        if name in ("NotFoundError", "TypeMismatchError") and run_id:
            raise missing(run_id) from error
        raise StoreError(
            place,
            "the browser reads and writes it",
            f"it said {_text(error)}",
            "reload the page; export the run if it still opens",
        ) from error


def _no_room(place: str) -> StoreQuotaError:
    return StoreQuotaError(
        f"saving {place}",
        "the browser has room for the save",
        "it has not",
        "delete a run or free disk space; the save before this one is unharmed",
    )


def _text(error: BaseException) -> str:
    return f"{getattr(error, 'name', type(error).__name__)}: {str(error)[:200]}"
