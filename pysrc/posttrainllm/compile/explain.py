"""explain: what a graph, a plan or a tape says, as tables for a person.

A Table is plain data, so a terminal, a page and a test can each show it in their way; `text` is the plain one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .arena import Plan
from .graph import REGIONS, Graph, Node, Value
from .tape import RECORD_BYTES, Tape, decode


@dataclass(frozen=True)
class Table:
    """A title, column names, rows of text or numbers, and sentences below. Numbers are shown with thousands separators."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict:
        """Plain JSON: {"title", "columns", "rows", "notes"}."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "notes": self.notes}


def text(table: Table) -> str:
    """The table in aligned columns: numbers to the right, words to the left."""
    shown = [[_cell(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *shown, strict=True)]
    right = [
        bool(table.rows) and all(isinstance(row[i], (int, float)) for row in table.rows) for i in range(len(widths))
    ]

    def line(cells: Iterable[str]) -> str:
        fitted = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return "  ".join(fitted).rstrip()

    lines = [table.title, "", line(table.columns), line("-" * width for width in widths), *map(line, shown)]
    return "\n".join([*lines, "", *table.notes, ""]) if table.notes else "\n".join([*lines, ""])


def explain_graph(graph: Graph) -> list[Table]:
    """Every node: its kernel, what it writes, shapes of what it reads, sizes, flops; and totals by kernel."""
    rows = tuple(
        (
            index,
            node.kernel.name,
            node.written()[0].name,
            _shapes(node),
            _sizes(node.sizes),
            node.kernel.flops(node.sizes),
        )
        for index, node in enumerate(graph.nodes)
    )
    listing = Table(f"Graph: {len(rows)} nodes", ("node", "kernel", "writes", "shapes", "sizes", "flops"), rows)
    return [listing, _by_kernel(graph)]


def explain_plan(plan: Plan) -> list[Table]:
    """Every value of the arena: its bytes, address and the nodes between which it lives; and bytes by region."""
    rows = tuple(
        (span.value.name, _shape(span.value), span.value.nbytes, span.value.offset_bytes, span.first, span.last)
        for span in plan.arena
    )
    sum_bytes, arena_bytes = sum(span.value.nbytes for span in plan.arena), plan.region_bytes["arena"]
    notes = (
        f"{sum_bytes:,} bytes of values share {arena_bytes:,} bytes of arena; "
        f"at most {_peak_bytes(plan):,} are alive at once.",
    )
    arena = Table(
        f"Plan: {len(rows)} values in the arena",
        ("value", "shape", "bytes", "offset", "first node", "last node"),
        rows,
        notes,
    )
    regions = tuple((region, plan.region_bytes[region]) for region in REGIONS if plan.region_bytes[region])
    total = (f"{plan.total_bytes():,} bytes in all regions.",)
    return [arena, Table("Bytes by region", ("region", "bytes"), regions, total)]


def explain_tape(tape: Tape) -> list[Table]:
    """Every record as an engine reads it: kernel, sizes, params, and each operand as region+offset."""
    rows = tuple(
        (
            index,
            entry.kernel.name,
            tape.labels[index],
            _sizes(entry.sizes),
            " ".join(
                f"{name}={_cell(value)}" for (name, _), value in zip(entry.kernel.params, entry.params, strict=True)
            ),
            " ".join(
                f"{argument.name}={region}+{offset}"
                for argument, (region, offset) in zip(entry.kernel.args, entry.operands, strict=True)
            ),
        )
        for index, entry in enumerate(decode(tape))
    )
    notes = (f"{len(rows)} records of {RECORD_BYTES} bytes: {len(tape.data):,} bytes, replayed in one call.",)
    return [
        Table(f"Tape: {len(rows)} records", ("record", "kernel", "writes", "sizes", "params", "operands"), rows, notes)
    ]


def _by_kernel(graph: Graph) -> Table:
    totals: dict[str, list[int]] = {}
    for node in graph.nodes:
        total = totals.setdefault(node.kernel.name, [0, 0, 0])
        total[0] += 1
        total[1] += node.kernel.flops(node.sizes)
        total[2] += node.kernel.bytes_moved(node.sizes)
    flops = graph.flops()
    rows = tuple(
        (name, count, own, f"{100 * own / max(1, flops):.1f} %", moved)
        for name, (count, own, moved) in sorted(totals.items(), key=lambda item: -item[1][1])
    )
    return Table("By kernel", ("kernel", "calls", "flops", "share", "bytes moved"), rows, (f"{flops:,} flops in all.",))


def _peak_bytes(plan: Plan) -> int:
    changes: dict[int, int] = {}
    for span in plan.arena:
        changes[span.first] = changes.get(span.first, 0) + span.value.nbytes
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.value.nbytes
    alive = peak = 0
    for node in sorted(changes):
        alive += changes[node]
        peak = max(peak, alive)
    return peak


def _shapes(node: Node) -> str:
    reads = " ".join(_shape(value) for value in node.read())
    return f"{reads} -> {_shape(node.written()[0])}"


def _shape(value: Value) -> str:
    return "[" + ",".join(map(str, value.shape)) + "]"


def _sizes(sizes: dict[str, int]) -> str:
    return " ".join(f"{letter}={size}" for letter, size in sizes.items())


def _cell(value) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
