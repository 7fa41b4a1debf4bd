"""What a host does beside running tapes: the state buffer, and the halves where weights changed otherwise than by a step."""

from __future__ import annotations

import struct

from ...compile.tape import OFFSET_MASK, REGION_SHIFT
from .flat import STATE_BYTES
from .halves import PARAMS, Halves
from .lower import Lowered
from .options import Options

START_SCALE = 65536.0
SCALE_BYTE, HALTED_BYTE, LAST_SCALE_BYTE = 0, 8, 16
"""Where the state buffer has the loss scale, whether training is halted, and the scale of the gradients there are."""


class Upkeep:
    """A host tells it what it uploads and replays, and asks before each replay what to do first.

    Halves are current after a refresh, and stay so while only steps with the same layout change the weights. A halted
    engine (f32: a gradient norm was not finite) goes on once the weights are given anew, or by the host's reset_guard.
    """

    def __init__(self, options: Options) -> None:
        self._half = options.half
        self._current: Halves | None = None
        self._given = False

    def state(self, scale: float | None = None, good_steps: float = 0.0) -> bytes:
        """What the state buffer (number STATE) starts with: scale, good steps, halted, 1/scale, scale of the last step.

        A run that goes on brings its own scale and good steps."""
        scale = scale or (START_SCALE if self._half else 1.0)
        return struct.pack("<5f", scale, good_steps, 0.0, 1 / scale, scale).ljust(STATE_BYTES, b"\0")

    def uploaded(self, address: int, nbytes: int) -> None:
        """Bytes went to an address. Halves stay current where only weights without one came: an adapter is one upload."""
        if address >> REGION_SHIFT != PARAMS:
            return
        self._given, start = True, address & OFFSET_MASK
        if self._current and any(piece for _, _, piece in self._current.cut(start, start + nbytes)):
            self._current = None

    def before(self, lowered: Lowered) -> tuple[bool, bool]:
        """(run lowered.refresh first, write 0.0 to the state's HALTED_BYTE first) for a replay that follows at once."""
        refresh = bool(lowered.refresh) and self._current != lowered.banks.halves
        clear = self._given and lowered.weights == "stepped"
        if refresh:
            self._current = lowered.banks.halves
        if lowered.weights == "written" or (lowered.weights == "stepped" and self._current != lowered.banks.halves):
            self._current = None
        self._given = lowered.weights == "written" or (self._given and not clear)
        return refresh, clear
