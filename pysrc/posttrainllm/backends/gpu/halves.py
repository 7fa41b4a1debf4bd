"""The weights of products in half precision (buffer HALVES), kept beside the f32 weights by AdamW's shader.

Byte o of the params region has its half at o/2 + shift. A binding must start at a multiple of 256 bytes, and half a weight's
offset may not be one: then the shift grows by 128 from that weight on. Weights between two such places are a piece, which
one dispatch can write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...compile.graph import REGIONS
from ...compile.tape import Record, Tape, decode
from ...dims import ELEMENT_BYTES, product, round_up
from .dispatch import HALVES, Binding, Dispatch, Operand, build, ceil_div
from .options import HALF_ARGUMENTS, HALF_BYTES, Options
from .parts import PART_SHIFT, Cuts

PARAMS = REGIONS.index("params")
ALIGN_BYTES = 256
HALVES_BINDING = 10
WEIGHTS = ("weight", "wte")
"""Names of half arguments that are weights: read from HALVES where the tape has them in the params region."""


@dataclass(frozen=True)
class Piece:
    """Weights from byte `start` to `stop` of the params region, with one shift."""

    start: int
    stop: int
    shift: int

    def operand(self, start: int, stop: int) -> Operand:
        """Where the halves of bytes start … stop of the params region lie."""
        return Operand(HALVES, start // 2 + self.shift, (stop - start) // 2)


@dataclass(frozen=True)
class Halves:
    """Pieces in order. Two tapes with equal Halves share the buffer's contents. parts: where those of the params region are cut,
    as Cuts has it."""

    pieces: tuple[Piece, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return max((piece.stop // 2 + piece.shift for piece in self.pieces), default=0)

    def find(self, start: int, nbytes: int) -> Operand:
        """The half-precision copy of a weight at byte `start` of the params region, `nbytes` there."""
        piece = next(p for p in self.pieces if p.start <= start and start + nbytes <= p.stop)
        return piece.operand(start, start + nbytes)

    def cut(self, start: int, stop: int) -> Iterator[tuple[int, int, Piece | None]]:
        """A range of the params region cut at the pieces: (start, stop, its piece or None)."""
        for piece in self.pieces:
            low, high = max(start, piece.start), min(stop, piece.stop)
            if low < high:
                if start < low:
                    yield start, low, None
                yield low, high, piece
                start = high
        if start < stop:
            yield start, stop, None

    def cuts_beside(self, cuts: Cuts) -> Cuts:
        """The regions' cuts, and this buffer's."""
        return Cuts(cuts.parts | {HALVES: self.parts}) if self.parts else cuts

    def refresh(self, options: Options) -> list[Dispatch]:
        """Dispatches that write all of them anew from the f32 weights."""
        most = options.limits.binding_bytes // 512 * 512
        cuts = [at for at, _ in options.cuts.parts.get(PARAMS, ())]
        constants = {"VECTORS": True, "HALF": True}
        found = []
        for piece in self.pieces:
            marks = [piece.start, *(at for at in cuts if piece.start < at < piece.stop), piece.stop]
            spans = ((at, min(at + most, high)) for low, high in zip(marks, marks[1:]) for at in range(low, high, most))
            for start, stop in spans:
                count = (stop - start) // (4 * ELEMENT_BYTES)
                bound = [
                    Binding(0, Operand(PARAMS, start, stop - start), False, "x"),
                    Binding(1, piece.operand(start, stop), True, "y"),
                ]
                groups = ceil_div(count, 256)
                found.append(build(options, "halve", "halve", "halve", bound, groups, {"count": count}, constants))
        return found


def halves_of(tape: Tape, options: Options) -> Halves:
    """The layout for the weights that a tape's products read; none where storage is f32."""
    if not options.half:
        return Halves()
    weights = set()
    for record in decode(tape):
        for argument, (region, offset) in zip(record.kernel.args, record.operands):
            if is_shadowed(options, record.kernel.name, argument.name, region):
                nbytes = product(record.kernel.shape(argument, record.sizes)) * ELEMENT_BYTES
                weights.add((offset, round_up(offset + nbytes, ALIGN_BYTES)))
    pieces: list[Piece] = []
    for start, stop in sorted(weights):
        shift = pieces[-1].shift if pieces else 0
        if (start // 2 + shift) % ALIGN_BYTES:
            pieces.append(Piece(start, stop, shift + ALIGN_BYTES // 2))
        elif pieces:
            pieces[-1] = Piece(pieces[-1].start, stop, shift)
        else:
            pieces.append(Piece(start, stop, shift))
    return Halves(tuple(pieces), _parts(pieces, options.cuts))


def _parts(pieces: list[Piece], cuts: Cuts) -> tuple[tuple[int, int], ...]:
    """The halves of what lies in one buffer of the params region lie in one."""
    found = [0]
    for at, _ in cuts.parts.get(PARAMS, ()):
        half = next((max(piece.start, at) // 2 + piece.shift for piece in pieces if piece.stop > at), 0)
        if half > found[-1]:
            found.append(half)
    return tuple((at, HALVES | part << PART_SHIFT) for part, at in enumerate(found)) if len(found) > 1 else ()


def storage(options: Options, record: Record) -> Options:
    """Options for one record: single precision where what is stored in half elsewhere lies among the weights themselves, as where
    an adapter is worked into them."""
    if options.half:
        halves = HALF_ARGUMENTS.get(record.kernel.name, frozenset()) - set(WEIGHTS)
        for argument, (region, _) in zip(record.kernel.args, record.operands):
            if region == "params" and argument.name in halves:
                return replace(options, precision="f32")
    return options


def is_shadowed(options: Options, kernel: str, argument: str, region: str) -> bool:
    """Whether an argument is read from HALVES rather than from its region."""
    return region == "params" and argument in WEIGHTS and options.element_bytes(kernel, argument) == HALF_BYTES
