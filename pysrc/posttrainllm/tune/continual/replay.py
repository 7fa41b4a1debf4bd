"""Replay: text that the base knows stands among the corrections in every batch, so that learning them does not cost what it knew.

A stated share of a batch's rows are windows of the base's training text, every token of which counts; the others are corrections, whose
answers alone do. Where a batch is smaller than 1/share rows, some batches have none: over the steps the share holds.
"""

from __future__ import annotations

from copy import copy

from ...data.corpus import Corpus
from ...data.pair_rows import RowBatches, join
from ...data.pairs import Pairs
from ...ops.lazy import np


class Replayed(Pairs):
    """Pairs with a share of the rows of every batch from a text; to be given to tune.sft as they are."""

    def __init__(self, pairs: Pairs, text: Corpus, share: float) -> None:
        self.__dict__.update(vars(copy(pairs)))
        self.text, self.share = text, share

    def batches(self, context: int, batch: int, seed: int, cursor: dict | None = None) -> MixedBatches:
        """Training rows and windows in the order of a seed."""
        return MixedBatches(self.parts(context)[0], self.text, self.share, context, batch, seed, cursor)


class MixedBatches:
    """An endless sequence of batches of rows and windows. cursor: where the next begins, as JSON."""

    def __init__(self, part, text: Corpus, share: float, context: int, batch: int, seed: int, cursor: dict | None = None) -> None:
        self.part, self.text, self.share, self.context, self.batch, self.seed = part, text, share, context, batch, seed
        cursor = cursor or {}
        self.count = int(cursor.get("count", 0))
        self._rows = RowBatches(part, context, batch, seed, {name: cursor.get(name, 0) for name in ("epoch", "window")})
        self._text = text.batches(context, 1, seed, cursor.get("text"))

    @property
    def cursor(self) -> dict:
        """Where the next batch begins."""
        return self._rows.cursor | {"count": self.count, "text": self._text.cursor}

    def next(self) -> tuple[bytes, bytes]:
        """(tokens, targets) [B,T] of the next batch, i32 bytes: corrections first, then windows."""
        windows = int((self.count + 1) * self.share * self.batch) - int(self.count * self.share * self.batch)
        self.count += 1
        self._rows.rows = self.batch - windows
        both = [join(self.part, self._rows.take(), self.context)] if windows < self.batch else []
        both += [self._text.next() for _ in range(windows)]
        return b"".join(tokens for tokens, _ in both), b"".join(targets for _, targets in both)

    def block(self, count: int):
        """`count` batches: (tokens, targets), int32 arrays [count, B, T]."""
        both = [self.next() for _ in range(count)]
        return tuple(
            np.frombuffer(b"".join(each), "<i4").astype(np.int32).reshape(count, -1, self.context) for each in zip(*both)
        )
