"""differentiate: append every op's backward to a Graph, last op first.

A Value that no trainable parameter reaches gets no gradient. The two sides of a residual add share one gradient buffer,
into which layernorm's backward adds; where another reader still waits for that buffer, a fresh one is made instead.
Any subset of parameters may be trained: nothing is computed below the lowest of them, and what is frozen gets no gradient
(in a kernel that gives several, scratch in the arena).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ops import OPS
from .graph import Graph, Node, Value


class Builder:
    """What an op's gradient rule may do. It knows which Values need a gradient and which buffer holds each."""

    def __init__(self, graph: Graph, trainable: set[str], frozen_bytes: int = 0) -> None:
        self.graph, self._frozen_bytes = graph, frozen_bytes
        self._gradients: dict[Value, Value] = {}
        self._owners: dict[Value, set[Value]] = {}
        self._needed: set[Value] = set()
        for node in graph.nodes:
            reached = any(
                value in self._needed or (value.region == "params" and value.name in trainable) for value in node.read()
            )
            self._needed.update(
                value for value in node.read() if value.region == "params" and value.name in trainable
            )
            if reached:
                self._needed.update(node.written())

    def needs(self, value: Value) -> bool:
        """Whether any trainable parameter lies behind `value` (or is it)."""
        return value in self._needed

    def call(self, name: str, sizes: dict[str, int], params: tuple = (), **values: Value) -> dict[str, Value]:
        """Append a backward kernel; outputs not given are created. Returns Values by argument name."""
        about = values.get("x") or values.get("qkv") or values.get("logits") or values.get("dy") or values.get("dlogits")
        label = f"d({about.name})" if about else name
        return self.graph.call(name, sizes, params, out=label, **values).values

    def parameter_gradient(self, parameter: Value) -> Value:
        """The gradient of a parameter: its offset in the flat gradient region, less the frozen bytes before it there.

        A frozen one's is scratch: a kernel that gives several gradients is asked for all of them where one is needed.
        """
        if not self.needs(parameter):
            return Value(f"d({parameter.name})", parameter.shape)
        gradient = self._gradients.get(parameter)
        if gradient is None:
            offset = parameter.offset_bytes - self._frozen_bytes
            gradient = Value(f"d({parameter.name})", parameter.shape, "f32", "grads", offset)
            self._gradients[parameter] = gradient
        return gradient

    def gradient_of(self, value: Value) -> Value | None:
        """The buffer that holds the gradient of `value` so far."""
        return self._gradients.get(value)

    def add_gradient(self, value: Value, contribution: Value) -> None:
        """Add a contribution to the gradient of an activation; a second one costs an add kernel."""
        existing = self._gradients.get(value)
        if existing is not None:
            self._owners[existing].discard(value)
            node = self.graph.call(
                "add", {"N": value.nbytes // 4}, out=f"d({value.name})", a=existing, b=contribution
            )
            contribution = node.arg("y")
        self._gradients[value] = contribution
        self._owners.setdefault(contribution, set()).add(value)

    def accumulator(self, value: Value) -> tuple[Value, bool]:
        """A buffer for a kernel that can add its contribution itself: (buffer, whether to add).

        Where the gradient so far is shared with a Value still waiting to be differentiated, the buffer is fresh, and
        `settle` must be called after the kernel.
        """
        existing = self._gradients.get(value)
        if existing is not None and self._owners[existing] == {value}:
            return existing, True
        return Value(f"d({value.name})", value.shape), False

    def settle(self, value: Value, buffer: Value, accumulated: bool) -> None:
        """Register what a kernel wrote into a buffer from `accumulator`."""
        if not accumulated:
            self.add_gradient(value, buffer)

    def release(self, node: Node) -> None:
        """The node's outputs have been differentiated: their gradient buffers are free for in-place use."""
        for value in node.written():
            gradient = self._gradients.get(value)
            if gradient is not None and value.region != "params":
                self._owners[gradient].discard(value)


def differentiate(graph: Graph, loss: Value, dloss: Value, trainable: set[str], frozen_bytes: int = 0) -> Builder:
    """Append to `graph` the gradients of `loss` [2] (its first element) scaled by dloss [1].

    trainable holds parameter names; frozen_bytes of parameters stand before the first of them and have no place in the
    gradient region. Returns the Builder, which knows the gradient Value of every Value.
    """
    builder = Builder(graph, trainable, frozen_bytes)
    if not builder.needs(loss):
        return builder
    forward = list(graph.nodes)
    builder.add_gradient(loss, dloss)
    for group in _backward_order(forward):
        for node in group:
            op = OPS.get(node.kernel.name)
            written = node.written() if op else ()
            dy = next((dy for value in written if (dy := builder.gradient_of(value)) is not None), None)
            if dy is not None:
                op.gradient(builder, node, dy)
        for node in group:
            builder.release(node)
    return builder


def _backward_order(forward: list[Node]) -> Iterator[list[Node]]:
    """Last first; nodes that added to a Value in place come right after the node that made it.

    All of them read one dy, so their order is free, and in this one a linear writes dx and its adapters add to it.
    """
    later: dict[Value, list[Node]] = {}
    for node in reversed(forward):
        added_to = [node.arg(a.name) for a in node.kernel.args if a.role == "inout"]
        if added_to and node.kernel.name in OPS:
            later.setdefault(added_to[0], []).append(node)
        else:
            yield [node, *(each for value in node.written() for each in later.pop(value, ()))]
    yield from later.values()
