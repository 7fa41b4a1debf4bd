"""Whether a model's plan fits the memory there is, said with the numbers before any of it is taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .choosing import RESERVE_BYTES, refusal
from .program import Program

_CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int | None:
    """Memory a native process may take: the machine's, or its container's where that is less. None where nobody says."""
    if sys.platform == "emscripten" or not hasattr(os, "sysconf"):
        return None
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    for path in _CGROUP:
        try:
            found = min(found, int(Path(path).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return found


def need_bytes(program: Program) -> int:
    """All regions of a program, with the reserve."""
    return sum(program.region_bytes().values()) + RESERVE_BYTES


def require_fit(program: Program, limit_bytes: int | None, scale: int = 1) -> None:
    """Raise ConfigError (E-CONFIG-PLAN), naming what would fit, when the program needs more than limit_bytes.

    scale is how many bytes the machine keeps for each planned one (the reference, in float64: 2).
    """
    if limit_bytes is None or scale * need_bytes(program) <= limit_bytes:
        return
    raise refusal(program.config, program.lora, program.saving, limit_bytes, scale, program.step is not None)
