"""Bytes of all buffers that there are: what a host makes is counted until it is destroyed, or until nobody has it any more."""

from __future__ import annotations

import weakref


class Ledger:
    """What is held."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._open: dict[int, weakref.finalize] = {}

    def made(self, buffer, nbytes: int) -> None:
        """Count a buffer."""
        self.held_bytes += nbytes
        self._open[id(buffer)] = end = weakref.finalize(buffer, self._gone, id(buffer), nbytes)
        end.atexit = False

    def destroy(self, buffer) -> None:
        """Destroy a buffer, and count it no more."""
        end = self._open.get(id(buffer))
        buffer.destroy()
        if end is not None:
            end()

    def _gone(self, key: int, nbytes: int) -> None:
        self.held_bytes -= nbytes
        self._open.pop(key, None)
