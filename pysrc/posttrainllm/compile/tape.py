"""record: a Plan as fixed-size binary records, which an engine replays in one call.

A record is 32 little-endian int64 words: kernel id; 8 sizes in the kernel's letter order; 6 params (a float as its float32
bits); one zero; 16 addresses in argument order, (region << 56) | byte offset. Unused words are 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..ops import KERNEL_IDS, KERNELS, Kernel
from .arena import Plan
from .graph import REGIONS, Value

WORDS = 32
RECORD_BYTES = WORDS * 8
SIZE_WORD, PARAM_WORD, ADDRESS_WORD = 1, 9, 16
REGION_SHIFT = 56
OFFSET_MASK = (1 << REGION_SHIFT) - 1


@dataclass(frozen=True)
class Tape:
    """The bytes of the records, and what they were made from (for `explain`)."""

    data: bytes
    labels: tuple[str, ...]
    apart: Callable[[], Tape] | None = field(default=None, compare=False, repr=False)
    """For an engine that keeps activations apart from the regions (a GPU), where this tape lends them some of a region."""
    passing: bool = field(default=False, compare=False)
    """Whether nothing in the arena is read after it: then an engine that places activations anew need keep none to the end."""
    lends: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    """Regions, with their bytes, that hold nothing while it runs: activations may lie there."""
    turns: range = field(default=range(0), compare=False)
    """Where each turn of what is repeated begins, the step being its records: nothing in the arena is alive from one to the next."""

    def __len__(self) -> int:
        return len(self.data) // RECORD_BYTES

    def flops(self) -> int:
        """Multiplies and adds of all records."""
        return sum(each.kernel.flops(each.sizes) for each in decode(self))


@dataclass(frozen=True)
class Record:
    """One decoded record: its kernel, sizes by letter, params, and (region, byte offset) by argument."""

    kernel: Kernel
    sizes: dict[str, int]
    params: tuple
    operands: tuple[tuple[str, int], ...]


def address(value: Value) -> int:
    """The tape's 64-bit address of a placed Value."""
    return (REGIONS.index(value.region) << REGION_SHIFT) | value.offset_bytes


def _bits(kind: str, value) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0] if kind == "f32" else int(value)


def record(plan: Plan) -> Tape:
    """Encode a Plan. The result depends on nothing but the Plan: same plan, same bytes."""
    out, labels = bytearray(), []
    for node in plan.graph.nodes:
        words = [0] * WORDS
        words[0] = KERNEL_IDS[node.kernel.name]
        for index, letter in enumerate(node.kernel.letters):
            words[SIZE_WORD + index] = node.sizes[letter]
        for index, (_, kind) in enumerate(node.kernel.params):
            words[PARAM_WORD + index] = _bits(kind, node.params[index])
        for index, argument in enumerate(node.kernel.args):
            words[ADDRESS_WORD + index] = address(node.values[argument.name])
        out += struct.pack(f"<{WORDS}q", *words)
        labels.append(node.written()[0].name)
    return Tape(bytes(out), tuple(labels))


def repeat(tape: Tape, body: range, places: dict[int, Sequence[int]]) -> Tape:
    """The tape with the records of `body` so many times over as each of `places` has addresses: its key, where a record of the body
    names it, is the first of them in the first turn, the second in the next, …

    All else stands where it stood, so nothing in the arena may be alive before the body's first record or after its last.
    """
    (times,) = {len(each) for each in places.values()}
    start, stop = body.start * RECORD_BYTES, body.stop * RECORD_BYTES
    found = []
    for at in range(start, stop, RECORD_BYTES):
        for word in range(ADDRESS_WORD, WORDS):
            (named,) = struct.unpack_from("<q", tape.data, at + 8 * word)
            if named in places:
                found.append((at - start + 8 * word, places[named]))
    out = bytearray(tape.data[:start])
    for turn in range(times):
        piece = bytearray(tape.data[start:stop])
        for at, addresses in found:
            struct.pack_into("<q", piece, at, addresses[turn])
        out += piece
    labels = tape.labels[: body.start] + tape.labels[body.start : body.stop] * times + tape.labels[body.stop :]
    turns = range(body.start, body.start + times * len(body), len(body))
    return replace(tape, data=bytes(out + tape.data[stop:]), labels=labels, turns=turns)


def decode(tape: Tape) -> Iterator[Record]:
    """The records of a tape, in order: what an engine reads."""
    for words in struct.iter_unpack(f"<{WORDS}q", tape.data):
        made_of = KERNELS[words[0]]
        sizes = dict(zip(made_of.letters, words[SIZE_WORD:]))
        params = tuple(
            struct.unpack("<f", struct.pack("<I", word))[0] if kind == "f32" else word
            for (_, kind), word in zip(made_of.params, words[PARAM_WORD:])
        )
        operands = tuple(
            (REGIONS[word >> REGION_SHIFT], word & OFFSET_MASK)
            for word in words[ADDRESS_WORD : ADDRESS_WORD + len(made_of.args)]
        )
        yield Record(made_of, sizes, params, operands)
