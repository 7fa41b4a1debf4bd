"""What a model holds on an engine: as it will be, before anything is made, and as it is."""

from __future__ import annotations

from collections.abc import Callable

from .program import Program
from .steps import row_bytes

Predictor = Callable[..., dict[str, int]]
"""A machine's (base.py): (tapes, region_bytes, row_bytes) to bytes by kind."""


def predicted(program: Program, predictor: Predictor) -> dict[str, int]:
    """Bytes by kind, and in all, that the engine will hold when the program's model trains (one for writing only: writes).

    Raises DeviceLimitError where a GPU cannot hold or bind something.
    """
    tapes = [each.tape for each in (program.initial, program.evaluation, program.step) if each is not None]
    return split(program, predictor(tapes, program.region_bytes(), row_bytes(program.step) if program.step else 0))


def split(program: Program, found: dict[str, int]) -> dict[str, int]:
    """Of an engine's activations by what they are: kept from a step's forward for its backward, or only passing through (scratch), in
    the shares that the plan has."""
    need, kept = program.region_bytes(), program.step.kept_bytes if program.step else 0
    passing = found["activations_bytes"] - need["cache"]
    passing -= passing * kept // max(1, need["arena"])
    changed = {"activations_bytes": found["activations_bytes"] - passing, "scratch_bytes": found["scratch_bytes"] + passing}
    return found | changed
