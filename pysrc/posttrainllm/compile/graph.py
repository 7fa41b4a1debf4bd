"""The Graph: values (arrays with a name and a shape) and nodes (kernel calls on them), in the order they run."""

from __future__ import annotations

from collections.abc import Iterator

from ..dims import ELEMENT_BYTES, product, resolve
from ..errors import ShapeError
from ..ops import Kernel, kernel
from ..ops.spec import READ, WRITTEN

REGIONS = ("params", "grads", "m", "v", "arena", "inputs", "slots", "metrics", "cache")
ARENA = REGIONS.index("arena")


class Value:
    """One array: its address in words (`blocks.0.ln_1`), shape, dtype, and where it lives.

    region "arena" values get their offset_bytes from place(); all others are given one. `keep` holds an arena value
    to the end of the tape, so that it can be read back afterwards.
    """

    __slots__ = ("name", "shape", "dtype", "region", "offset_bytes", "keep")

    def __init__(self, name, shape, dtype="f32", region="arena", offset_bytes=None, keep=False):
        self.name, self.shape, self.dtype = name, tuple(shape), dtype
        self.region, self.offset_bytes, self.keep = region, offset_bytes, keep

    @property
    def nbytes(self) -> int:
        """Size in bytes (every dtype here is four bytes wide)."""
        return product(self.shape) * ELEMENT_BYTES

    def __repr__(self) -> str:
        return f"{self.name}{list(self.shape)}"


class Node:
    """One kernel call: sizes by letter, params in kernel order, a Value for every argument by name."""

    __slots__ = ("kernel", "sizes", "params", "values")

    def __init__(self, made_of: Kernel, sizes: dict[str, int], params: tuple, values: dict[str, Value]):
        self.kernel, self.sizes, self.params, self.values = made_of, sizes, params, values

    def arg(self, name: str) -> Value:
        """The Value bound to an argument (KeyError when the kernel has none of that name)."""
        return self.values[name]

    def written(self) -> list[Value]:
        """Values this node writes, in argument order."""
        return [self.values[a.name] for a in self.kernel.args if a.role in WRITTEN]

    def read(self) -> list[Value]:
        """Values this node reads, in argument order."""
        return [self.values[a.name] for a in self.kernel.args if a.role in READ]


class Graph:
    """Nodes in running order. `call` is the only way to add one, and checks every shape."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def call(self, name: str, sizes: dict[str, int], params: tuple = (), *, out: str = "", **values: Value) -> Node:
        """Append a kernel call. Arguments not given are created in the arena, named after `out`.

        The first created output takes the name `out`; later ones are `out.argument`. Raises ShapeError when a given
        Value does not have the shape that the kernel's letters say at these sizes.
        """
        made_of = kernel(name)
        sizes = {letter: resolve(letter, sizes) for letter in made_of.letters}
        bound: dict[str, Value] = {}
        first = True
        for argument in made_of.args:
            shape = made_of.shape(argument, sizes)
            value = values.pop(argument.name, None)
            if value is None:
                label = (out or name) if first else f"{out or name}.{argument.name}"
                if argument.dims == ("N",) and bound:
                    shape = next(iter(bound.values())).shape  # elementwise: the result keeps its input's shape
                value = Value(label, shape, argument.dtype)
                first = False
            elif not _fits(value, shape, argument.dims):
                raise ShapeError(
                    f"{name}: argument {argument.name} must be {list(shape)} ({', '.join(argument.dims)}); "
                    f"{value.name} is {list(value.shape)}. Check the sizes given to the model."
                )
            bound[argument.name] = value
        if values:
            raise ShapeError(f"{name}: it has no argument named {', '.join(values)}; it takes {', '.join(bound)}.")
        node = Node(made_of, sizes, tuple(params), bound)
        self.nodes.append(node)
        return node

    def values(self) -> Iterator[Value]:
        """Every Value once, in order of first use."""
        seen: set[int] = set()
        for node in self.nodes:
            for value in node.values.values():
                if id(value) not in seen:
                    seen.add(id(value))
                    yield value

    def flops(self) -> int:
        """Multiplies and adds of the whole graph."""
        return sum(node.kernel.flops(node.sizes) for node in self.nodes)


_FLAT = (("N",), ("R",), ("2S", "T"))
"""Dimensions that are a reading of the same numbers: rows of a batch are [R], [B,T] or [2S,T]."""


def _fits(value: Value, shape: tuple[int, ...], dims: tuple[str, ...]) -> bool:
    return value.shape == shape or (dims in _FLAT and product(value.shape) == product(shape))
