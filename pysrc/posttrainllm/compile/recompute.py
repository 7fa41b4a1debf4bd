"""recompute: activation checkpointing (Chen et al. 2016, arXiv 1604.06174) as a change of a Graph that has its backward.

A block is the forward nodes whose result is addressed below it. What it gave to the forward after it is kept (its residual);
of the rest, what the backward needs is not: just before the first backward node that reads of it, the block's own nodes are
there again, as few as make it, with fresh Values, and the backward reads those. The same kernels on the same numbers in the same
order: every gradient has the bits it had.
"""

from __future__ import annotations

from collections.abc import Iterable

from .graph import Graph, Node, Value


def recompute(graph: Graph, forward: int, prefixes: Iterable[str]) -> int:
    """Make `graph`, whose first `forward` nodes are what comes before the backward, forget and recompute the blocks whose addresses
    begin with `prefixes`. Returns how many nodes were added."""
    before = len(graph.nodes)
    for prefix in prefixes:
        _block(graph, forward, prefix)
    return len(graph.nodes) - before


def _block(graph: Graph, forward: int, prefix: str) -> None:
    first, last = graph.nodes[:forward], graph.nodes[forward:]
    own = [node for node in first if node.written()[0].name.startswith(prefix)]
    members = {id(node) for node in own}
    kept = {value for node in first if id(node) not in members for value in node.values.values()}
    inner = _forgotten(own, {v for node in own for v in node.written() if v.region == "arena" and not v.keep} - kept)
    wanted = {value for node in last for value in node.read() if value in inner}
    again = _makers(own, wanted - _saved(own), inner)
    made = {value for node in again for value in node.written()}
    fresh = {value: Value(f"again({value.name})", value.shape, value.dtype) for value in made if value.region == "arena"}
    at = next((index for index, node in enumerate(last) if any(value in fresh for value in node.read())), None)
    if at is None:
        return
    for node in last[at:]:
        node.values = {name: fresh.get(value, value) for name, value in node.values.items()}
    clones = [
        Node(node.kernel, node.sizes, node.params, {name: fresh.get(value, value) for name, value in node.values.items()})
        for node in again
    ]
    graph.nodes[:] = [*first, *last[:at], *clones, *last[at:]]


def _forgotten(own: list[Node], inner: set[Value]) -> set[Value]:
    """Those of `inner` that can be made again: not by a node that changes in place what is kept, which must not run twice."""
    for node in own:
        changed = [node.arg(each.name) for each in node.kernel.args if each.role in ("accum", "inout")]
        if any(value not in inner for value in changed):
            inner = inner - set(node.written())
    return inner


def _saved(own: list[Node]) -> set[Value]:
    """By-products that a kernel saves for its backward: small, and no reason to run it again where its result is not needed."""
    return {node.arg(each.name) for node in own for each in node.kernel.args if each.role == "saved"}


def _makers(own: list[Node], wanted: set[Value], inner: set[Value]) -> list[Node]:
    """The nodes that make `wanted` from what is kept, in their order; a Value that is changed in place needs all who wrote it."""
    need, found = set(wanted), []
    for node in reversed(own):
        if any(value in need for value in node.written()):
            found.append(node)
            need.update(value for value in node.read() if value in inner)
    return found[::-1]
