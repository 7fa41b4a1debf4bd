"""lower: a tape to dispatches. Each kernel has one function; which tile or how many lanes it takes is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...compile.tape import Tape
from ...dims import ELEMENT_BYTES
from . import shader
from .attention_tiles import attention, attention_cached
from .banks import Banks, place
from .dispatch import BANK, HALVES, SCRATCH, Binding, Call, Dispatch, ceil_div
from .flat import PACKED, THREADS, adamw, flat, grad_norm, guard, reducing, state, vectors
from .fuse import GELU, NONE
from .halves import PARAMS, storage
from .limits import Limits
from .lora import lora, lora_backward_hidden, lora_backward_input, lora_backward_weight
from .options import Options
from .tiles import LAYOUTS, matmul_tile

ADAMW = ("adamw", *PACKED)
BLOCK_ROWS = 64  # of layernorm_backward's column sums; BLOCK in the shader


def _normal(call: Call) -> Iterator[Dispatch]:
    values = {"count": call.sizes["N"], "deviation": call.params["std"], "stream": call.params["stream"]}
    yield call.dispatch("seed x", ceil_div(call.sizes["N"], THREADS), values)


def _embedding(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    groups = ceil_div(s["B"] * s["T"] * width, THREADS)
    names = " ".join(argument.name for argument in call.kernel.args)
    yield call.dispatch(names, groups, s | {"width": width}, {"VECTORS": wide})


def _embedding_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = _lanes(width, 8, 64)
    groups = (s["V"] + s["T"]) * ceil_div(width, lanes)
    constants = {"VECTORS": wide, "WIDTH": lanes}
    yield call.dispatch("tokens dx dwte dwpe", groups, s | {"width": width}, constants)


def _lanes(elements: int, least: int, most: int) -> int:
    """A power of two of threads for a row of `elements`."""
    lanes = least
    while lanes < elements and lanes < most:
        lanes *= 2
    return lanes


def _layernorm(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = _lanes(ceil_div(width, 4), 32, THREADS)
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
    lanes = _lanes(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": wide, "LANES": lanes} | reducing(call)
    values = s | {"width": width, "share": 1 / s["C"], "accumulate": call.params["accumulate"]}
    yield call.dispatch("dy x weight mean rstd dx", ceil_div(s["R"], THREADS // lanes), values, constants)


def _layernorm_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    wide = vectors(s["C"])
    width = s["C"] // 4 if wide else s["C"]
    lanes = _lanes(ceil_div(width, 4), 32, THREADS)
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


CONTIGUOUS = {  # kernel to the letters along which its a, b and out lie
    "linear": "IOO",
    "linear_backward_input": "OOI",
    "linear_backward_weight": "IOO",
    "unembed": "CCV",
    "unembed_backward_input": "VCC",
    "unembed_backward_weight": "VCC",
}


def _vector_flags(call: Call) -> dict[str, bool]:
    letters = CONTIGUOUS[call.kernel.name]
    return {f"VECTORS_{which}": vectors(call.sizes[letter]) for which, letter in zip(("A", "B", "OUT"), letters)}


def _product(reads: str, writes: str, rows: str, columns: str, depth: str) -> Callable[[Call], Iterator[Dispatch]]:
    """out[rows,columns] = a·b over depth, the letters named; in chunks of depth where the result is small."""

    def lower(call: Call) -> Iterator[Dispatch]:
        s = call.sizes
        tile, chunk = matmul_tile(LAYOUTS[call.kernel.name], s[rows], s[columns], s[depth], call.options)
        chunks = ceil_div(s[depth], chunk)
        flags = _vector_flags(call)
        elements = s[rows] * s[columns] + ("dbias" in writes) * s[columns]
        whole = elements // (4 if flags["VECTORS_OUT"] else 1)
        constants = tile.constants() | flags | {"SPLIT": chunks > 1}
        more = _other(call)
        if more:
            constants["EPILOGUE"] = call.epilogue
        values = s | {"chunk": chunk, "chunks": chunks, "whole": whole}
        groups = (ceil_div(s[columns], tile.TILE_N), ceil_div(s[rows], tile.TILE_M), chunks)
        if chunks == 1:
            yield call.dispatch(f"{reads} {writes}", groups, values, constants, more=more)
            return
        scratch = chunks * elements * ELEMENT_BYTES
        products = " ".join(name for name in reads.split() if name != "bias")
        yield call.dispatch(products, groups, values, constants, scratch_bytes=scratch)
        last = f"{writes} bias" if "bias" in reads.split() else writes
        total = f"{call.kernel.name}_total"
        yield call.dispatch(last, ceil_div(whole, THREADS), values, constants, total, scratch_bytes=scratch, more=more)

    return lower


def _other(call: Call) -> tuple[Binding, ...]:
    """The further binding of a product that another record is fused to."""
    if call.epilogue == NONE:
        return ()
    return (Binding(shader.OTHER, call.operands["other"], call.epilogue == GELU, "other"),)


def _cross_entropy(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    lanes = _lanes(ceil_div(s["V"], 8), 32, THREADS)
    constants = {"LANES": lanes} | reducing(call)
    yield call.dispatch("logits targets losses lse", ceil_div(s["R"], THREADS // lanes), s, constants)
    yield call.dispatch("targets losses loss", 1, s, reducing(call), "cross_entropy_mean")


def _cross_entropy_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    more = (state(),) if call.half else ()
    groups = ceil_div(s["R"] * s["V"], THREADS)
    yield call.dispatch("logits targets lse loss dloss dlogits", groups, s, more=more)


def _cross_entropy_backward_rows(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    more = (state(),) if call.half else ()
    yield call.dispatch("logits targets lse dlosses dlogits", ceil_div(s["R"] * s["V"], THREADS), s, more=more)


def _dpo(call: Call) -> Iterator[Dispatch]:
    yield call.dispatch("losses reference beta margins loss", 1, call.sizes, reducing(call))


def _dpo_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    yield call.dispatch("margins beta dloss dlosses", ceil_div(2 * s["S"] * s["T"], THREADS), s)


LOWER: dict[str, Callable[[Call], Iterator[Dispatch]]] = {
    "fill": flat("x", lambda call: {"value": call.params["value"]}),
    "normal": _normal,
    "embedding": _embedding,
    "embedding_backward": _embedding_backward,
    "embedding_at": _embedding,
    "layernorm": _layernorm,
    "layernorm_backward": _layernorm_backward,
    "linear": _product("x weight bias", "y", "R", "O", "I"),
    "linear_backward_input": _product("dy weight", "dx", "R", "I", "O"),
    "linear_backward_weight": _product("x dy", "dweight dbias", "I", "O", "R"),
    "attention": attention,
    "attention_backward": attention,
    "attention_cached": attention_cached,
    "gelu": flat("x y"),
    "gelu_backward": flat("dy x dx"),
    "add": flat("a b y"),
    "blend": flat("factor given y"),
    "gelu_erf": flat("x y"),
    "gelu_erf_backward": flat("dy x dx"),
    "unembed": _product("x wte", "logits", "R", "V", "C"),
    "unembed_backward_input": _product("dlogits wte", "dx", "R", "C", "V"),
    "unembed_backward_weight": _product("x dlogits", "dwte", "V", "C", "R"),
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "grad_norm": grad_norm,
    "lora": lora,
    "lora_backward_hidden": lora_backward_hidden,
    "lora_backward_input": lora_backward_input,
    "lora_backward_weight": lora_backward_weight,
    "layernorm_backward_input": _layernorm_backward_input,
    "dpo": _dpo,
    "dpo_backward": _dpo_backward,
    "cross_entropy_backward_rows": _cross_entropy_backward_rows,
}


@dataclass(frozen=True)
class Lowered:
    """A tape's dispatches in order, and where its activations lie.

    refresh writes HALVES anew from the f32 weights: to be run before the tape where they changed otherwise than by a tape
    with these halves (see upkeep.py). weights: "read", "stepped" (by AdamW, which writes the halves too) or "written".
    """

    dispatches: list[Dispatch]
    banks: Banks
    refresh: list[Dispatch]
    weights: str

    def buffer_bytes(self) -> dict[int, int]:
        """Bytes needed of scratch, the halves and every bank, by buffer number."""
        need = {BANK + bank: nbytes for bank, nbytes in enumerate(self.banks.bank_bytes) if nbytes}
        if self.banks.halves.nbytes:
            need[HALVES] = self.banks.halves.nbytes
        for dispatch in self.dispatches:
            for _, operand, _ in dispatch.bindings:
                if operand.region == SCRATCH:
                    need[SCRATCH] = max(need.get(SCRATCH, 0), operand.nbytes)
        return need


def lower(tape: Tape, given: Limits | Options) -> Lowered:
    """A tape for a device. Raises DeviceLimitError for what the device cannot hold or bind."""
    options = Options.of(given)
    banks = place(tape, options)
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
    return Lowered(dispatches, banks, banks.halves.refresh(options), weights)
