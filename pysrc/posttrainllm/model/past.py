"""The text whose keys and values stand in the KV cache, and logits that begin after what another text shares with it.

What is left runs in passes of a power of two of rows, so that few tapes serve every length and no row is padding. The rows
that a caller asks for run in one pass where they are few: a draft is verified at the cost of one pass over the weights.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator

from ..compile.tape import address
from ..dims import ELEMENT_BYTES
from ..errors import DataError
from .program import POSITION

MOST_TOGETHER = 32
"""Rows asked for that get a tape of exactly their number."""
POSITION_ADDRESS = address(POSITION)


def shared_length(one: list[int], other: list[int]) -> int:
    """How many tokens two texts begin with alike."""
    short = min(len(one), len(other))
    if one[:short] == other[:short]:
        return short
    return next(index for index in range(short) if one[index] != other[index])


def chunks(rows: int, last: int) -> Iterator[int]:
    """Rows of each pass, in order, of which the `last` are asked for."""
    together = last if 1 < last <= MOST_TOGETHER else 0
    rows -= together
    while rows:
        chunk = 1 << (rows.bit_length() - 1)
        yield chunk
        rows -= chunk
    if together:
        yield together


class Past:
    """What stands in a model's cache. `forget` says that its weights changed.

    ready(pass) loads a pass, download(address, bytes) reads an output: the model's own, both to be awaited.
    """

    def __init__(self, model, ready, download) -> None:
        self._model, self._ready, self._download = model, ready, download
        self._tokens, self._changes = [], 0
        self._row_bytes = model.config.vocabulary * ELEMENT_BYTES
        self._one_at_a_time = asyncio.Lock()  # a pass uses the cache as the pass before left it

    @property
    def tokens(self) -> list[int]:
        """The text there, from its first token."""
        return list(self._tokens)

    def forget(self) -> None:
        """Weights change: nothing that was computed holds any more."""
        self._tokens, self._changes = [], self._changes + 1

    def close(self) -> None:
        """Let the model go: it and this one hold each other, and its engine's memory is freed only with the last hold on it."""
        self._model = self._ready = self._download = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._model is None

    async def logits(self, tokens, last: int = 1) -> list[memoryview]:
        """Logits [V] (float32) after each of the `last` of `tokens`; see GPT.logits_of_async."""
        count, context = len(tokens), self._model.config.context
        if not 1 <= count <= context:
            raise DataError("model", f"1 to {context} tokens (the context)", f"{count} came", "shorten the input")
        if not 1 <= last <= count:
            raise DataError("model", f"logits after 1 to {count} of the tokens", f"{last} was asked for", "change it")
        async with self._one_at_a_time:
            return await self._run(list(tokens), last)

    async def _run(self, text: list[int], last: int) -> list[memoryview]:
        model, machine, changes, rows = self._model, self._model.machine, self._changes, []
        start = min(shared_length(self._tokens, text), len(text) - last)
        self._tokens = self._tokens[:start]  # what comes after is written over, and a pass may fail
        for count in chunks(len(text) - start, last):
            each = model.program.decoding(count)
            loaded = await self._ready(each)
            machine.upload(address(each.tokens), struct.pack(f"<{count}i", *text[start : start + count]))
            machine.upload(POSITION_ADDRESS, struct.pack("<i", start))
            machine.replay(loaded)
            start += count
            wanted = min(start - len(text) + last, count)
            if wanted > 0:
                rows += await self._rows(each, count - wanted, wanted)
        if changes == self._changes:
            self._tokens = text
        return rows

    async def _rows(self, each, first: int, count: int) -> list[memoryview]:
        size, (place, _) = self._row_bytes, each.address("logits")
        data = memoryview(await self._download(place + first * size, count * size)).cast("f")
        width = size // ELEMENT_BYTES
        return [data[at : at + width] for at in range(0, count * width, width)]


class Guest(Past):
    """The text of a model under changes (study/steering.py) in the one cache there is: its own model's text is forgotten before, and
    this one where that model, another guest or other weights came in between."""

    def __init__(self, model, ready, download, host: Past) -> None:
        super().__init__(model, ready, download)
        self._host, self._left, self._one_at_a_time = host, -1, host._one_at_a_time

    async def _run(self, text: list[int], last: int) -> list[memoryview]:
        host = self._host
        if host._tokens or host._changes != self._left:
            self._tokens = []
        host.forget()
        self._left = changes = host._changes
        rows = await super()._run(text, last)
        if changes != host._changes:  # while it ran
            self._tokens = []
        return rows
