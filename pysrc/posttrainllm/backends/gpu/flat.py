"""Lowering of what runs over flat ranges: elementwise kernels, the gradient's norm, AdamW, and the guard after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...dims import ELEMENT_BYTES, PARTIAL_ELEMENTS, round_up
from .dispatch import SCRATCH, STATE, Binding, Call, Dispatch, Operand, build, ceil_div
from .halves import HALVES_BINDING, PARAMS, Halves
from .options import Options
from .parts import PACKED

THREADS = 256
STATE_BINDING = 9
STATE_BYTES = 256
BLOCK_BYTES = PARTIAL_ELEMENTS * ELEMENT_BYTES
GROWTH_STEPS = 1000
"""Good steps after which the loss scale doubles."""


def vectors(*counts: int) -> bool:
    """Whether lengths can be read four elements at a time."""
    return all(count % 4 == 0 for count in counts)


def reducing(call: Call) -> dict[str, object]:
    """Constants of a kernel that sums over neighbouring threads (shaders/reduce.wgsl)."""
    return {"SUBGROUPS": True} if call.options.subgroups else {}


def pieces(
    call: Call, names: str, whole: int, first: int = 0, stop: int | None = None, marks: Iterable[int] = ()
) -> Iterator[tuple[int, int, dict[str, Operand]]]:
    """Elements first … stop of flat arguments, cut where a binding must end: (start, count, operands).

    Cuts for that are multiples of `whole` elements from `first`, or from where a region is cut. `marks` are further cuts.
    """
    stop = call.sizes["N"] if stop is None else stop
    most = max(whole, call.limits.binding_bytes // ELEMENT_BYTES // whole * whole)
    operands = [(name, call.operands[name], call.element_bytes(name)) for name in names.split()]
    marks = set(marks) | {at // each for _, operand, each in operands for at in call.options.cuts.inside(operand)}
    marks = [first, *sorted(at for at in marks if first < at < stop), stop]
    for low, high in zip(marks, marks[1:]):
        for start in range(low, high, most):
            count = min(most, high - start)
            cut = {name: Operand(o.region, o.offset_bytes + start * each, count * each) for name, o, each in operands}
            yield start, count, cut


def flat(names: str, values: Callable[[Call], dict] = lambda call: {}) -> Callable[[Call], Iterator[Dispatch]]:
    """Elementwise kernels: every [N] argument in step."""

    def lower(call: Call) -> Iterator[Dispatch]:
        for _, count, operands in pieces(call, names, 128):
            wide = vectors(count)
            elements = count // 4 if wide else count
            groups = ceil_div(elements, THREADS)
            yield call.dispatch(names, groups, {"count": elements} | values(call), {"VECTORS": wide}, operands=operands)

    return lower


def grad_norm(call: Call) -> Iterator[Dispatch]:
    """Partial sums, then the norm; divided by the loss scale where there is one."""

    def add_up(start: int, count: int, operands: dict[str, Operand]) -> Dispatch:
        wide, groups = vectors(count), ceil_div(count, PARTIAL_ELEMENTS)
        values = {"count": count // 4 if wide else count, "partial_count": groups, "first": start // PARTIAL_ELEMENTS}
        return call.dispatch("grad partials", groups, values, {"VECTORS": wide} | reducing(call), operands=operands)

    grad = call.operands["grad"]
    across = sorted({at // BLOCK_BYTES for at in call.options.cuts.inside(grad) if at % BLOCK_BYTES})
    start = 0
    for block in (*across, -1):
        stop = call.sizes["N"] if block < 0 else block * PARTIAL_ELEMENTS
        if start < stop:
            for piece in pieces(call, "grad", PARTIAL_ELEMENTS, start, stop):
                yield add_up(*piece)
        if block >= 0:  # elements of one partial sum lie in two buffers: they are brought together first
            start, stop = stop, min(call.sizes["N"], stop + PARTIAL_ELEMENTS)
            for at, count, operands in pieces(call, "grad", PARTIAL_ELEMENTS, start, stop):
                yield _copy(call.options, operands["grad"], Operand(SCRATCH, (at - start) * ELEMENT_BYTES, count * ELEMENT_BYTES))
            yield add_up(start, stop - start, {"grad": Operand(SCRATCH, 0, (stop - start) * ELEMENT_BYTES)})
            start = stop
    constants, more, total = {"VECTORS": False} | reducing(call), (), call.sizes["G"]
    if call.options.half:
        constants["SCALED"], more = True, (state(),)
    values = {"count": 0, "partial_count": total, "first": 0}
    yield call.dispatch("partials norm", 1, values, constants, "grad_norm_total", more=more)


def _copy(options: Options, source: Operand, target: Operand) -> Dispatch:
    """Numbers as they are, from one buffer to another."""
    bound = [Binding(0, source, False, "x"), Binding(1, target, True, "y")]
    wide, count = vectors(source.nbytes // ELEMENT_BYTES), source.nbytes // ELEMENT_BYTES
    elements = count // 4 if wide else count
    return build(options, "halve", "halve", "halve", bound, ceil_div(elements, THREADS), {"count": elements}, {"VECTORS": wide})


def adamw(call: Call, halves: Halves) -> Iterator[Dispatch]:
    """The step; where the range has weights with a half-precision copy, that is written with it."""
    options, param = call.options, call.operands["param"]
    constants: dict[str, object] = {"SCALED": True} if options.half else {"GUARD": True} if options.guard else {}
    common = (state(),) if constants else ()
    first = param.offset_bytes
    whole = (first, first + call.sizes["N"] * ELEMENT_BYTES, None)
    packed = PACKED.get(call.kernel.name)
    marks = {at // packed[1] * packed[0] for name in "mv" for at in options.cuts.inside(call.operands[name])} if packed else ()
    slices = []
    for low, high, piece in halves.cut(*whole[:2]) if param.region == PARAMS else [whole]:
        span = ((low - first) // ELEMENT_BYTES, (high - first) // ELEMENT_BYTES)
        for start, count, operands in pieces(call, "grad param" if packed else "grad param m v", 128, *span, marks):
            at = first + start * ELEMENT_BYTES
            slices.append((start, count, operands, piece and piece.operand(at, at + count * ELEMENT_BYTES)))
    # Moments may be cut where the halves of what comes next cannot be bound: then the halves are written by themselves.
    beside = all(half is None or options.cuts.locate(half).offset_bytes % call.limits.offset_alignment == 0 for *_, half in slices)
    for start, count, operands, half in slices:
        wide = vectors(count)
        more, given = common, constants | {"VECTORS": wide}
        if half and beside:
            more, given = (*common, Binding(HALVES_BINDING, half, True, "halves")), given | {"HALF": True}
        values, elements = {"count": count, "decayed": call.params["decayed"]}, count
        if packed:
            values["first"], elements = start, ceil_div(round_up(count, packed[0]), 4)
            for name in ("m", "v"):
                operands[name], values[f"{name}_first"] = _words(call, name, start, count)
        elif wide:
            values["count"] = elements = count // 4
        names = "grad norm recipe param m v"
        yield call.dispatch(names, ceil_div(elements, THREADS), values, given, operands=operands, more=more)
    if not beside:
        yield from halves.refresh(options)


def _words(call: Call, name: str, start: int, count: int) -> tuple[Operand, int]:
    """Where packed moments of elements start … start + count lie, from a place on that can be bound, and their first word there."""
    (elements, nbytes), whole = PACKED[call.kernel.name], call.operands[name]
    begin = whole.offset_bytes + start // elements * nbytes
    end = whole.offset_bytes + ceil_div(start + count, elements) * nbytes
    bound = begin // call.limits.offset_alignment * call.limits.offset_alignment
    return Operand(whole.region, bound, end - bound), (begin - bound) // ELEMENT_BYTES


def guard(options: Options, norm: Operand) -> Dispatch:
    """After the last AdamW of a step: what a norm that is not finite, or many that were, change in the state buffer."""
    bound = [Binding(0, norm, False, "norm"), Binding(STATE_BINDING, state().operand, True, "state")]
    constants = {"SCALED": options.half}
    return build(options, "guard", "guard", "guard", bound, 1, {"growth_steps": GROWTH_STEPS}, constants)


def state() -> Binding:
    """The state buffer, read."""
    return Binding(STATE_BINDING, Operand(STATE, 0, STATE_BYTES), False, "state")
