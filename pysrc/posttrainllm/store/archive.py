"""Files in a .zip: read where they lie, without unpacking to memory, and written as a stream without seeking.

What is stored plainly is read as a range of the archive; what is deflated is read forwards, and again from its start where
somebody asks for what went by.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from ..errors import FormatError
from .buffers import CHUNK_BYTES, as_source, in_python, nbytes, pieces

MOST_ENTRIES = 10_000
MOST_RATIO = 64
"""Of unpacked to packed bytes: weights are far below it, archives that are made to burst far above."""
MOST_TEXT_RATIO = 12
"""The same for a text that is parsed as a whole. tokenizer.json as transformers writes it packs 4- to 6-fold, indented by 4 up to 9-fold."""
TEXT_ROOM_BYTES = 64 << 10
PART_BYTES = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LOCAL = struct.Struct("<4s5H3I2H")
_UNSOUND = (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, OSError, OverflowError,
            KeyError, IndexError, struct.error, zlib.error)  # fmt: skip


class Part(NamedTuple):
    """`size` bytes of a source from `offset` on, as a source."""

    source: Any
    offset: int
    size: int

    def read_at(self, offset: int, nbytes: int) -> Any:
        """Shorter than asked only where the part ends."""
        return self.source.read_at(self.offset + offset, max(0, min(nbytes, self.size - offset)))


class Inflated:
    """A deflated entry as a source: `size` and `packed_bytes` as the archive says."""

    def __init__(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        self.size, self.packed_bytes = entry.file_size, entry.compress_size
        self._archive, self._entry = archive, entry
        self._stream: Any = None
        self._at = 0

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Raises FormatError where the entry does not unpack."""
        try:
            if self._stream is None or offset < self._at:
                self._stream, self._at = self._archive.open(self._entry), 0
            while self._at < offset and self._take(min(PART_BYTES, offset - self._at)):
                pass
            return b"".join(iter(lambda: self._take(min(PART_BYTES, nbytes - (self._at - offset))), b""))
        except _UNSOUND as error:
            _refuse(str(error) or type(error).__name__)

    def _take(self, count: int) -> bytes:
        came = self._stream.read(count) if count > 0 else b""
        self._at += len(came)
        return came


class _Reader(io.RawIOBase):
    """A source as a file that zipfile can read."""

    def __init__(self, source: Any) -> None:
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._source.size)[whence]
        if at < 0:
            raise ValueError("a place before the archive's start")
        self._at = at
        return at

    def readinto(self, target: Any) -> int:
        data = self._source.read_at(self._at, min(len(target), max(0, self._source.size - self._at)))
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


def opened_zip(file: Any) -> dict[str, Any]:
    """The entries of an archive (bytes, a Uint8Array, or a source) by their whole names, as sources; folders are left out.

    Raises FormatError: not a .zip, locked, compressed otherwise than by deflate, or packed to burst.
    """
    source = as_source(file)
    try:
        archive = zipfile.ZipFile(io.BufferedReader(_Reader(source), PART_BYTES))
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_ENTRIES:
            _refuse(f"{len(entries):,} files, more than {MOST_ENTRIES:,}")
        return {entry.filename: _opened(archive, source, entry) for entry in entries}
    except _UNSOUND as error:
        _refuse(str(error) or type(error).__name__)


def _opened(archive: zipfile.ZipFile, source: Any, entry: zipfile.ZipInfo) -> Any:
    name = ascii(entry.filename)[:60]
    if entry.flag_bits & 1:
        _refuse(f"{name} is locked with a password")
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        if entry.file_size > MOST_RATIO * entry.compress_size + PART_BYTES or entry.compress_size > source.size:
            _refuse(f"{name} unpacks to {entry.file_size:,} bytes from {entry.compress_size:,}")
        return Inflated(archive, entry)
    if entry.compress_type != zipfile.ZIP_STORED:
        _refuse(f"{name} is compressed in another way than deflate")
    head = _LOCAL.unpack(bytes(source.read_at(entry.header_offset, _LOCAL.size)))
    begin = entry.header_offset + _LOCAL.size + head[-2] + head[-1]
    if head[0] != b"PK\3\4" or entry.file_size != entry.compress_size or begin + entry.file_size > source.size:
        _refuse(f"{name} does not lie where the archive says")
    return Part(source, begin, entry.file_size)


def not_burst(source: Any, name: str) -> None:
    """FormatError for a deflated text far larger than texts pack to: asked before it is unpacked into memory."""
    if isinstance(source, Inflated) and source.size > MOST_TEXT_RATIO * source.packed_bytes + TEXT_ROOM_BYTES:
        _refuse(f"{ascii(name)[:60]} unpacks to {source.size:,} bytes from {source.packed_bytes:,}")


class File(NamedTuple):
    """A file to be written: at most so many bytes, in chunks (memoryviews, Uint8Arrays)."""

    most_bytes: int
    chunks: Iterable[Any]


class _Writer(io.RawIOBase):
    """Collects what zipfile writes, to be taken away in chunks."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held.append(bytes(data))
        return len(self._held[-1])

    def taken(self) -> bytes:
        data, self._held = b"".join(self._held), []
        return data


def zipped(files: dict[str, File]) -> Iterator[bytes]:
    """A .zip of them in chunks of about 4 MiB, uncompressed: weights hardly shrink. The same files give the same bytes."""
    sink, scratch = _Writer(), bytearray(CHUNK_BYTES)
    with zipfile.ZipFile(sink, "w") as archive:
        for name, file in files.items():
            with archive.open(zipfile.ZipInfo(name, _EPOCH), "w", force_zip64=file.most_bytes >= 1 << 31) as entry:
                for chunk in file.chunks:
                    for piece in pieces(chunk):
                        entry.write(in_python(piece, scratch if nbytes(piece) <= len(scratch) else bytearray(nbytes(piece))))
                        yield sink.taken()
    yield sink.taken()


def _refuse(came: str) -> NoReturn:
    raise FormatError("the .zip file", "it is a sound archive, stored or deflated", came[:200], "pack or download it again", code="E-FORMAT-MODEL")
