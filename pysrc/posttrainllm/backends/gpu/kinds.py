"""What a GPU's buffers are for, in the words of the page."""

from __future__ import annotations

from ...compile.graph import REGIONS
from .dispatch import BANK, HALVES
from .parts import KIND_MASK

KINDS = {
    "params": "weights_bytes", "grads": "gradients_bytes", "m": "moments_bytes", "v": "moments_bytes", "cache": "activations_bytes",
}  # fmt: skip


def by_kind(nbytes: dict[int, int]) -> dict[str, int]:
    """Bytes by kind, and in all, of buffers' sizes by number; the weights' half-precision copy counts as weights."""
    found = dict.fromkeys(("weights_bytes", "gradients_bytes", "moments_bytes", "activations_bytes", "other_bytes"), 0)
    for buffer, size in nbytes.items():
        number = buffer & KIND_MASK
        if number >= BANK:
            kind = "activations_bytes"
        elif number == HALVES:
            kind = "weights_bytes"
        else:
            kind = KINDS.get(REGIONS[number], "other_bytes") if number < len(REGIONS) else "other_bytes"
        found[kind] += size
    return found | {"total_bytes": sum(nbytes.values())}
