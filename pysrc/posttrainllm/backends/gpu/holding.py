"""What both hosts do about memory by their Memory: the part of a Machine that is not about buffers themselves."""

from __future__ import annotations

from collections.abc import Iterable

from ...compile.tape import Tape
from .memory import Memory
from .options import Options
from .predict import Predictor


class Holding:
    """A host's regions; it has `_memory` and `options`."""

    _memory: Memory
    options: Options

    def expect(self, tapes: Iterable[Tape]) -> None:
        """Cut regions that are larger than a buffer so that these tapes can run."""
        self._memory.expect(tapes)

    def allocate(self, region_bytes: dict[str, int]) -> None:
        """See Machine's."""
        self._memory.allocate(region_bytes)

    def trim(self, region_bytes: dict[str, int]) -> None:
        """Make regions no larger than this; one that is made smaller becomes zero."""
        self._memory.trim(region_bytes)

    def release(self) -> None:
        """Give back the memory of activations and of partial sums: a tape that is used again makes it anew."""
        self._memory.release()

    @property
    def predictor(self) -> Predictor:
        """See Machine's."""
        return Predictor(self.options)
