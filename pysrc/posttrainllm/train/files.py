"""Checkpoints in files: a .safetensors file, or a run's folder (store/disk.py)."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import ConfigError, DataError, StoreError, StoreMissingError
from ..store.checkpoint import Checkpoint
from ..store.disk import DiskVolume
from ..store.runs import Run, RunStore, now
from ..store.volume import is_run_id
from .exchange import is_hf, read_hf


def write_checkpoint(checkpoint: Checkpoint, path: str | Path) -> int:
    """Write one .safetensors file and return its bytes. The file appears whole or not at all. Raises StoreError."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.writelines(checkpoint.to_chunks())
            file.flush()
            os.fsync(file.fileno())
            written = file.tell()
        part.replace(path)
        return written
    except OSError as error:
        raise StoreError(
            f"writing {path}", "the file can be written", error.strerror or str(error), "choose another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint in a .safetensors file; its tensors are read from the disk when they are used.

    Raises DataError when it cannot be read, FormatError when it is no checkpoint.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise DataError(
            f"reading {path}", "a file that can be read", error.strerror or str(error), "check the path"
        ) from error
    return Checkpoint.from_safetensors(memoryview(data), str(path))


def hold_run(folder: str | Path, create: str | None = None) -> Run:
    """Open the run in a folder; with `create`, a name, make it where there is none. Close it when done.

    Raises ConfigError for a name that no run can have, StoreBusyError while another process has it, StoreMissingError.
    """
    folder = Path(os.path.abspath(folder))
    if not is_run_id(folder.name):
        raise ConfigError(
            f"run {folder}",
            "its folder's name is 1 to 64 of A-Z a-z 0-9 . _ - and begins with a letter or digit",
            f"{folder.name!r} came",
            "choose another name",
        )
    store = RunStore(DiskVolume(folder.parent))
    if create is not None and folder.name not in now(store.volume.list_runs()):
        return now(store.create(create, folder.name))
    return now(store.open(folder.name))


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Checkpoint]:
    """The checkpoint in a file, a run's folder, or a Hugging Face folder or its .zip, for as long as this lasts."""
    path = Path(path)
    if is_hf(path):
        yield read_hf(path)
        return
    if not path.is_dir():
        yield read_checkpoint(path)
        return
    if not (path / "slot-A.bin").exists():
        raise StoreMissingError(str(path), "a run is saved there, or a model's config.json and its files are", "neither is", "choose another folder")
    with hold_run(path) as run:
        yield run.load()
