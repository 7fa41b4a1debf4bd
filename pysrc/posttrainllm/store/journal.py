"""An append-only journal beside a run's saves: small records, each with some bytes, that survive a kill at any byte of a write.

    learned-A.bin, learned-B.bin    one page of header, then records; the file with the newer good header counts

A record is its JSON's length, its bytes' length, a CRC-32 over both lengths, the record before (its CRC) and all that follows, then the
JSON, then the bytes. Adding one is a single write and a flush: cut off anywhere, its CRC fails, and the journal ends before it. The CRC of
the record before takes part so that what a longer write left behind is never read as records of this one. A record damaged
in the middle of the file is left out and said, as long as the one behind it fits.

`rewrite` writes all that is to stay into the other file, flushes, and only then its header, as slots.py does; then the old file is emptied,
so that what was deleted is gone from the disk.
"""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from posttrainllm.errors import FormatError, StoreCorruptError, StoreError, StoreVersionError
from posttrainllm.store.slots import decode_page, encode_page
from posttrainllm.store.volume import PAGE_BYTES, File

MARK = {"holds": "journal"}
_HEAD = struct.Struct("<III")  # JSON bytes, other bytes, CRC
LONGEST_BYTES = 1 << 28
"""Of one record: far above an adapter's bytes, and below what a damaged length would have read at once."""


class Record(NamedTuple):
    """What one says, and its bytes (b"" for none)."""

    facts: dict[str, Any]
    data: bytes = b""


class Journal:
    """The journal of an open run, over its two files; `place` says in errors which run that is. Synchronous.

    Records are read once, when the journal is first asked; one reader and writer at a time, as the run is held.
    """

    def __init__(self, files: Iterable[File], place: str):
        self._files, self._place = list(files), place
        self._records: list[Record] | None = None
        self._current, self._generation, self._end, self._crc = 0, 0, 0, 0
        self.recovered = ""
        """A sentence where something could not be read: a write that was cut off, or a damaged record; else empty."""

    def records(self) -> list[Record]:
        """All of them, oldest first. StoreCorruptError where a header that records stand behind is damaged, StoreVersionError."""
        if self._records is None:
            self._open()
        return list(self._records)

    def append(self, facts: dict, data: bytes = b"") -> None:
        """Add one; it is kept when this returns. StoreQuotaError, StoreError: the others are as they were. FormatError for what JSON cannot hold."""
        self.records()
        file, packed = self._files[self._current], _packed(facts, data, self._crc)
        if not self._generation:
            self._begin(file)
        if file.size() > self._end:  # what a cut-off write left: it must not stand behind the new record
            file.truncate(self._end)
        try:
            file.write_at(self._end, packed)
            file.flush()
        except BaseException:
            with contextlib.suppress(Exception):
                file.truncate(self._end)
            raise
        self._end += len(packed)
        self._crc = _HEAD.unpack_from(packed)[2]
        self._records.append(Record(json.loads(json.dumps(facts)), bytes(data)))

    def rewrite(self, records: Iterable[Record]) -> None:
        """These records in place of all; what they leave out is then gone from the disk. Errors leave the journal as it was."""
        before, records = self.records(), list(records)
        if not self._generation:  # so that a header cut off below is never the only one
            self._begin(self._files[self._current])
        other = 1 - self._current
        file, at, crc = self._files[other], PAGE_BYTES, 0
        try:
            file.truncate(0)
            file.write_at(0, bytes(PAGE_BYTES))
            for facts, data in records:
                packed = _packed(facts, data, crc)
                crc = _HEAD.unpack_from(packed)[2]
                file.write_at(at, packed)
                at += len(packed)
            file.flush()
            file.write_at(0, encode_page(self._generation + 1, 0, 0, MARK))
            file.flush()
        except BaseException:
            self._records = before
            with contextlib.suppress(Exception):
                file.truncate(0)
            raise
        old, self._current, self._generation, self._end, self._crc = self._current, other, self._generation + 1, at, crc
        self._records, self.recovered = [Record(json.loads(json.dumps(facts)), bytes(data)) for facts, data in records], ""
        self._empty(self._files[old])

    def copy_to(self, other: Journal) -> None:
        """The same records for a copy of the run. Raises StoreError."""
        found = self.records()
        if found or other.records():
            other.rewrite(found)

    def _open(self) -> None:
        pages = [decode_page(file.read_at(0, PAGE_BYTES)) for file in self._files]
        if any(page.state == "newer" for page in pages):
            raise StoreVersionError(
                self._place, "this version opens its journal of corrections", "a newer one wrote it", "reload the page or update the package"
            )
        good = [at for at, page in enumerate(pages) if page.state == "good"]
        if not good:
            if any(file.size() > PAGE_BYTES for file in self._files if any(file.read_at(0, PAGE_BYTES))):
                raise StoreCorruptError(
                    self._place, "the header of its journal of corrections passes its checksum", "it does not",
                    "delete the run, or import a copy; its saves are not touched by this",
                )  # fmt: skip
            self._records, self._end = [], PAGE_BYTES  # a journal whose first header was cut off held nothing yet
            return
        self._current = max(good, key=lambda at: pages[at].generation)
        self._generation = pages[self._current].generation
        self._records = [record for record in self._read(self._files[self._current])]
        stale = self._files[1 - self._current]
        if stale.size():  # a kill came between the new header and this
            self._empty(stale)

    def _begin(self, file: File) -> None:
        file.truncate(0)
        file.write_at(0, encode_page(1, 0, 0, MARK))
        file.flush()
        self._generation, self._end, self._crc = 1, PAGE_BYTES, 0

    def _read(self, file: File) -> Iterator[Record]:
        at, size, crc, damaged = PAGE_BYTES, file.size(), 0, 0
        while True:
            found, stored, end = _at(file, at, size, crc)
            if found is None:
                behind = _at(file, end, size, stored)[0] if end else None
                if behind is None:
                    break
                damaged += 1
            else:
                yield found
            at, crc = end, stored
        self._end, self._crc = at, crc
        said = [f"{damaged} of its records {'is' if damaged == 1 else 'are'} damaged and left out"] if damaged else []
        said += [f"{size - at:,} bytes of a record that was cut off at its end are left out"] if any(file.read_at(at, size - at)) else []
        self.recovered = f"{self._place}: of the journal of corrections {'; '.join(said)}." if said else ""

    def _empty(self, file: File) -> None:
        with contextlib.suppress(StoreError):  # it is tried again at the next opening
            file.truncate(0)
            file.flush()


def _packed(facts: dict, data: bytes, before: int) -> bytes:
    try:
        text = json.dumps(facts, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as error:
        raise FormatError("journal", "a record holds what JSON can", str(error), "leave it out", code="E-FORMAT-METADATA") from error
    if len(text) + len(data) > LONGEST_BYTES:
        raise FormatError("journal", f"a record is at most {LONGEST_BYTES:,} bytes", f"{len(text) + len(data):,} came", "shorten it")
    body = text + bytes(data)
    return _HEAD.pack(len(text), len(data), _crc(len(text), len(data), before, body)) + body


def _crc(text: int, data: int, before: int, body: Any) -> int:
    return zlib.crc32(body, zlib.crc32(_HEAD.pack(text, data, before)))


def _at(file: File, at: int, size: int, before: int) -> tuple[Record | None, int, int]:
    """(the record at a place or None, the CRC that stands there, where it ends or 0)."""
    if size - at < _HEAD.size:
        return None, 0, 0
    text, data, stored = _HEAD.unpack(bytes(file.read_at(at, _HEAD.size)))
    end = at + _HEAD.size + text + data
    if not text or text + data > LONGEST_BYTES or end > size:
        return None, 0, 0
    body = bytes(file.read_at(at + _HEAD.size, text + data))
    if _crc(text, data, before, body) != stored:
        return None, stored, end
    try:
        facts = json.loads(body[:text])
    except (ValueError, RecursionError):
        return None, stored, end
    return (Record(facts, body[text:]) if isinstance(facts, dict) else None), stored, end
