"""A saved run's losses as bits per byte."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..data import bits

if TYPE_CHECKING:
    from .checkpoint import Checkpoint

LOSSES = {"loss_nats": "bits_per_byte", "validation_loss_nats": "validation_bits_per_byte"}


def bytes_per_token(checkpoint: Checkpoint, field: str) -> float | None:
    """What turns a run's losses into bits per byte (loss / this / ln 2): "bytes_per_token" those of steps,
    "evaluated_bytes_per_token" those of evaluations. 1 where tokens are bytes; None where the run does not say."""
    each = checkpoint.corpus.get(field, 1.0 if checkpoint.tokenizer.get("name") == "bytes" else None)
    return each if _is_number(each) and each > 0 else None


def bits_per_byte(checkpoint: Checkpoint, key: str, loss_nats: Any) -> float | None:
    """A loss that the history has under `key` as bits per byte; None where that cannot be said."""
    each = bytes_per_token(checkpoint, "evaluated_bytes_per_token" if key == "validation_loss_nats" else "bytes_per_token")
    return bits.bits_per_byte(loss_nats, each) if each is not None and _is_number(loss_nats) else None


def rows_with_bits(checkpoint: Checkpoint) -> list[dict]:
    """The history's rows, each loss in bits per byte too."""
    return [
        row | {shown: bits_per_byte(checkpoint, key, row[key]) for key, shown in LOSSES.items() if key in row} for row in checkpoint.history
    ]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
