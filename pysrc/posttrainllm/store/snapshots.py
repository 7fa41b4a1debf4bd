"""A few snapshots of a run's weights on the way, beside its saves: what it was at earlier steps.

    snapshots.bin    up to PLACES places of the same size, each one page of header and then a .safetensors file of the weights alone

The first place holds the first snapshot and is never taken again; the size of all places is read off it. A snapshot that finds no free
place takes that of the oldest but the first. A place is written as a slot is (slots.py): its header is blanked, and the new one comes
only after the payload is flushed. So a kill costs at most the snapshot that was to go and the one that was to come, and no save ever.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

from posttrainllm.errors import StoreCorruptError, StoreMissingError
from posttrainllm.store.buffers import CHUNK_BYTES, FileRange, Tensor, in_python, is_js, nbytes, pieces
from posttrainllm.store.safetensors import SafeTensors, encode
from posttrainllm.store.slots import Page, decode_page, encode_page
from posttrainllm.store.volume import PAGE_BYTES, File

PLACES = 7
FIRST_STEP = 16
"""The first power of two at which a snapshot is due after the first of all: before it next to nothing is learned."""


def due(step: int, steps: list[int]) -> bool:
    """Whether a run at `step` that has snapshots of `steps` takes one: where it has none, and then once from each power of two on.

    With the oldest thinned (all but the first) those of a long run stand at its start and at the last six powers of two.
    """
    if not steps:
        return True
    power = 1 << (step.bit_length() - 1) if step else 0
    return power >= FIRST_STEP and max(steps) < power


class Snapshots:
    """Those of an open run; `place` says in errors which run that is. Synchronous."""

    def __init__(self, file: File, place: str):
        self._file, self._place = file, place

    def steps(self) -> list[int]:
        """The steps there are snapshots of, ascending; payloads are not read."""
        return sorted(page.generation for page in self._pages().values())

    def keep(self, step: int, weights: dict[str, Tensor]) -> int:
        """Add one; the bytes written. StoreQuotaError, StoreError: the others are as they were, but for the one whose place it took."""
        chunks = list(encode([(name, *tensor) for name, tensor in weights.items()], {"posttrainllm.step": f"{step:016}"}))  # windows, no copies
        length = sum(map(nbytes, chunks))
        pages, file = self._pages(), self._file
        if not pages or pages[0].payload_bytes != length:  # there is none of this model
            file.truncate(0)
            pages = {}
        taken = _place_for(step, pages)
        start = taken * (PAGE_BYTES + length)
        try:
            if file.size() > start:
                file.write_at(start, bytes(PAGE_BYTES))
                file.flush()
            at, crc, scratch = start + PAGE_BYTES, 0, bytearray()
            for chunk in chunks:
                if is_js(chunk) and len(scratch) < nbytes(chunk):
                    scratch = bytearray(nbytes(chunk))
                crc = zlib.crc32(in_python(chunk, scratch), crc)
                file.write_at(at, chunk)
                at += nbytes(chunk)
            file.flush()
            file.write_at(start, encode_page(step, length, crc, {"step": step}))
            file.flush()
        except BaseException:
            with contextlib.suppress(Exception):  # give the room back where nothing stands behind it
                if not any(other > taken for other in pages):
                    file.truncate(start)
            raise
        return length

    def load(self, step: int) -> dict[str, Tensor]:
        """The weights at a step by name, read when they are used: before the next snapshot is kept, and while the run is open.

        StoreMissingError where there is none of that step, StoreCorruptError where it fails its checksum.
        """
        for number, page in self._pages().items():
            if page.generation == step:
                source = _Part(self._file, number * (PAGE_BYTES + page.payload_bytes) + PAGE_BYTES, page.payload_bytes)
                if source.crc() != page.payload_crc:
                    raise StoreCorruptError(
                        self._place, f"its snapshot of step {step:,} passes its checksum", "it does not", "look at the others"
                    )
                return SafeTensors(source, f"{self._place}, step {step:,}").tensors
        raise StoreMissingError(self._place, f"it has a snapshot of step {step:,}", f"those of {self.steps()} are there", "choose one of them")

    def copy_to(self, other: Snapshots) -> None:
        """The same snapshots for a copy of the run, all or none of them. Raises StoreError.

        Headers come last, as in `keep`: a cut in the middle leaves no header without its payload.
        """
        pages, file = self._pages(), other._file
        try:
            file.truncate(0)
            for number, page in pages.items():
                start = number * (PAGE_BYTES + page.payload_bytes)
                file.write_at(start, bytes(PAGE_BYTES))
                at = start + PAGE_BYTES
                for chunk in pieces(FileRange(_Part(self._file, at, page.payload_bytes), 0, page.payload_bytes)):
                    file.write_at(at, chunk)
                    at += nbytes(chunk)
            file.flush()
            for number, page in pages.items():
                start = number * (PAGE_BYTES + page.payload_bytes)
                file.write_at(start, self._file.read_at(start, PAGE_BYTES))
            file.flush()
        except BaseException:
            with contextlib.suppress(Exception):
                file.truncate(0)
            raise

    def _pages(self) -> dict[int, Page]:
        """The places whose header is good and whose payload has its length."""
        first = decode_page(self._file.read_at(0, PAGE_BYTES))
        if first.state != "good":
            return {}
        found, size, stride = {}, self._file.size(), PAGE_BYTES + first.payload_bytes
        for number in range(PLACES):
            page = decode_page(self._file.read_at(number * stride, PAGE_BYTES)) if number else first
            if page.state == "good" and page.payload_bytes == first.payload_bytes and size >= (number + 1) * stride:
                found[number] = page
        return found if 0 in found else {}


class _Part:
    """A part of a file as a source (`size`, `read_at`, `read_into`)."""

    def __init__(self, file: File, start: int, size: int):
        self._file, self._start, self.size = file, start, size

    def read_at(self, offset: int, nbytes: int) -> Any:
        return self._file.read_at(self._start + offset, max(0, min(nbytes, self.size - offset)))

    def read_into(self, offset: int, target: Any) -> None:
        self._file.read_into(self._start + offset, target)

    def crc(self) -> int:
        found = 0
        for begin in range(0, self.size, CHUNK_BYTES):
            found = zlib.crc32(self.read_at(begin, CHUNK_BYTES), found)
        return found


def _place_for(step: int, pages: dict[int, Page]) -> int:
    """The place of the same step, else the first free one, else that of the oldest but the first."""
    for number, page in pages.items():
        if page.generation == step:
            return number
    free = [number for number in range(PLACES) if number not in pages]
    return free[0] if free else min((number for number in pages if number), key=lambda number: pages[number].generation)
