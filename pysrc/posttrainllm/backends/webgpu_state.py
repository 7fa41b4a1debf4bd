"""What a native machine's state buffer tells and is told: the loss scale, and whether training is halted (gpu/upkeep.py)."""

from __future__ import annotations

import struct

from .gpu.dispatch import STATE
from .gpu.upkeep import HALTED_BYTE, LAST_SCALE_BYTE, SCALE_BYTE


def reset_guard(machine) -> None:
    """Let steps change the weights again after a gradient norm that was not finite stopped them."""
    _write(machine, HALTED_BYTE, bytes(4))


def gradient_scale(machine) -> float:
    """What the gradients of the step before are multiplied by: the loss scale in f16, else 1."""
    return _read(machine, LAST_SCALE_BYTE, 1)[0]


def loss_scale(machine) -> tuple[float, float]:
    """(loss scale, good steps since it changed): what a run in half precision goes on with."""
    return _read(machine, SCALE_BYTE, 2)


def set_loss_scale(machine, scale: float, good_steps: float) -> None:
    """Go on with these."""
    _write(machine, 0, machine._upkeep.state(scale, good_steps))


def _read(machine, offset: int, count: int) -> tuple[float, ...]:
    data = machine._call(machine._queue.read_buffer, machine._buffers[STATE], offset, 4 * count)
    return struct.unpack(f"<{count}f", data)


def _write(machine, offset: int, data: bytes) -> None:
    machine._call(machine._queue.write_buffer, machine._buffers[STATE], offset, data)
