"""The history of a run: one row a step while it is short, thinner as it grows, so that hours of training stay small.

After step 8,192 every second row stays, after 16,384 every fourth, and so on; rows with a validation loss always do.
Which rows stay depends on the steps alone, so a run that was saved and went on has the same ones.
"""

from __future__ import annotations

FULL_STEPS = 8192


def stride(step: int) -> int:
    """Rows whose step is a multiple of this stay, in a history that reaches `step`."""
    return 1 << ((step - 1) // FULL_STEPS).bit_length()


def append(history: list[dict], row: dict) -> None:
    """Add a row (with "step" and "validation_loss_nats"); rows that need not stay go."""
    before, now = (stride(history[-1]["step"]), stride(row["step"])) if history else (1, 1)
    if now > before:
        history[:] = [old for old in history if _stays(old, now)]
    elif now > 1 and not _stays(history[-1], now):
        history.pop()  # the newest row is always there: it may still get a validation loss
    history.append(row)


def newest_step(history: list[dict]) -> dict | None:
    """The last row with a training loss; None before the first step. One that was skipped and evaluated has none."""
    return next((row for row in reversed(history) if row.get("loss_nats") is not None), None)


def _stays(row: dict, every: int) -> bool:
    return row["step"] % every == 0 or row.get("validation_loss_nats") is not None
