"""Where a text's bytes stand in a longer one: the longest match from each place, by sorted suffixes.

The longer text is cut into blocks; in each the suffixes are sorted by prefix doubling (Manber, Myers 1993), which starts from eight
bytes at once and goes on only among those that are still alike. A suffix counts with its first REACH bytes: no match is longer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from ..ops.lazy import np

REACH = 4096
"""Bytes of the longest match."""
BLOCK_BYTES = 1 << 20
FIRST = 8
"""Bytes that the first sort sees: as many as a uint64 holds."""


@dataclass(frozen=True)
class Span:
    """Bytes begin to end of an output that stand in the text at `at` (bytes from its start), in line `line` (from 1), and in so many
    places in all."""

    begin: int
    end: int
    at: int
    line: int
    occurrences: int


def sorted_suffixes(data: bytes, reach: int = REACH):
    """Starts of all suffixes of `data`, int32 [n], in the order of their first `reach` bytes (above FIRST); ties beyond are in any order."""
    count = len(data)
    padded = np.frombuffer(data + bytes(FIRST - 1), np.uint8)
    key = np.zeros(count, np.uint64)
    for offset in range(FIRST):
        key = key << np.uint64(8) | padded[offset : offset + count]
    order = np.argsort(key).astype(np.int32)
    key = key[order]
    begins = np.ones(count, bool)  # where a group of suffixes that are alike so far begins
    begins[1:] = key[1:] != key[:-1]
    rank = np.empty(count, np.int32)  # of each suffix: where its group begins in the order
    rank[order] = np.maximum.accumulate(np.where(begins, np.arange(count, dtype=np.int32), 0))
    seen = FIRST
    while seen < reach:
        alone = begins & np.append(begins[1:], True)
        places = np.flatnonzero(~alone)
        if not len(places):
            break
        starts = order[places]
        behind = starts.astype(np.int64) + seen
        # A suffix that has ended comes first, the shorter the sooner: it was filled up with zero bytes, which a text may hold too.
        second = np.where(behind < count, rank[np.minimum(behind, count - 1)], count - behind - 1)
        key = rank[starts].astype(np.int64) << 32 | second + seen
        chosen = np.argsort(key)
        key, starts = key[chosen], starts[chosen]
        order[places] = starts
        fresh = np.ones(len(places), bool)
        fresh[1:] = key[1:] != key[:-1]
        begins[places] = fresh
        rank[starts] = np.maximum.accumulate(np.where(fresh, places, 0))
        seen *= 2
    return order


def shared_length(one: bytes, other: bytes) -> int:
    """How many bytes two texts begin with alike."""
    alike, differ = 0, min(len(one), len(other)) + 1
    while differ - alike > 1:
        middle = (alike + differ) // 2
        if one[alike:middle] == other[alike:middle]:
            alike = middle
        else:
            differ = middle
    return alike


class Matches:
    """The sorted suffixes of `data`: some 0.3 s and 4 MB a megabyte natively. `build` makes them, block by block."""

    def __init__(self, data: bytes, block_bytes: int = BLOCK_BYTES) -> None:
        self.data, self.block_bytes = bytes(data), block_bytes
        self._blocks: list[memoryview] = []
        self._breaks = None

    def build(self) -> Iterator[tuple[int, int]]:
        """Build what is not built yet; gives (blocks done, blocks in all) after each."""
        total = -(-len(self.data) // self.block_bytes)
        while len(self._blocks) < total:
            start = len(self._blocks) * self.block_bytes
            order = sorted_suffixes(self.data[start : start + self.block_bytes + REACH])
            own = order[order < self.block_bytes] + np.int64(start)  # those after belong to the next block
            self._blocks.append(memoryview(own.astype(np.int32)))
            yield len(self._blocks), total

    def longest(self, query: bytes) -> tuple[int, int]:
        """(bytes, place in data) of the longest match of the query's beginning, up to REACH bytes; the place is any of several."""
        query, best, place = query[:REACH], 0, 0
        for order in self._blocks:
            index = bisect_left(order, query, key=self._beginning(len(query)))
            for start in order[max(0, index - 1) : index + 1]:
                length = shared_length(query, self.data[start : start + len(query)])
                if length > best:
                    best, place = length, start
            if best == len(query):
                break
        return best, place

    def lengths(self, output: bytes) -> list[int]:
        """The longest match from each byte of an output on."""
        return [self.longest(output[begin:])[0] for begin in range(len(output))]

    def places(self, query: bytes):
        """Every place of a query (at most REACH bytes) in data, in order, int32."""
        key, found = self._beginning(len(query)), []
        for order in self._blocks:
            begin, end = bisect_left(order, query, key=key), bisect_right(order, query, key=key)
            found.append(np.asarray(order[begin:end]))
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int32)

    def spans(self, output: bytes, least: int, lengths: list[int] | None = None, expected: int | None = None) -> list[Span]:
        """What of an output is copied: runs of at least `least` bytes that stand in data, from left to right, none overlapping.

        A run neither begins nor ends inside a character. Of several places the first is named, or `expected` plus the run's begin where
        the run stands there too: where the output should stand if it continued the text.
        """
        lengths, found, begin = lengths or self.lengths(output), [], 0
        while begin < len(output):
            first, end = self._whole(output, begin, begin + lengths[begin])
            if lengths[begin] and end - first >= least:
                found.append(self._span(output[first:end], first, expected))
                begin = end
            else:
                begin += 1
        return found

    def _span(self, run: bytes, begin: int, expected: int | None) -> Span:
        places = self.places(run)
        at = int(places[0])
        if expected is not None and self.data[expected + begin : expected + begin + len(run)] == run:
            at = expected + begin
        return Span(begin, begin + len(run), at, self.line(at), len(places))

    def line(self, at: int) -> int:
        """The number of the line that a byte of data stands in, from 1."""
        if self._breaks is None:
            self._breaks = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return int(np.searchsorted(self._breaks, at)) + 1

    def _beginning(self, length: int):
        data = self.data
        return lambda start: data[start : start + length]

    @staticmethod
    def _whole(output: bytes, begin: int, end: int) -> tuple[int, int]:
        """The run without parts of characters at its ends; in a text that is UTF-8 it has none elsewhere."""
        while begin < end and output[begin] & 0xC0 == 0x80:
            begin += 1
        try:
            output[begin:end].decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                end = begin + error.start
        return begin, end
