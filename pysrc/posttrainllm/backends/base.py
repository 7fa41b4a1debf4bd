"""What an engine is to Python: regions of bytes, and tapes replayed in one call. Backends import nothing from each other."""

from __future__ import annotations

from typing import Protocol

from ..compile.tape import Tape


class Machine(Protocol):
    """An engine with its memory.

    name is "reference", "cpu" or "webgpu"; description says what runs, in words ("CPU, AVX-512, 2 threads").
    """

    name: str
    description: str

    def allocate(self, region_bytes: dict[str, int]) -> None:
        """Make every region at least this large, zero-filled where new. Raises DeviceOutOfMemoryError."""

    def upload(self, address: int, data) -> None:
        """Copy little-endian bytes (f32 or i32) to a tape address."""

    def download(self, address: int, nbytes: int) -> bytes:
        """Copy bytes from a tape address."""

    def view(self, address: int, nbytes: int):
        """The bytes at a tape address, to be read: natively a memoryview, in a browser a Uint8Array, without a copy (the
        reference gives a copy, rounded to f32). It shows later writes, and lives until the next `allocate` or `close`.
        """

    def load(self, tape: Tape) -> object:
        """Check a tape against the regions and return what `replay` takes. Raises DeviceError."""

    def replay(self, loaded: object) -> None:
        """Run a loaded tape to its end. Raises DeviceError or DataError (a token outside the vocabulary)."""

    def close(self) -> None:
        """Give memory and threads back."""
