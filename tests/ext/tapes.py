"""Tapes built by hand from the record format that ext/engine.h states, for tests of the engine alone."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ARENA = 4
GUARD = 64  # float32 elements of NaN around every operand
ROW = re.compile(r'^\s*K\((\w+), "(\w*)", "(\w*)", "([^"]*)"\)', re.MULTILINE)
LIST = Path(__file__).resolve().parents[2] / "ext" / "kernel_list.h"


@dataclass(frozen=True)
class Kernel:
    """One line of ext/kernel_list.h: operands are (name, written, extent)."""

    number: int
    letters: str
    parameters: str
    operands: list[tuple[str, bool, str]]


def registry() -> dict[str, Kernel]:
    """The engine's kernels by name."""
    kernels = {}
    for number, (name, letters, parameters, operands) in enumerate(ROW.findall(LIST.read_text())):
        parts = re.findall(r"(\w+)([<>])(\w+)", operands)
        kernels[name] = Kernel(number, letters, parameters, [(part, sign == ">", rule) for part, sign, rule in parts])
    return kernels


KERNELS = registry()


def extent(rule: str, sizes: dict[str, int]) -> int:
    """Elements of an operand: the product of its rule's letters and digits."""
    total = 1
    for letter in rule:
        total *= int(letter) if letter.isdigit() else sizes[letter]
    return total


def record(name: str, sizes: dict[str, int], parameters: list, addresses: list[tuple[int, int]]) -> bytes:
    """One 256-byte record; addresses are (region, byte offset)."""
    kernel = KERNELS[name]
    words = [0] * 32
    words[0] = kernel.number
    for i, letter in enumerate(kernel.letters):
        words[1 + i] = sizes[letter]
    for i, kind in enumerate(kernel.parameters):
        value = parameters[i]
        words[9 + i] = struct.unpack("<I", struct.pack("<f", value))[0] if kind == "f" else int(value)
    for i, (region, offset) in enumerate(addresses):
        words[16 + i] = region << 56 | offset
    return struct.pack("<32q", *words)


@dataclass
class Call:
    """One kernel on an arena image of its own: operands side by side, NaN between them and in those without a value."""

    name: str
    sizes: dict[str, int]
    record: bytes
    image: np.ndarray
    spans: dict[str, slice]

    @classmethod
    def make(cls, name: str, sizes: dict[str, int], parameters: list, values: dict[str, np.ndarray]) -> Call:
        spans, end = {}, GUARD
        for operand, _, rule in KERNELS[name].operands:
            spans[operand] = slice(end, end + extent(rule, sizes))
            end = spans[operand].stop + GUARD
        image = np.full(end, np.nan, np.float32)
        for operand, value in values.items():
            part = np.ascontiguousarray(value).reshape(-1)
            image[spans[operand]] = part if part.dtype == np.float32 else part.astype(np.int32).view(np.float32)
        places = [(ARENA, 4 * span.start) for span in spans.values()]
        return cls(name, sizes, record(name, sizes, parameters, places), image, spans)

    def run(self, engine) -> np.ndarray:
        """The arena after the call, as a copy."""
        engine.allocate(ARENA, self.image.nbytes)
        arena = np.frombuffer(engine.view(ARENA), np.float32)
        arena[:] = self.image
        engine.replay(self.record)
        return arena.copy()

    def results(self, engine) -> dict[str, np.ndarray]:
        """Every operand after the call; fails if anything outside the written ones changed."""
        after = self.run(engine)
        untouched = np.ones(after.size, bool)
        for operand, written, _ in KERNELS[self.name].operands:
            untouched[self.spans[operand]] = not written
        same = after.view(np.uint32) == self.image.view(np.uint32)
        assert same[untouched].all(), f"{self.name} {self.sizes} changed what it may not write"
        return {operand: after[span] for operand, span in self.spans.items()}
