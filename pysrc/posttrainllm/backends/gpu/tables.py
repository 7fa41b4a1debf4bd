"""Lowering of what reads or writes the vocabulary's table and the logits: by pieces where one binding cannot hold all of it.

A table [V,C] lies in pieces of ROWS rows or a multiple; logits [R,V] are taken by as many rows as a binding holds. A piece of the
vocabulary is so many rows of the table, and as many columns of the logits, which are bound from the piece's first column on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...dims import ELEMENT_BYTES, round_up
from . import shader
from .dispatch import Binding, Call, Dispatch, ceil_div
from .flat import THREADS, reducing, state, vectors
from .fuse import GELU, NONE
from .parts import ROWS, TABLES, Operand
from .tiles import LAYOUTS, matmul_tile


@dataclass(frozen=True)
class Piece:
    """Of a kernel's work: the sizes and operands that are not the record's."""

    sizes: dict[str, int] = field(default_factory=dict)
    operands: dict[str, Operand] = field(default_factory=dict)


def _part(operand: Operand, start: int, nbytes: int) -> Operand:
    return Operand(operand.region, operand.offset_bytes + start, nbytes)


def vocabulary(call: Call) -> Iterator[tuple[int, int, Operand]]:
    """(first row, rows, operand) of each piece of a kernel's table."""
    name = next(each.name for each in call.kernel.args if each.name in TABLES)
    table, line = call.operands[name], call.sizes["C"] * call.element_bytes(name)
    marks = [0, *(at // line for at in call.options.cuts.inside(table)), call.sizes["V"]]
    most = max(ROWS, call.limits.binding_bytes // line // ROWS * ROWS)
    for low, high in zip(marks, marks[1:]):
        for first in range(low, high, most):
            rows = min(most, high - first)
            yield first, rows, _part(table, first * line, rows * line)


def row_blocks(call: Call, names: str) -> Iterator[tuple[int, int, dict[str, Operand]]]:
    """(first row, rows, operands) of as many rows as a binding holds; `names` are the arguments that have lines of R."""
    lines = {}
    for argument in call.kernel.args:
        if argument.name in names.split():
            width = call.sizes[argument.dims[1]] if len(argument.dims) > 1 else 1
            lines[argument.name] = width * call.element_bytes(argument.name)
    most = max(ROWS, call.limits.binding_bytes // max(lines.values()) // ROWS * ROWS)
    for first in range(0, call.sizes["R"], most):
        rows = min(most, call.sizes["R"] - first)
        yield first, rows, {name: _part(call.operands[name], first * line, rows * line) for name, line in lines.items()}


# Embedding


def _width(call: Call) -> tuple[bool, int]:
    wide = vectors(call.sizes["C"])
    return wide, call.sizes["C"] // 4 if wide else call.sizes["C"]


def embedding(call: Call) -> Iterator[Dispatch]:
    """Each piece writes the rows whose token it has."""
    wide, width = _width(call)
    groups = ceil_div(call.sizes["B"] * call.sizes["T"] * width, THREADS)
    names = " ".join(argument.name for argument in call.kernel.args)
    for first, rows, table in vocabulary(call):
        values = call.sizes | {"width": width, "V": rows, "first": first}
        yield call.dispatch(names, groups, values, {"VECTORS": wide}, operands={"wte": table})


def embedding_backward(call: Call) -> Iterator[Dispatch]:
    """Rows of dwte by pieces; the first brings those of dwpe."""
    wide, width = _width(call)
    lanes = lanes_of(width, 8, 64)
    constants = {"VECTORS": wide, "WIDTH": lanes}
    for first, rows, table in vocabulary(call):
        positions = 0 if first else call.sizes["T"]
        values = call.sizes | {"width": width, "V": rows, "first": first, "positions": positions}
        groups = (rows + positions) * ceil_div(width, lanes)
        yield call.dispatch("tokens dx dwte dwpe", groups, values, constants, operands={"dwte": table})


def lanes_of(elements: int, least: int, most: int) -> int:
    """A power of two of threads for a row of `elements`."""
    lanes = least
    while lanes < elements and lanes < most:
        lanes *= 2
    return lanes


# Products

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


def product(reads: str, writes: str, rows: str, columns: str, depth: str) -> Callable[[Call], Iterator[Dispatch]]:
    """out[rows,columns] = a·b over depth, the letters named; in chunks of depth where the result is small. The unembedding's by
    pieces of rows and of the vocabulary: those along the depth are further chunks of the same sums."""

    def lower(call: Call) -> Iterator[Dispatch]:
        pieces = list(_unembed_pieces(call)) if "V" in call.sizes else [(0, 0, Piece())]
        results: dict[tuple, list[Piece]] = {}
        for row, token, piece in pieces:
            results.setdefault((row if depth != "R" else 0, token if depth != "V" else 0), []).append(piece)
        for summed in results.values():
            yield from _product(call, summed, (reads, writes), (rows, columns, depth))

    return lower


def _unembed_pieces(call: Call) -> Iterator[tuple[int, int, Piece]]:
    """(first row, first token, piece) of each that the device can bind."""
    table = next(each.name for each in call.kernel.args if each.name in TABLES)
    logits = "logits" if call.kernel.name == "unembed" else "dlogits"
    along_rows = " ".join(name for name in ("x", "dx", logits) if name in call.operands)
    each, tokens = call.element_bytes(logits), list(vocabulary(call))
    for row, rows, operands in row_blocks(call, along_rows):
        whole = operands[logits]
        for first, count, place in tokens:
            columns = _part(whole, first * each, whole.nbytes - first * each)
            yield row, first, Piece({"R": rows, "V": count}, operands | {logits: columns, table: place})


def _product(call: Call, summed: list[Piece], names: tuple[str, str], letters: tuple[str, str, str]) -> Iterator[Dispatch]:
    """One result, whose sums are cut into chunks, and into the pieces of them that `summed` has."""
    (reads, writes), (rows, columns, depth), s = names, letters, call.sizes
    tile, chunk = matmul_tile(LAYOUTS[call.kernel.name], s[rows], s[columns], s[depth], call.options)
    flags, more = _vector_flags(call), _other(call)
    all_sizes = [s | piece.sizes for piece in summed]
    own = all_sizes[0]
    elements = own[rows] * own[columns] + ("dbias" in writes) * own[columns]
    most = max(1, call.limits.binding_bytes // (elements * ELEMENT_BYTES))
    chunk = max(chunk, round_up(ceil_div(s[depth], most), tile.TILE_K))  # scratch is one binding
    steps = [min(chunk, round_up(sizes[depth], tile.TILE_K)) for sizes in all_sizes]
    counts = [ceil_div(sizes[depth], step) for sizes, step in zip(all_sizes, steps)]
    chunks = sum(counts)
    if depth == "R" and len(summed) > 1 and chunks > most:  # too much for scratch: each adds to what is there
        for piece in summed:
            yield from _product(call, [piece], names, letters)
        return
    constants = tile.constants() | flags | {"SPLIT": chunks > 1}
    if more:
        constants["EPILOGUE"] = call.epilogue
    whole = elements // (4 if flags["VECTORS_OUT"] else 1)
    shared = {"chunks": chunks, "whole": whole, "line": s.get("V", 0)}
    tiles = ceil_div(own[columns], tile.TILE_N), ceil_div(own[rows], tile.TILE_M)
    scratch = chunks * elements * ELEMENT_BYTES if chunks > 1 else 0
    products = " ".join(name for name in reads.split() if name != "bias") if scratch else f"{reads} {writes}"
    values: dict[str, int] = {}
    for index, (sizes, step, count) in enumerate(zip(all_sizes, steps, counts)):
        values = sizes | shared | {"chunk": step, "first_chunk": sum(counts[:index])}
        yield call.dispatch(
            products, (*tiles, count), values, constants, scratch_bytes=scratch, operands=summed[index].operands,
            more=() if scratch else more,
        )  # fmt: skip
    if scratch:
        last = f"{writes} bias" if "bias" in reads.split() else writes
        total = f"{call.kernel.name}_total"
        yield call.dispatch(
            last, ceil_div(whole, THREADS), values, constants, total, scratch_bytes=scratch, operands=summed[0].operands, more=more,
        )  # fmt: skip


def _other(call: Call) -> tuple[Binding, ...]:
    """The further binding of a product that another record is fused to."""
    if call.epilogue == NONE:
        return ()
    return (Binding(shader.OTHER, call.operands["other"], call.epilogue == GELU, "other"),)


# Loss


def cross_entropy(call: Call) -> Iterator[Dispatch]:
    """Losses of rows, then their mean."""
    lanes = lanes_of(ceil_div(call.sizes["V"], 8), 32, THREADS)
    constants = {"LANES": lanes} | reducing(call)
    for _, rows, operands in row_blocks(call, "logits targets losses lse"):
        groups = ceil_div(rows, THREADS // lanes)
        yield call.dispatch("logits targets losses lse", groups, call.sizes | {"R": rows}, constants, operands=operands)
    yield call.dispatch("targets losses loss", 1, call.sizes, reducing(call), "cross_entropy_mean")


def cross_entropy_backward(call: Call) -> Iterator[Dispatch]:
    """dlogits, of either kind of loss."""
    more = (state(),) if call.half else ()
    names = " ".join(argument.name for argument in call.kernel.args)
    for _, rows, operands in row_blocks(call, "logits targets lse dlosses dlogits"):
        groups = ceil_div(rows * call.sizes["V"], THREADS)
        yield call.dispatch(names, groups, call.sizes | {"R": rows}, more=more, operands=operands)
