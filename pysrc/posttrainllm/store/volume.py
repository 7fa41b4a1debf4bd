"""What saved runs need of a place to keep files, and what every such place shares.

A run is a folder of six files, each opened once and held while the run is open. Opening, listing and deleting are
coroutines, because a browser's are; reading and writing an open file is not, because a browser's synchronous access
handles are not. On a disk the same coroutines never wait, and `runs.now` runs them without an event loop.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from posttrainllm.errors import StoreMissingError

SLOT_FILES = ("slot-A.bin", "slot-B.bin")
META_FILE = "meta.bin"
SNAPSHOTS_FILE = "snapshots.bin"
JOURNAL_FILES = ("learned-A.bin", "learned-B.bin")
FILES = (*SLOT_FILES, META_FILE, SNAPSHOTS_FILE, *JOURNAL_FILES)
PAGE_BYTES = 4096
HEAD_BYTES = 2 * PAGE_BYTES  # a slot's header page, or both pages of the meta file: all that a list of runs needs

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class File(Protocol):
    """An open file. Writes may be lost, or torn anywhere, until `flush` has returned."""

    def size(self) -> int: ...
    def read_at(self, offset: int, nbytes: int) -> Any:
        """Bytes-like; shorter than asked only where the file ends."""

    def read_into(self, offset: int, target: Any) -> None:
        """Fill a writable memoryview (or, in a browser, a Uint8Array) from `offset`; StoreCorruptError at the end."""

    def write_at(self, offset: int, piece: Any) -> None:
        """Write a memoryview (or a Uint8Array), all of it; StoreQuotaError where there is no room."""

    def truncate(self, nbytes: int) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class Folder(Protocol):
    """An open run: its files, by name. While it is open nobody else can open it."""

    files: dict[str, File]

    def close(self) -> None: ...


class Volume(Protocol):
    """A place that keeps runs: DiskVolume, OpfsVolume, MemoryVolume."""

    async def list_runs(self) -> list[str]:
        """Ids of all run folders, sorted."""

    async def open_run(self, run_id: str, create: bool = False) -> Folder:
        """StoreMissingError if it is not there and not to be created; StoreBusyError if it is open elsewhere."""

    async def delete_run(self, run_id: str) -> None:
        """Remove the folder; StoreBusyError if it is open anywhere, StoreMissingError if it is not there."""

    async def peek(self, run_id: str) -> dict[str, tuple[int, bytes]]:
        """(size, first HEAD_BYTES) of each file there is, without opening the run: lists never disturb a save."""


def is_run_id(name: str) -> bool:
    return _RUN_ID.fullmatch(name) is not None


def check_run_id(run_id: str) -> str:
    """The id, if it can be a folder's name on every volume and points nowhere else; else StoreMissingError."""
    if not is_run_id(run_id):
        raise StoreMissingError(
            "runs",
            "an id is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit",
            f"{ascii(run_id)[:80]} came",
            "choose a run from the list",
        )
    return run_id


def missing(run_id: str) -> StoreMissingError:
    return StoreMissingError(f"run {run_id}", "it exists", "no folder of that id is here", "choose a run from the list")
