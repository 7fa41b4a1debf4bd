"""Bytes wherever they live: a Python buffer, a JavaScript Uint8Array over an engine's memory, or a range of a file.

A tensor's data is one of the three, and is moved in pieces of at most `CHUNK_BYTES`, so that neither a save nor a load
ever holds a second copy of a model in Python's heap, which in a browser never shrinks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from posttrainllm.errors import FormatError, ShapeError

CHUNK_BYTES = 4 << 20


def is_js(data: Any) -> bool:
    """True for a JavaScript typed array (Pyodide's JsBuffer has no Python buffer protocol, but `subarray`)."""
    return hasattr(data, "subarray")


def flat(data: Any) -> memoryview:
    """A Python buffer as a one-dimensional memoryview of bytes, without a copy; ShapeError where it is strided."""
    view = memoryview(data)
    if view.nbytes == 0:
        return memoryview(b"")  # cast refuses zeros in a shape
    if not view.c_contiguous:
        raise ShapeError(
            "buffer",
            "its elements lie one after another in row order",
            f"this one has shape {view.shape} and strides {view.strides}",
            "copy it first",
        )
    return view.cast("B")


def nbytes(data: Any) -> int:
    """Size in bytes of any of the three kinds."""
    if isinstance(data, FileRange):
        return data.nbytes
    if is_js(data):
        _one_byte_elements(data)
        return int(data.byteLength)
    return memoryview(data).nbytes


def pieces(data: Any, limit_bytes: int = CHUNK_BYTES) -> Iterator[Any]:
    """The data in order, in memoryviews (Uint8Arrays for a Uint8Array) of at most `limit_bytes`, uncopied."""
    total = nbytes(data)
    if isinstance(data, FileRange):
        for begin in range(0, total, limit_bytes):
            yield memoryview(data.source.read_at(data.offset + begin, min(limit_bytes, total - begin)))
        return
    if is_js(data):
        for begin in range(0, total, limit_bytes):
            yield data.subarray(begin, min(begin + limit_bytes, total))
        return
    view = flat(data)
    for begin in range(0, total, limit_bytes):
        yield view[begin : begin + limit_bytes]


def in_python(piece: Any, scratch: bytearray) -> memoryview:
    """A piece as bytes Python can read; a Uint8Array is copied into `scratch`, which must be as large as a piece."""
    if not is_js(piece):
        return memoryview(piece)
    view = memoryview(scratch)[: int(piece.byteLength)]
    piece.assign_to(view)
    return view


def copy(data: Any, target: Any) -> None:
    """Copy all of `data` into `target` (a writable Python buffer or a Uint8Array) of the same size in bytes."""
    total = nbytes(data)
    if nbytes(target) != total:
        raise ShapeError("copy", "source and target have the same size", f"{total} bytes into {nbytes(target)}")
    read_into = getattr(data.source, "read_into", None) if isinstance(data, FileRange) else None
    begin = 0
    if read_into is not None:  # straight from the file into the engine's memory
        for part in pieces(target):
            read_into(data.offset + begin, part)
            begin += nbytes(part)
        return
    parts = pieces(target)
    for piece in pieces(data):
        part = next(parts)
        if is_js(part) and is_js(piece):
            part.set(piece)
        elif is_js(part):
            part.assign(piece)
        elif is_js(piece):
            piece.assign_to(part)
        else:
            part[:] = piece


def _one_byte_elements(data: Any) -> None:
    if int(data.BYTES_PER_ELEMENT) != 1:
        raise ShapeError(
            "buffer",
            "JavaScript memory comes as a Uint8Array",
            f"this array has {int(data.BYTES_PER_ELEMENT)} bytes an element",
            "wrap it in a Uint8Array",
        )


class FileRange(NamedTuple):
    """`nbytes` bytes of a source (an object with `size` and `read_at(offset, nbytes)`), from `offset` on."""

    source: Any
    offset: int
    nbytes: int


class Tensor(NamedTuple):
    """A named array's data with its safetensors dtype ("F32") and shape; `data` is any of the three kinds."""

    dtype: str
    shape: tuple[int, ...]
    data: Any

    @property
    def nbytes(self) -> int:
        return nbytes(self.data)

    def read_into(self, target: Any) -> None:
        """Fill `target`, a writable buffer or a Uint8Array of `nbytes` bytes."""
        copy(self.data, target)

    def view(self) -> memoryview:
        """All the bytes at once as a memoryview: free for Python memory, one copy for a file or a Uint8Array."""
        if isinstance(self.data, FileRange):
            return memoryview(self.data.source.read_at(self.data.offset, self.data.nbytes))
        if is_js(self.data):
            return memoryview(self.data.to_bytes())
        return flat(self.data)


class MemorySource:
    """A Python buffer or a Uint8Array as a source; reading Python memory copies nothing."""

    def __init__(self, data: Any):
        self._data = data if is_js(data) else flat(data)
        self.size = nbytes(self._data)

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        if is_js(self._data):
            return memoryview(self._data.subarray(offset, offset + nbytes).to_bytes())
        return self._data[offset : offset + nbytes]


def as_source(file: Any) -> Any:
    """`file` itself if it can `read_at`, else a Python buffer or Uint8Array wrapped so that it can."""
    return file if hasattr(file, "read_at") else MemorySource(file)


def read_exactly(source: Any, offset: int, nbytes: int, place: str) -> memoryview:
    """`nbytes` bytes of a source, or FormatError: a file may shrink between its size and the reading of it."""
    view = memoryview(source.read_at(offset, nbytes))
    if view.nbytes != nbytes:
        raise FormatError(
            place,
            f"{nbytes} bytes can be read at byte {offset}",
            f"only {view.nbytes} came",
            "read the file again",
            code="E-FORMAT-TRUNCATED",
        )
    return view
