"""lower: a tape to dispatches. Each kernel has one function; which tile or how many lanes it takes is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ...compile.tape import Tape
from ...dims import ELEMENT_BYTES
from .attention_tiles import attention, attention_cached
from .banks import Banks, place
from .dispatch import BANK, HALVES, SCRATCH, Call, Dispatch, ceil_div
from .flat import THREADS, adamw, flat, grad_norm, guard, pieces, reducing, vectors
from .halves import PARAMS, storage
from .limits import Limits
from .lora import lora, lora_backward_hidden, lora_backward_input, lora_backward_weight
from .options import Options
from .parts import PACKED, Cuts
from .tables import cross_entropy, cross_entropy_backward, embedding, embedding_backward, lanes_of, product

ADAMW = ("adamw", *PACKED)
BLOCK_ROWS = 64  # of layernorm_backward's column sums; BLOCK in the shader


def _normal(call: Call) -> Iterator[Dispatch]:
    for first, count, operands in pieces(call, "x", 64):
        values = {"count": count, "deviation": call.params["std"], "stream": call.params["stream"], "first": first}
        yield call.dispatch("seed x", ceil_div(count, THREADS), values, operands=operands)


def _layernorm(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = lanes_of(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": wide, "LANES": lanes} | reducing(call)
    yield call.dispatch(
        "x weight bias y mean rstd",
        ceil_div(s["R"], THREADS // lanes),
        s | {"width": width, "share": 1 / s["C"]},
        constants,
    )


def _layernorm_backward_input(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = lanes_of(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": wide, "LANES": lanes} | reducing(call)
    values = s | {"width": width, "share": 1 / s["C"], "accumulate": call.params["accumulate"]}
    yield call.dispatch("dy x weight mean rstd dx", ceil_div(s["R"], THREADS // lanes), values, constants)


def _layernorm_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = lanes_of(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": wide, "LANES": lanes, "BLOCK": BLOCK_ROWS} | reducing(call)
    row_groups, blocks = ceil_div(s["R"], THREADS // lanes), ceil_div(s["R"], BLOCK_ROWS)
    values = s | {
        "width": width,
        "share": 1 / s["C"],
        "row_groups": row_groups,
        "blocks": blocks,
        "accumulate": call.params["accumulate"],
    }
    scratch = blocks * 2 * s["C"] * ELEMENT_BYTES
    groups = row_groups + blocks * ceil_div(width, 32)
    yield call.dispatch("dy x weight mean rstd dx", groups, values, constants, scratch_bytes=scratch)
    total = ceil_div(2 * width, 64)
    yield call.dispatch("dweight dbias", total, values, constants, "layernorm_backward_total", scratch_bytes=scratch)


def _dpo(call: Call) -> Iterator[Dispatch]:
    yield call.dispatch("losses reference beta margins loss", 1, call.sizes, reducing(call))


def _dpo_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    yield call.dispatch("margins beta dloss dlosses", ceil_div(2 * s["S"] * s["T"], THREADS), s)


LOWER: dict[str, Callable[[Call], Iterator[Dispatch]]] = {
    "fill": flat("x", lambda call: {"value": call.params["value"]}),
    "normal": _normal,
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "embedding_at": embedding,
    "layernorm": _layernorm,
    "layernorm_backward": _layernorm_backward,
    "linear": product("x weight bias", "y", "R", "O", "I"),
    "linear_backward_input": product("dy weight", "dx", "R", "I", "O"),
    "linear_backward_weight": product("x dy", "dweight dbias", "I", "O", "R"),
    "attention": attention,
    "attention_backward": attention,
    "attention_cached": attention_cached,
    "gelu": flat("x y"),
    "gelu_backward": flat("dy x dx"),
    "add": flat("a b y"),
    "blend": flat("factor given y"),
    "gelu_erf": flat("x y"),
    "gelu_erf_backward": flat("dy x dx"),
    "unembed": product("x wte", "logits", "R", "V", "C"),
    "unembed_backward_input": product("dlogits wte", "dx", "R", "C", "V"),
    "unembed_backward_weight": product("x dlogits", "dwte", "V", "C", "R"),
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "grad_norm": grad_norm,
    "lora": lora,
    "lora_backward_hidden": lora_backward_hidden,
    "lora_backward_input": lora_backward_input,
    "lora_backward_weight": lora_backward_weight,
    "layernorm_backward_input": _layernorm_backward_input,
    "dpo": _dpo,
    "dpo_backward": _dpo_backward,
    "cross_entropy_backward_rows": cross_entropy_backward,
}


@dataclass(frozen=True)
class Lowered:
    """A tape's dispatches in order, and where its activations lie.

    refresh writes HALVES anew from the f32 weights: to be run before the tape where they changed otherwise than by a tape
    with these halves (see upkeep.py). weights: "read", "stepped" (by AdamW, which writes the halves too) or "written". `cuts` are the
    regions' that it was lowered for, and `options` all that it was lowered with.
    """

    dispatches: list[Dispatch]
    banks: Banks
    refresh: list[Dispatch]
    weights: str
    options: Options = field(default_factory=Options)
    cuts: Cuts = field(default_factory=Cuts)

    def buffer_bytes(self) -> dict[int, int]:
        """Bytes needed of scratch, the halves and every bank, by buffer number."""
        need = {BANK + bank: nbytes for bank, nbytes in enumerate(self.banks.bank_bytes) if nbytes}
        if self.banks.halves.nbytes:
            need |= {buffer: nbytes for buffer, _, nbytes in self.options.cuts.runs(HALVES, 0, self.banks.halves.nbytes)}
        for dispatch in self.dispatches:
            for _, operand, _ in dispatch.bindings:
                if operand.region == SCRATCH:
                    need[SCRATCH] = max(need.get(SCRATCH, 0), operand.offset_bytes + operand.nbytes)
        return need


def lower(tape: Tape, given: Limits | Options) -> Lowered:
    """A tape for a device. Raises DeviceLimitError for what the device cannot hold or bind."""
    options = Options.of(given)
    banks, cuts = place(tape, options), options.cuts
    options = replace(options, cuts=banks.halves.cuts_beside(cuts))
    dispatches: list[Dispatch] = []
    norm, weights = None, "read"
    for step in banks.steps:
        call = Call.of(step.record, step.uses, storage(options, step.record), step.epilogue)
        if call.kernel.name in ADAMW:
            dispatches.extend(adamw(call, banks.halves))
            norm, weights = call.operands["norm"], "stepped" if weights == "read" else weights
            continue
        dispatches.extend(LOWER[call.kernel.name](call))
        if any(use.region == PARAMS for use in step.written()):
            weights = "written"
    if norm and (options.half or options.guard):
        dispatches.append(guard(options, norm))
    return Lowered(dispatches, banks, banks.halves.refresh(options), weights, options, cuts)
