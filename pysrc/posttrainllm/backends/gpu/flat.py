"""Lowering of what runs over flat ranges: elementwise kernels, the gradient's norm, AdamW, and the guard after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...dims import ELEMENT_BYTES, PARTIAL_ELEMENTS, round_up
from .dispatch import STATE, Binding, Call, Dispatch, Operand, build, ceil_div
from .halves import HALVES_BINDING, PARAMS, Halves
from .options import Options

THREADS = 256
STATE_BINDING = 9
STATE_BYTES = 256
PACKED = {"adamw_bf16": (2, 4), "adamw_8bit": (64, 68)}
"""AdamW with smaller moments: elements of the least part of a moment that can be cut, and its bytes."""
GROWTH_STEPS = 1000
"""Good steps after which the loss scale doubles."""


def vectors(*counts: int) -> bool:
    """Whether lengths can be read four elements at a time."""
    return all(count % 4 == 0 for count in counts)


def reducing(call: Call) -> dict[str, object]:
    """Constants of a kernel that sums over neighbouring threads (shaders/reduce.wgsl)."""
    return {"SUBGROUPS": True} if call.options.subgroups else {}


def pieces(
    call: Call, names: str, whole: int, first: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int, dict[str, Operand]]]:
    """Elements first … stop of flat arguments, cut where a binding must end: (start, count, operands).

    Cuts are multiples of `whole` elements.
    """
    stop = call.sizes["N"] if stop is None else stop
    most = max(whole, call.limits.binding_bytes // ELEMENT_BYTES // whole * whole)
    for start in range(first, stop, most):
        count = min(most, stop - start)
        cut = {
            name: Operand(o.region, o.offset_bytes + start * each, count * each)
            for name, o, each in ((name, call.operands[name], call.element_bytes(name)) for name in names.split())
        }
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
    partials, total = call.operands["partials"], call.sizes["G"]
    for start, count, operands in pieces(call, "grad", 64 * PARTIAL_ELEMENTS):
        wide = vectors(count)
        g, first = ceil_div(count, PARTIAL_ELEMENTS), start // PARTIAL_ELEMENTS
        operands["partials"] = Operand(
            partials.region, partials.offset_bytes + first * ELEMENT_BYTES, g * ELEMENT_BYTES
        )
        values = {"count": count // 4 if wide else count, "partial_count": g}
        yield call.dispatch("grad partials", g, values, {"VECTORS": wide} | reducing(call), operands=operands)
    constants, more = {"VECTORS": False} | reducing(call), ()
    if call.options.half:
        constants["SCALED"], more = True, (state(),)
    values = {"count": 0, "partial_count": total}
    yield call.dispatch("partials norm", 1, values, constants, "grad_norm_total", more=more)


def adamw(call: Call, halves: Halves) -> Iterator[Dispatch]:
    """The step; where the range has weights with a half-precision copy, that is written with it."""
    options, param = call.options, call.operands["param"]
    constants: dict[str, object] = {"SCALED": True} if options.half else {"GUARD": True} if options.guard else {}
    common = (state(),) if constants else ()
    first = param.offset_bytes
    whole = (first, first + call.sizes["N"] * ELEMENT_BYTES, None)
    packed = PACKED.get(call.kernel.name)
    for low, high, piece in halves.cut(*whole[:2]) if param.region == PARAMS else [whole]:
        span = ((low - first) // ELEMENT_BYTES, (high - first) // ELEMENT_BYTES)
        for start, count, operands in pieces(call, "grad param" if packed else "grad param m v", 128, *span):
            wide = vectors(count)
            more, given = common, constants | {"VECTORS": wide}
            if piece:
                at = first + start * ELEMENT_BYTES
                half = piece.operand(at, at + count * ELEMENT_BYTES)
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
