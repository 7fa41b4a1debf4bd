"""Where a tape's activations lie on a GPU: in several buffers (banks), so that a shader's inputs and outputs stand apart.

WebGPU counts access by whole buffer: an input that shares its buffer with an output must be declared read_write. On an H200 a
matmul whose input is declared so runs at half its speed (docs/log.md). So the arena's values are taken from the tape (each from
its first touch to its last) and placed anew: in another bank than what is read or written beside them, largest first, at the
lowest gap. The same makes an arena larger than one buffer possible.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...compile.graph import ARENA, REGIONS
from ...compile.tape import OFFSET_MASK, Record, Tape, decode
from ...dims import ELEMENT_BYTES, product, round_up
from ...errors import DeviceError
from ...ops import Arg
from .dispatch import Operand, Span
from .fuse import Step, fuse
from .halves import Halves, halves_of, is_shadowed, storage
from .lending import lend, lenders, note_gradients
from .limits import Limits
from .options import Options

FEWEST_BANKS, MOST_BANKS = 3, 192


@dataclass
class Banks:
    """A tape's steps with the operands of each by argument; bank_bytes by bank; spans in order of birth, and those that
    fusing left unwritten; the layout of HALVES."""

    steps: list[Step]
    bank_bytes: list[int]
    spans: list[Span]
    fused: list[Span]
    halves: Halves

    def find(self, address: int, nbytes: int) -> Operand:
        """Where bytes of the arena lie after the tape ran. Raises DeviceError when they are not there to be read as f32."""
        offset = address & OFFSET_MASK
        for span in sorted([*self.spans, *self.fused], key=lambda s: -s.first):
            if not span.start <= offset <= offset + nbytes <= span.start + span.tape_bytes:
                continue
            if span in self.fused:
                raise DeviceError(
                    "webgpu",
                    "an activation that is read is one the GPU writes",
                    "one that is fused into the next was asked for",
                )
            if span.nbytes != span.tape_bytes:
                raise DeviceError(
                    "webgpu",
                    "an activation that is read is stored in single precision",
                    "one stored in half precision was asked for",
                    'open the engine with precision "f32"',
                )
            return span.operand(offset - span.start, nbytes)
        raise DeviceError(
            "webgpu", "activations are read after the tape that made them", f"{nbytes:,} bytes at {offset:,} came"
        )


def place(tape: Tape, given: Limits | Options) -> Banks:
    """Banks for a tape. Raises DeviceLimitError when a value, or all of them in MOST_BANKS buffers, cannot be held."""
    options, tape = Options.of(given), tape.apart() if tape.apart else tape
    limits = options.limits
    halves = halves_of(tape, options)
    spans, steps = _spans(tape, options, halves)
    if not tape.passing:
        _keep_survivors(spans, len(steps))
    lending = lenders(steps, options.cuts, tape.lends)
    gone: set[Span] = set()
    if options.fuse:
        steps, gone = fuse(steps)
    spans, fused = [s for s in spans if s not in gone], [s for s in spans if s in gone]
    twins = _twins(spans, tape.turns) if tape.passing else {}
    placed = [span for span in spans if span not in twins]
    _note_neighbours(steps)
    if lending:
        note_gradients(steps, options.cuts)
        lend(placed, lending, len(tape))
    count = FEWEST_BANKS
    while True:
        sizes = _pack(placed, count)
        if max(sizes) <= limits.buffer_bytes:
            break
        if count == MOST_BANKS:
            limits.require_buffer("a part of the activations", max(sizes))
        count = min(MOST_BANKS, count * 2)
    for span, first in twins.items():
        span.bank, span.offset, span.lent = first.bank, first.offset, first.lent
    for step in steps:
        step.uses = {
            name: use.operand() if isinstance(use, Span) else use
            for name, use in step.uses.items()
        }
    return Banks(steps, sizes, spans, fused, halves)


def _spans(tape: Tape, options: Options, halves: Halves) -> tuple[list[Span], list[Step]]:
    """The arena's values in order of birth, and each record with what its arguments are (a Span in the arena)."""
    spans: list[Span] = []
    live: dict[tuple[int, int], Span] = {}
    steps: list[Step] = []
    for index, record in enumerate(decode(tape)):
        uses: dict[str, Span | Operand] = {}
        own = storage(options, record)
        for argument, (region, offset) in zip(record.kernel.args, record.operands):
            count = product(record.kernel.shape(argument, record.sizes))
            tape_bytes, nbytes = count * ELEMENT_BYTES, count * own.element_bytes(record.kernel.name, argument.name)
            number = REGIONS.index(region)
            if is_shadowed(own, record.kernel.name, argument.name, region):
                uses[argument.name] = halves.find(offset, tape_bytes)
                continue
            if number != ARENA:
                uses[argument.name] = Operand(number, offset, nbytes)
                continue
            span = live.get((offset, tape_bytes))
            stale = span is not None and span.nbytes != nbytes and argument.role == "accum"  # dead: another's width
            if span is None or stale or argument.role in ("out", "saved") or _written_whole(record, argument):
                span = live[offset, tape_bytes] = Span(offset, tape_bytes, nbytes, index, index)
                spans.append(span)
            elif span.nbytes != nbytes:
                raise DeviceError(
                    record.kernel.name,
                    f"{argument.name} is stored as its kernel reads it",
                    f"{span.nbytes:,} bytes are stored, {nbytes:,} are read",
                    "this tape cannot run in half precision",
                )
            span.last = index
            uses[argument.name] = span
        steps.append(Step(record, uses))
    return spans, steps


def _written_whole(record: Record, argument: Arg) -> bool:
    """Whether a kernel that can add to an argument was told not to: what was there before is another value."""
    told = {name: value for (name, _), value in zip(record.kernel.params, record.params)}
    return argument.name == "dx" and argument.role == "accum" and told.get("accumulate") == 0


def _note_neighbours(steps: list[Step]) -> None:
    """Which values a dispatch reads beside the ones it writes: they should lie in different banks."""
    for step in steps:
        for out in step.written():
            for source in step.read():
                if isinstance(out, Span) and isinstance(source, Span):
                    out.beside.add(source)
                    source.beside.add(out)


def _keep_survivors(spans: list[Span], records: int) -> None:
    """What nothing later covers on the tape's arena may be read after it (the plan's `keep`): it lives to the end."""
    later: list[tuple[int, int]] = []
    for span in reversed(spans):
        start, stop = span.start, span.start + span.tape_bytes
        if not any(first < stop and start < end for first, end in later):
            span.last = records
        later.append((start, stop))


def _twins(spans: list[Span], turns: range) -> dict[Span, Span]:
    """Each value of what a tape repeats to that of the first turn in whose place it lies: so every turn lies as one would."""
    by_turn = [[s for s in spans if start <= s.first < start + turns.step] for start in turns]
    shapes = [[(s.start, s.nbytes, s.first - start, s.last - start) for s in own] for start, own in zip(turns, by_turn)]
    if len(turns) < 2 or any(each != shapes[0] for each in shapes):
        return {}
    return {span: first for own in by_turn[1:] for span, first in zip(own, by_turn[0])}


def _pack(spans: list[Span], count: int) -> list[int]:
    """Give every span that has no place yet a bank and an offset; returns the banks' sizes."""
    sizes = [0] * count
    placed: list[list[Span]] = [[] for _ in range(count)]
    for span in spans:
        span.bank = -1
    for span in sorted(spans, key=lambda s: (-s.nbytes, s.first)):
        if span.lent < 0:
            _to_bank(span, sizes, placed)
    return sizes


def _to_bank(span: Span, sizes: list[int], placed: list[list[Span]]) -> None:
    nbytes = round_up(span.nbytes, 256)
    best = None
    for bank in range(len(sizes)):
        shared = sum(other.nbytes for other in span.beside if other.bank == bank)
        offset = 0
        first, last = span.first, span.last
        busy = [(o.offset, o.offset + o.nbytes) for o in placed[bank] if o.first <= last and first <= o.last]
        busy.sort()
        for start, stop in busy:
            if start - offset >= nbytes:
                break
            offset = max(offset, round_up(stop, 256))
        grown = max(0, offset + nbytes - sizes[bank])
        if best is None or (shared, grown, sizes[bank]) < best[:3]:
            best = (shared, grown, sizes[bank], bank, offset)
    span.bank, span.offset = best[3], best[4]
    placed[span.bank].append(span)
    sizes[span.bank] = max(sizes[span.bank], span.offset + nbytes)
