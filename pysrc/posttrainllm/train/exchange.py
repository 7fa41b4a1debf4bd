"""Models in other programs' files, on a disk: Hugging Face's folder or its .zip, read and written, and GGUF, written."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import DataError, StoreError
from ..store import gguf, hf
from ..store.archive import Inflated, opened_zip
from ..store.checkpoint import Checkpoint


def is_hf(path: Path) -> bool:
    """Whether a path is a folder that Hugging Face's programs wrote, or a .zip."""
    return (path / hf.CONFIG).is_file() if path.is_dir() else path.suffix.lower() == ".zip"


def read_hf(path: str | Path) -> Checkpoint:
    """The model in such a folder, or in its .zip; weights are read from the disk when they are used.

    Raises DataError when it cannot be read, FormatError when it is not sound or of a model that this program does not have.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return hf.read({file.name: _mapped(file) for file in path.iterdir() if file.is_file()}, path.name)
        return hf.read(hf.folder_in(opened_zip(_mapped(path))), path.stem, unpack=_unpacked)
    except OSError as error:
        raise DataError(f"reading {path}", "a folder or a .zip that can be read", error.strerror or str(error), "check the path") from error


def _mapped(file: Path) -> memoryview:
    with open(file, "rb") as held:
        return _view(held.fileno())


def _view(number: int) -> memoryview:
    return memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ) if os.fstat(number).st_size else b"")


def _unpacked(entry: Any) -> Any:
    """A deflated file of weights, unpacked to a nameless file: weights are read in an order that deflate is slow in.

    Its header was read before, and its tensors end where the entry says that it does: no more than that is written.
    """
    if not isinstance(entry, Inflated):
        return entry
    with tempfile.TemporaryFile() as held:
        at = 0
        while piece := entry.read_at(at, 1 << 20):
            held.write(piece)
            at += len(piece)
        held.flush()
        return _view(held.fileno())


def write_hf(checkpoint: Checkpoint, folder: str | Path) -> int:
    """Write a whole model as a folder that transformers loads, made where there is none; returns its bytes.

    Each file appears whole or not at all, config.json last. Raises FormatError for an adapter's run, StoreError.
    """
    folder, files = Path(folder), hf.files_of(checkpoint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return sum(_write(files[name].chunks, folder / name) for name in sorted(files, key=lambda name: name == hf.CONFIG))
    except OSError as error:
        raise _unwritable(folder, "the folder", error) from error


def write_gguf(checkpoint: Checkpoint, path: str | Path, kind: str = "f32") -> int:
    """Write a whole model as one GGUF file (see store/gguf.py); returns its bytes. Raises FormatError, ConfigError, StoreError."""
    file, path = gguf.file_of(checkpoint, kind), Path(path)
    try:
        return _write(file.chunks, path)
    except OSError as error:
        raise _unwritable(path, "the file", error) from error


def _write(chunks: Iterable[Any], path: Path) -> int:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
            written = file.tell()
        part.replace(path)
        return written
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _unwritable(path: Path, what: str, error: OSError) -> StoreError:
    return StoreError(f"writing {path}", f"{what} can be written", error.strerror or str(error), "choose another place")
