"""What an engine's memory is for, in the words of the page."""

from __future__ import annotations

REGION_KINDS = {
    "params": "weights_bytes", "grads": "gradients_bytes", "m": "moments_bytes", "v": "moments_bytes",
    "arena": "activations_bytes", "cache": "activations_bytes",
}  # fmt: skip
KINDS = ("weights_bytes", "gradients_bytes", "moments_bytes", "activations_bytes", "scratch_bytes", "other_bytes")


def by_kind(region_bytes: dict[str, int], scratch_bytes: int = 0, other_bytes: int = 0) -> dict[str, int]:
    """Bytes by kind, and together, of regions, of what an engine needs for itself (scratch), and of what else it holds."""
    found = dict.fromkeys(KINDS, 0) | {"scratch_bytes": scratch_bytes, "other_bytes": other_bytes}
    for region, nbytes in region_bytes.items():
        found[REGION_KINDS.get(region, "other_bytes")] += nbytes
    return found | {"total_bytes": sum(found.values())}
