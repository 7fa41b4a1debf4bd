"""What a GPU's buffers are for, in the words of the page."""

from __future__ import annotations

from ...compile.graph import REGIONS
from ..kinds import KINDS, REGION_KINDS
from .dispatch import BANK, HALVES, SCRATCH
from .parts import KIND_MASK

OWN = {SCRATCH: "scratch_bytes", HALVES: "weights_bytes"}


def by_kind(nbytes: dict[int, int], held_bytes: int | None = None) -> dict[str, int]:
    """Bytes by kind, and in all, of buffers' sizes by number; the weights' half-precision copy counts as weights. `held_bytes` are
    those of all buffers: sizes of dispatches, and what goes to a step and comes back, are among them."""
    found = dict.fromkeys(KINDS, 0)
    for buffer, size in nbytes.items():
        number = buffer & KIND_MASK
        if number >= BANK:
            kind = "activations_bytes"
        elif number < len(REGIONS):
            kind = REGION_KINDS.get(REGIONS[number], "other_bytes")
        else:
            kind = OWN.get(number, "other_bytes")
        found[kind] += size
    if held_bytes is not None:
        found["other_bytes"] += held_bytes - sum(nbytes.values())
    return found | {"total_bytes": sum(found.values())}
