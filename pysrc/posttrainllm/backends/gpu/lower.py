"""lower: a tape to dispatches. Each kernel has one function; which tile or how many lanes it takes is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...compile.tape import Tape
from ...dims import ELEMENT_BYTES, PARTIAL_ELEMENTS
from .attention_tiles import attention
from . import shader
from .banks import Banks, place
from .dispatch import BANK, HALVES, SCRATCH, Binding, Call, Dispatch, Operand, ceil_div
from .fuse import GELU, NONE
from .limits import Limits
from .options import Options
from .tiles import matmul_tile

THREADS = 256
BLOCK_ROWS = 64  # of layernorm_backward's column sums; BLOCK in the shader


def _vectors(*counts: int) -> bool:
    return all(count % 4 == 0 for count in counts)


def _pieces(call: Call, names: str, whole: int) -> Iterator[tuple[int, dict[str, Operand]]]:
    """Flat arguments cut where a binding must end: (elements, operands). Cuts are multiples of `whole` elements."""
    total = call.sizes["N"]
    most = max(whole, call.limits.binding_bytes // ELEMENT_BYTES // whole * whole)
    for start in range(0, total, most):
        count = min(most, total - start)
        cut = {
            name: Operand(o.region, o.offset_bytes + start * each, count * each)
            for name, o, each in ((name, call.operands[name], call.element_bytes(name)) for name in names.split())
        }
        yield count, cut


def _flat(names: str, values: Callable[[Call], dict] = lambda call: {}) -> Callable[[Call], Iterator[Dispatch]]:
    """Elementwise kernels: every [N] argument in step."""

    def lower(call: Call) -> Iterator[Dispatch]:
        flat = " ".join(a.name for a in call.kernel.args if a.dims == ("N",))
        for count, operands in _pieces(call, flat, 128):
            vectors = _vectors(count)
            elements = count // 4 if vectors else count
            groups = ceil_div(elements, THREADS)
            yield call.dispatch(
                names, groups, {"count": elements} | values(call), {"VECTORS": vectors}, operands=operands
            )

    return lower


def _normal(call: Call) -> Iterator[Dispatch]:
    values = {"count": call.sizes["N"], "deviation": call.params["std"], "stream": call.params["stream"]}
    yield call.dispatch("seed x", ceil_div(call.sizes["N"], THREADS), values)


def _embedding(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    vectors = _vectors(s["C"])
    width = s["C"] // 4 if vectors else s["C"]
    groups = ceil_div(s["B"] * s["T"] * width, THREADS)
    yield call.dispatch("tokens wte wpe x", groups, s | {"width": width}, {"VECTORS": vectors})


def _embedding_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    vectors = _vectors(s["C"])
    width = s["C"] // 4 if vectors else s["C"]
    lanes = _lanes(width, 8, 64)
    groups = (s["V"] + s["T"]) * ceil_div(width, lanes)
    constants = {"VECTORS": vectors, "WIDTH": lanes}
    yield call.dispatch("tokens dx dwte dwpe", groups, s | {"width": width}, constants)


def _lanes(elements: int, least: int, most: int) -> int:
    """A power of two of threads for a row of `elements`."""
    lanes = least
    while lanes < elements and lanes < most:
        lanes *= 2
    return lanes


def _layernorm(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    vectors = _vectors(s["C"])
    width = s["C"] // 4 if vectors else s["C"]
    lanes = _lanes(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": vectors, "LANES": lanes}
    yield call.dispatch(
        "x weight bias y mean rstd",
        ceil_div(s["R"], THREADS // lanes),
        s | {"width": width, "share": 1 / s["C"]},
        constants,
    )


def _layernorm_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    vectors = _vectors(s["C"])
    width = s["C"] // 4 if vectors else s["C"]
    lanes = _lanes(ceil_div(width, 4), 32, THREADS)
    constants = {"VECTORS": vectors, "LANES": lanes, "BLOCK": BLOCK_ROWS}
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
    return {f"VECTORS_{which}": _vectors(call.sizes[letter]) for which, letter in zip(("A", "B", "OUT"), letters)}


def _product(reads: str, writes: str, rows: str, columns: str, depth: str) -> Callable[[Call], Iterator[Dispatch]]:
    """out[rows,columns] = a·b over depth, the letters named; in chunks of depth where the result is small."""

    def lower(call: Call) -> Iterator[Dispatch]:
        s = call.sizes
        tile, chunk = matmul_tile(s[rows], s[columns], s[depth], call.limits)
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
    constants = {"LANES": lanes}
    yield call.dispatch("logits targets losses lse", ceil_div(s["R"], THREADS // lanes), s, constants)
    yield call.dispatch("targets losses loss", 1, s, {}, "cross_entropy_mean")


def _cross_entropy_backward(call: Call) -> Iterator[Dispatch]:
    s = call.sizes
    yield call.dispatch("logits targets lse loss dloss dlogits", ceil_div(s["R"] * s["V"], THREADS), s)


def _grad_norm(call: Call) -> Iterator[Dispatch]:
    partials, total = call.operands["partials"], call.sizes["G"]
    first = 0
    for count, operands in _pieces(call, "grad", 64 * PARTIAL_ELEMENTS):
        vectors = _vectors(count)
        g = ceil_div(count, PARTIAL_ELEMENTS)
        operands["partials"] = Operand(
            partials.region, partials.offset_bytes + first * ELEMENT_BYTES, g * ELEMENT_BYTES
        )
        values = {"count": count // 4 if vectors else count, "partial_count": g}
        yield call.dispatch("grad partials", g, values, {"VECTORS": vectors}, operands=operands)
        first += g
    yield call.dispatch("partials norm", 1, {"count": 0, "partial_count": total}, {"VECTORS": False}, "grad_norm_total")


LOWER: dict[str, Callable[[Call], Iterator[Dispatch]]] = {
    "fill": _flat("x", lambda call: {"value": call.params["value"]}),
    "normal": _normal,
    "embedding": _embedding,
    "embedding_backward": _embedding_backward,
    "layernorm": _layernorm,
    "layernorm_backward": _layernorm_backward,
    "linear": _product("x weight bias", "y", "R", "O", "I"),
    "linear_backward_input": _product("dy weight", "dx", "R", "I", "O"),
    "linear_backward_weight": _product("x dy", "dweight dbias", "I", "O", "R"),
    "attention": attention,
    "attention_backward": attention,
    "gelu": _flat("x y"),
    "gelu_backward": _flat("dy x dx"),
    "add": _flat("a b y"),
    "unembed": _product("x wte", "logits", "R", "V", "C"),
    "unembed_backward_input": _product("dlogits wte", "dx", "R", "C", "V"),
    "unembed_backward_weight": _product("x dlogits", "dwte", "V", "C", "R"),
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "grad_norm": _grad_norm,
    "adamw": _flat("grad norm recipe param m v", lambda call: {"decayed": call.params["decayed"]}),
}


@dataclass(frozen=True)
class Lowered:
    """A tape's dispatches in order, and where its activations lie."""

    dispatches: list[Dispatch]
    banks: Banks

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
    for step in banks.steps:
        call = Call.of(step.record, step.uses, options, step.epilogue)
        dispatches.extend(LOWER[call.kernel.name](call))
    return Lowered(dispatches, banks)
