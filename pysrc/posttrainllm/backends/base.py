"""What an engine is to Python: regions of bytes, and tapes replayed in one call. Backends import nothing from each other."""

from __future__ import annotations

from typing import Protocol

from ..compile.tape import Tape
from ..errors import DataError, DeviceError, DeviceUnavailableError
from ..ops import KERNELS


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

    # An engine may also have these; callers look for them.
    #
    # steps(loaded, parts, row_bytes, metrics, nbytes) -> queue: many training steps under way at once. The queue's
    #   push(image, count, bounds) sends `count` rows of row_bytes; before each step the parts (start in the row, tape address,
    #   bytes) are copied to their places, after it `nbytes` at address `metrics` are kept. bounds are (least, most) of the
    #   tokens and of the targets. poll() gives the kept rows that came back, in order; `await landed()` waits for the oldest
    #   block; under_way counts blocks that have not come back; step_seconds is what a step lately took.
    # memory() -> bytes held by kind (kinds.py), and predictor: a function of (tapes, region_bytes, row_bytes=0) that says what a model
    #   will hold, those tapes loaded, and where row_bytes (of a step's inputs) are given in training; it does not hold the machine.
    # expect(tapes): which tapes come, before `allocate`: an engine that cuts large regions cuts them between these tapes' values.
    # trim(region_bytes) gives back what regions hold beyond this; one that is made smaller becomes zero.
    # precision: "f32" or "f16". With "f16" loss_scale() -> (scale, good steps) and set_loss_scale(scale, good steps): what a
    #   run goes on with.
    # Where answers must be awaited (a GPU in a browser): load_all_async(tapes, progress), ready_async(loaded),
    #   download_async(address, nbytes), and fetch_async(regions, params_from), after which download and view of them (of params
    #   from a byte on) answer at once until the next replay.


def engine_error(message: str) -> DeviceError | DataError:
    """The C++ engine's sentence as an error of the right kind: a bad token is the data's fault, all else the engine's."""
    if "token" in message or "target" in message:
        return DataError("engine", message, code="E-DATA-TOKEN")
    return DeviceError("engine", message)


def require_same_kernels(names: list[str]) -> None:
    """Raise DeviceUnavailableError when an engine was built for another list of kernels than this package records."""
    if list(names) != [kernel.name for kernel in KERNELS]:
        raise DeviceUnavailableError(
            "engine",
            "its kernels are this package's, in order",
            f"a build with {len(names)} kernels came",
            "build it again: ./build.sh build",
        )
