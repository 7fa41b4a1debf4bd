"""Runs kept in a directory, natively: root/<run id>/{slot-A.bin, slot-B.bin, meta.bin, snapshots.bin, learned-A.bin, learned-B.bin}."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrainllm.errors import StoreBusyError, StoreCorruptError, StoreError, StoreQuotaError
from posttrainllm.store.volume import FILES, HEAD_BYTES, check_run_id, is_run_id, missing

try:
    import fcntl
except ImportError:  # Windows: two processes on one run are not told apart there
    fcntl = None

_DELETED = ".deleted-"
_held: set[Path] = set()  # by this process; some systems (Emscripten's) accept a lock and do not keep it


class DiskFile:
    """An unbuffered file whose `flush` is an fsync."""

    def __init__(self, path: Path):
        self._path = path
        with _as_store_errors(path):
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644), "r+b", 0)

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        target = bytearray(max(0, min(nbytes, self.size() - offset)))
        self.read_into(offset, memoryview(target))
        return memoryview(target)

    def read_into(self, offset: int, target: Any) -> None:
        view = memoryview(target)
        with _as_store_errors(self._path):
            self._file.seek(offset)
            done = 0
            while done < view.nbytes:
                count = self._file.readinto(view[done:])
                if not count:
                    raise StoreCorruptError(
                        str(self._path), "the file holds what its header says", "it ends early", "open another run"
                    )
                done += count

    def write_at(self, offset: int, piece: Any) -> None:
        view = memoryview(piece)
        with _as_store_errors(self._path):
            self._file.seek(offset)
            done = 0
            while done < view.nbytes:  # a write to a full disk may take a part before the next one fails
                done += self._file.write(view[done:])

    def truncate(self, nbytes: int) -> None:
        with _as_store_errors(self._path):
            self._file.truncate(nbytes)

    def flush(self) -> None:
        with _as_store_errors(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class DiskFolder:
    """A run held open: a lock on its first file keeps every other process (and this one) from opening it too."""

    def __init__(self, path: Path):
        self.files: dict[str, DiskFile] = {}
        self._key = path.resolve()
        if self._key in _held:
            raise _busy(path)
        _held.add(self._key)
        try:
            for name in FILES:
                self.files[name] = DiskFile(path / name)
            if fcntl is not None:
                fcntl.flock(self.files[FILES[0]].fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise _busy(path) from None
            raise
        _sync_directory(path)  # a file's name is durable only once its directory is

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        _held.discard(self._key)


class DiskVolume:
    """A volume in the directory `root`, made when the first run is."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)

    def _path(self, run_id: str) -> Path:
        return self.root / check_run_id(run_id)

    async def list_runs(self) -> list[str]:
        with _as_store_errors(self.root):
            if not self.root.is_dir():
                return []
            return sorted(
                path.name
                for path in self.root.iterdir()
                if is_run_id(path.name) and any((path / name).is_file() for name in FILES)
            )

    async def open_run(self, run_id: str, create: bool = False) -> DiskFolder:
        path = self._path(run_id)
        made = not path.is_dir()
        if made:
            if not create:
                raise missing(run_id)
            with _as_store_errors(path):
                path.mkdir(parents=True)
                _sync_directory(self.root)
        try:
            return DiskFolder(path)
        except BaseException:
            if made:  # a full disk may have room for a folder and not for its files
                shutil.rmtree(path, ignore_errors=True)
            raise

    async def delete_run(self, run_id: str) -> None:
        path = self._path(run_id)
        if not path.is_dir():
            raise missing(run_id)
        DiskFolder(path).close()  # raises if it is open anywhere
        with _as_store_errors(path):
            gone = self.root / f"{_DELETED}{run_id}"
            shutil.rmtree(gone, ignore_errors=True)  # left by a kill between the next two lines
            path.rename(gone)
            _sync_directory(self.root)  # before its files go: a run is there whole or not at all
            shutil.rmtree(gone)

    async def peek(self, run_id: str) -> dict[str, tuple[int, bytes]]:
        path, found = self._path(run_id), {}
        for name in FILES:
            with _as_store_errors(path), contextlib.suppress(FileNotFoundError):
                found[name] = _head(path / name)
        return found


def _busy(path: Path) -> StoreBusyError:
    return StoreBusyError(
        f"run {path.name}",
        "one process at a time has it open",
        "another has, or this one",
        "stop that one or choose another run",
    )


def _head(path: Path) -> tuple[int, bytes]:
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, file.read(HEAD_BYTES)


def _sync_directory(path: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system lets a directory be opened
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextlib.contextmanager
def _as_store_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG):
            raise StoreQuotaError(
                f"saving to {path}",
                "the disk has room for the save",
                f"it has not ({error.strerror})",
                "free some; the save before this one is unharmed",
            ) from error
        raise StoreError(
            str(path), "it can be read and written", f"{error.strerror or error}", "check the path and its permissions"
        ) from error
