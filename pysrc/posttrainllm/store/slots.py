"""Two alternating slots: a kill at any byte of a save leaves the last good one.

    slot-A.bin, slot-B.bin    one page of header, then the payload, which is exactly a .safetensors file
    meta.bin                  two pages, alternating in the same way: the run's name and when it was made

A save takes the slot that does not hold the newest good payload. It blanks that slot's header, writes the payload and
flushes; only then it writes the header (generation + 1, the payload's length and CRC-32, a CRC-32 of the page), and
flushes again. So a new header can only be there after all that it speaks of, wherever the writing stopped, whichever
unflushed writes were lost and in whatever order the rest arrived; and an old one over a half-written payload fails the
payload's checksum. No rename, no delete: both confuse a browser's quota.
"""

from __future__ import annotations

import contextlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from posttrainllm.errors import StoreCorruptError, StoreError, StoreMissingError, StoreVersionError
from posttrainllm.store.buffers import CHUNK_BYTES, FileRange, in_python, is_js, nbytes, pieces
from posttrainllm.store.volume import META_FILE, PAGE_BYTES, SLOT_FILES, File, Folder

MAGIC = b"PTL-SLOT"
FORMAT = 1
# magic, format, crc of the page (computed with this field 0), generation, payload bytes, payload crc, summary bytes
_HEADER = struct.Struct("<8sIIQQII")
_CRC_AT = 12
_BLANK = bytes(PAGE_BYTES)


class Page(NamedTuple):
    """What a page says. `state`: good, blank (never written, or a save under way), damaged, newer (another format)."""

    state: str
    generation: int = 0
    payload_bytes: int = 0
    payload_crc: int = 0
    summary: Mapping[str, Any] = MappingProxyType({})


def encode_page(generation: int, payload_bytes: int, payload_crc: int, summary: dict) -> bytes:
    """A header page. A summary too large for its page is left out: a list then says less, and nothing is lost."""
    text = _text(summary)
    if len(text) > PAGE_BYTES - _HEADER.size:
        text = b"{}"
    page = bytearray(PAGE_BYTES)
    _HEADER.pack_into(page, 0, MAGIC, FORMAT, 0, generation, payload_bytes, payload_crc, len(text))
    page[_HEADER.size : _HEADER.size + len(text)] = text
    struct.pack_into("<I", page, _CRC_AT, zlib.crc32(page))
    return bytes(page)


def page_room(summary: dict) -> int:
    """Bytes that a summary leaves free in its page; below 0 where it does not fit."""
    return PAGE_BYTES - _HEADER.size - len(_text(summary))


def _text(summary: dict) -> bytes:
    return json.dumps(summary, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_page(data: Any) -> Page:
    """Read a header page; never raises, whatever the bytes."""
    page = bytearray(data)
    if not any(page):
        return Page("blank")
    if len(page) != PAGE_BYTES or page[:8] != MAGIC:
        return Page("damaged")
    _, version, crc, generation, payload_bytes, payload_crc, summary_bytes = _HEADER.unpack_from(page)
    page[_CRC_AT : _CRC_AT + 4] = bytes(4)
    if zlib.crc32(page) != crc:
        return Page("damaged")
    if version > FORMAT:
        return Page("newer")
    try:
        summary = json.loads(page[_HEADER.size : _HEADER.size + summary_bytes])
    except (ValueError, RecursionError):
        return Page("damaged")
    return Page("good", generation, payload_bytes, payload_crc, summary if isinstance(summary, dict) else {})


def newest(heads: dict[str, tuple[int, bytes]]) -> tuple[Page, bool]:
    """(the page of the newest save, whether a slot is damaged), from what `Volume.peek` gives; reads no payload."""
    best, damaged = Page("blank"), False
    for name in SLOT_FILES:
        size, head = heads.get(name, (0, b""))
        page = decode_page(head[:PAGE_BYTES])
        if page.state == "good" and size < PAGE_BYTES + page.payload_bytes:
            page = Page("damaged")
        damaged |= page.state == "damaged"
        if page.state == "newer" or (
            page.state == "good" and best.state != "newer" and page.generation > best.generation
        ):
            best = page
    return best, damaged


def newest_meta(head: bytes) -> Page:
    """The newer good page of a meta file's first two."""
    pages = [decode_page(head[at : at + PAGE_BYTES]) for at in (0, PAGE_BYTES)]
    return max(
        (page for page in pages if page.state == "good"), key=lambda page: page.generation, default=Page("blank")
    )


class Payload:
    """A saved .safetensors file as a source (`size`, `read_at`, `read_into`), until a later save takes its slot."""

    def __init__(self, slots: Slots, name: str, size: int):
        self._slots, self._name, self.size = slots, name, size
        self._epoch = slots.epochs[name]

    def _file(self) -> File:
        if self._slots.epochs[self._name] != self._epoch:
            raise StoreError(
                "reading a saved run",
                "it is read before the run is closed or saved twice more",
                "its bytes are gone",
                "load the run again",
                code="E-STORE-CLOSED",
            )
        return self._slots.folder.files[self._name]

    def read_at(self, offset: int, nbytes: int) -> Any:
        return self._file().read_at(PAGE_BYTES + offset, max(0, min(nbytes, self.size - offset)))

    def read_into(self, offset: int, target: Any) -> None:
        self._file().read_into(PAGE_BYTES + offset, target)

    def chunks(self) -> Iterator[Any]:
        return pieces(FileRange(self, 0, self.size))


class Slots:
    """The slots of one open run. Everything here is synchronous."""

    def __init__(self, folder: Folder, place: str):
        self.folder, self._place = folder, place
        self.epochs = dict.fromkeys(SLOT_FILES, 0)
        self.newest: tuple[str, Page] | None = None  # newest slot whose payload was seen to pass its checksum
        self.recovered = ""  # a sentence, where one save was damaged and the other is used

    @property
    def generation(self) -> int:
        """Of the newest save that was loaded or written here; 0 before."""
        return self.newest[1].generation if self.newest is not None else 0

    def load(self) -> tuple[Payload, Mapping[str, Any]]:
        """(payload, summary) of the newest save that passes its checksums.

        StoreMissingError where nothing was saved yet, StoreCorruptError where no save is sound, StoreVersionError.
        """
        name, page = self._find()
        return Payload(self, name, page.payload_bytes), page.summary

    def save(self, chunks: Iterable[Any], summary: dict) -> int:
        """Write a payload into the other slot; its length in bytes. Errors leave the last good save as it was."""
        try:
            current, page = self._find()
        except (StoreMissingError, StoreCorruptError):
            current, page = SLOT_FILES[1], Page("blank")
        target = SLOT_FILES[1 - SLOT_FILES.index(current)]
        # Above every readable generation: the slot left behind may be damaged in its payload alone.
        generation = 1 + max(page.generation, *(self._page(name).generation for name in SLOT_FILES))
        file = self.folder.files[target]
        self.epochs[target] += 1
        try:
            length, crc = self._write(file, chunks)
            file.write_at(0, encode_page(generation, length, crc, summary))
            file.flush()
        except BaseException:
            with contextlib.suppress(Exception):  # give the room back; the header is blank already
                file.truncate(0)
            raise
        self.newest = target, Page("good", generation, length, crc, summary)
        self.recovered = ""
        return length

    def _write(self, file: File, chunks: Iterable[Any]) -> tuple[int, int]:
        if file.size():
            file.write_at(0, _BLANK)
        at, crc, scratch = PAGE_BYTES, 0, bytearray()
        for chunk in chunks:
            size = nbytes(chunk)
            if is_js(chunk) and len(scratch) < size:
                scratch = bytearray(size)
            crc = zlib.crc32(in_python(chunk, scratch), crc)
            file.write_at(at, chunk)
            at += size
        if file.size() > at:
            file.truncate(at)
        file.flush()
        return at - PAGE_BYTES, crc

    def rename(self, facts: dict) -> None:
        """Write the run's own facts (its name, when it was made) into the older page of the meta file."""
        file = self.folder.files[META_FILE]
        pages = [decode_page(file.read_at(at, PAGE_BYTES)) for at in (0, PAGE_BYTES)]
        older = min((0, 1), key=lambda index: pages[index].generation)
        page = encode_page(1 + max(page.generation for page in pages), 0, 0, facts)
        if older == 1 and file.size() < PAGE_BYTES:
            file.write_at(0, _BLANK)
        file.write_at(older * PAGE_BYTES, page)
        file.flush()

    def facts(self) -> Mapping[str, Any]:
        return newest_meta(self.folder.files[META_FILE].read_at(0, 2 * PAGE_BYTES)).summary

    def close(self) -> None:
        for name in SLOT_FILES:
            self.epochs[name] += 1
        self.folder.close()

    def _page(self, name: str) -> Page:
        return decode_page(self.folder.files[name].read_at(0, PAGE_BYTES))

    def _find(self) -> tuple[str, Page]:
        """The newest slot that passes both checksums. The payloads are read once for an open run, not at every save."""
        if self.newest is not None:
            return self.newest
        pages = {name: self._page(name) for name in SLOT_FILES}
        if any(page.state == "newer" for page in pages.values()):
            raise StoreVersionError(
                self._place,
                f"this version opens saves of format {FORMAT}",
                "it has a newer one",
                "reload the page or update the package",
            )
        damaged = [name for name, page in pages.items() if page.state == "damaged"]
        good = sorted(
            (name for name, page in pages.items() if page.state == "good"), key=lambda n: -pages[n].generation
        )
        for name in good:
            if self._passes(name, pages[name]):
                self.newest = name, pages[name]
                if damaged:
                    self.recovered = (
                        f"{self._place}: one of its two saves was cut off or damaged; the other was opened, "
                        f"from step {pages[name].summary.get('step', 'unknown')}."
                    )
                return self.newest
            damaged.append(name)
        if damaged:
            raise StoreCorruptError(
                self._place, "a save passes its checksum", "none does", "delete the run, or import an exported copy"
            )
        raise StoreMissingError(self._place, "a save is there to open", "nothing was saved in it yet", "train it first")

    def _passes(self, name: str, page: Page) -> bool:
        file = self.folder.files[name]
        if file.size() < PAGE_BYTES + page.payload_bytes:
            return False
        crc = 0
        for begin in range(0, page.payload_bytes, CHUNK_BYTES):
            crc = zlib.crc32(file.read_at(PAGE_BYTES + begin, min(CHUNK_BYTES, page.payload_bytes - begin)), crc)
        return crc == page.payload_crc
