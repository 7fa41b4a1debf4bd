"""Batches of windows: every token once an epoch, in an order that a seed and a position give, so a cursor can be saved.

An epoch cuts the tokens into windows of T after a small random offset and visits them in a pseudo-random order: a
Feistel network over the window numbers with cycle walking (Black, Rogaway 2002), which needs no stored permutation.
"""

from __future__ import annotations

import sys
from array import array

from ..errors import DataError
from ..ops.lazy import np
from ..ops.normal import GOLDEN, mix, mix_array


def tokens_to_i32(tokens) -> bytes:
    """Little-endian i32 bytes of a sequence of tokens: bytes, an array or memoryview of integers, or any other."""
    if _is_bytes(tokens):
        wide = bytearray(4 * len(tokens))
        wide[0::4] = tokens
        return bytes(wide)
    if isinstance(tokens, (array, memoryview)) and sys.byteorder == "little":
        return array("i", tokens).tobytes()
    return b"".join(int(token).to_bytes(4, "little", signed=True) for token in tokens)


def _is_bytes(tokens) -> bool:
    """Whether a token is a byte."""
    return isinstance(tokens, (bytes, bytearray)) or (isinstance(tokens, memoryview) and tokens.itemsize == 1)


def permute(index: int, size: int, key: int) -> int:
    """Position `index` of a pseudo-random permutation of range(size) chosen by `key`."""
    bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << bits) - 1
    while True:
        left, right = index >> bits, index & mask
        for round_number in range(4):
            left, right = right, left ^ (mix(key + GOLDEN * (round_number + 1) + right) & mask)
        index = left << bits | right
        if index < size:
            return index


def permutation(size: int, key: int):
    """All of `permute` at once, as an int64 array [size]."""
    bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << bits) - 1)
    value = np.arange(size, dtype=np.uint64)
    walking = np.ones(size, bool)
    while walking.any():
        left, right = value[walking] >> np.uint64(bits), value[walking] & mask
        for round_number in range(4):
            word = right + np.uint64((key + GOLDEN * (round_number + 1)) % (1 << 64))
            left, right = right, left ^ (mix_array(word) & mask)
        value[walking] = left << np.uint64(bits) | right
        walking = value >= size
    return value.astype(np.int64)


class Batches:
    """An endless sequence of (tokens, targets), each [B,T] i32 bytes. targets are tokens shifted by one.

    cursor = {"epoch", "window"} is the next window to be read; give it back to go on exactly there.
    """

    def __init__(self, tokens, context: int, batch: int, seed: int, cursor: dict | None = None) -> None:
        if len(tokens) < context + 1:
            raise DataError(
                "batches", f"at least context + 1 = {context + 1} tokens", f"{len(tokens)} came", code="E-DATA-SHORT"
            )
        self._tokens, self.context, self.batch, self.seed = tokens, context, batch, seed
        self.epoch, self.window, self._array = 0, 0, None
        if cursor:
            self.epoch, self.window = int(cursor["epoch"]), int(cursor["window"])
        self._enter()

    def _enter(self) -> None:
        spare = (len(self._tokens) - 1) % self.context if len(self._tokens) <= 2 * self.context else self.context - 1
        self._key = mix(self.seed * GOLDEN + self.epoch + 1)
        self._offset = mix(self._key ^ GOLDEN) % (spare + 1)
        self.windows = (len(self._tokens) - 1 - self._offset) // self.context
        self._starts = None

    @property
    def cursor(self) -> dict[str, int]:
        """Where the next batch begins."""
        return {"epoch": self.epoch, "window": self.window}

    def next(self) -> tuple[bytes, bytes]:
        """The next batch; crosses into the next epoch in mid-batch where it must."""
        inputs, targets = [], []
        for _ in range(self.batch):
            if self.window >= self.windows:
                self.epoch, self.window = self.epoch + 1, 0
                self._enter()
            start = self._offset + permute(self.window, self.windows, self._key) * self.context
            inputs.append(self._tokens[start : start + self.context])
            targets.append(self._tokens[start + 1 : start + self.context + 1])
            self.window += 1
        return _join(inputs), _join(targets)

    def block(self, count: int):
        """What `count` calls of `next` give, at a fraction of the time: (tokens, targets), int32 arrays [count, B, T]."""
        if self._array is None:
            as_held = _is_bytes(self._tokens) or isinstance(self._tokens, (array, memoryview))
            self._array = np.asarray(memoryview(self._tokens)) if as_held else np.asarray(self._tokens, np.int32)
        parts, wanted = [], count * self.batch
        while wanted:
            if self.window >= self.windows:
                self.epoch, self.window = self.epoch + 1, 0
                self._enter()
            if self._starts is None:
                self._starts = self._offset + permutation(self.windows, self._key) * self.context
            parts.append(self._starts[self.window : self.window + wanted])
            self.window += len(parts[-1])
            wanted -= len(parts[-1])
        windows = self._array[np.concatenate(parts)[:, None] + np.arange(self.context + 1)].astype(np.int32)
        shape = (count, self.batch, self.context)
        return windows[:, :-1].reshape(shape), windows[:, 1:].reshape(shape)


def _join(rows) -> bytes:
    if _is_bytes(rows[0]):
        return tokens_to_i32(b"".join(rows))
    return b"".join(tokens_to_i32(row) for row in rows)


IGNORED = (-100).to_bytes(4, "little", signed=True)
"""A target that does not count."""


def evaluation_starts(tokens: int, context: int, count: int) -> list[int]:
    """Where the windows of an evaluation of about `count` of so many tokens begin; the targets of each are the `context` tokens
    after its first."""
    windows = (tokens - 1) // context
    wanted = min(windows, max(1, count // context))
    return [windows * i // wanted * context for i in range(wanted)]


def evaluation_batches(tokens, context: int, batch: int, count: int) -> list[tuple[bytes, bytes]]:
    """Fixed windows spread evenly over `tokens`, about `count` tokens in all, in batches of (tokens, targets) [B,T] i32.

    Which windows they are does not depend on `batch`. Rows that a last batch lacks are zeros with ignored targets.
    """
    starts = evaluation_starts(len(tokens), context, count)
    made = []
    for first in range(0, len(starts), batch):
        rows = starts[first : first + batch]
        inputs = b"".join(tokens_to_i32(tokens[s : s + context]) for s in rows)
        targets = b"".join(tokens_to_i32(tokens[s + 1 : s + context + 1]) for s in rows)
        missing = context * (batch - len(rows))
        made.append((inputs + bytes(4 * missing), targets + IGNORED * missing))
    return made
