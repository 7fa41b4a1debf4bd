"""What a kernel is: a record from which shape errors, bytes, costs and tests are derived.

A *kernel* is one entry of the tape. An *op* is a forward kernel with the rule that appends its backward kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..dims import ELEMENT_BYTES, product, shape_of
from ..errors import DeviceError

ROLES = ("in", "out", "accum", "inout", "saved")
WRITTEN = ("out", "accum", "inout", "saved")
READ = ("in", "accum", "inout")


@dataclass(frozen=True)
class Arg:
    """One array argument: its name, its dimensions in letters, its role and its dtype ("f32" or "i32").

    in: read. out: written whole. saved: written whole, kept for the backward. accum: added to. inout: read and written.
    over: what an output may take the very place of, for the kernel reads every element there before it writes it, and none later.
    """

    name: str
    dims: tuple[str, ...]
    role: str
    dtype: str = "f32"
    over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernel:
    """One record of the tape.

    run(sizes, params, *arrays) is the float64 judge: it fills the written arrays in place.
    flops(sizes) counts multiplies and adds; reduces names the letters summed over (for derived tolerances);
    tolerance is the k of k·eps·sqrt(n reduced)·max|reference|, two to four times what the CPU engine was measured to need.
    """

    name: str
    letters: tuple[str, ...]
    args: tuple[Arg, ...]
    run: Callable
    params: tuple[tuple[str, str], ...] = ()
    flops: Callable[[dict[str, int]], int] = field(default=lambda sizes: 0)
    reduces: tuple[str, ...] = ()
    tolerance: float = 2.0
    source: str = ""

    def shape(self, arg: Arg, sizes: dict[str, int]) -> tuple[int, ...]:
        """Integer shape of one argument at these sizes."""
        return shape_of(arg.dims, sizes)

    def bytes_moved(self, sizes: dict[str, int]) -> int:
        """Bytes read plus bytes written, each argument counted once per direction."""
        total = 0
        for arg in self.args:
            nbytes = product(self.shape(arg, sizes)) * ELEMENT_BYTES
            total += nbytes * ((arg.role in READ) + (arg.role in WRITTEN))
        return total

    def arg(self, name: str) -> Arg:
        """The argument of that name (KeyError when there is none)."""
        for arg in self.args:
            if arg.name == name:
                return arg
        raise KeyError(f"{self.name} has no argument {name}")


@dataclass(frozen=True)
class Op:
    """A forward kernel and the rule that differentiates it.

    gradient(builder, node, dy) appends backward nodes; dy is the gradient of the node's first output.
    """

    forward: Kernel
    gradient: Callable
    backward: tuple[Kernel, ...] = ()


def arg(text: str) -> Arg:
    """``arg("in x [R,C]")``, ``arg("in tokens [B,T] i32")`` or ``arg("out y [N] over a b")``: the short way to write an Arg."""
    role, name, rest = text.split(" ", 2)
    dims, _, more = rest.partition("]")
    letters = tuple(part.strip() for part in dims.lstrip("[").split(",") if part.strip())
    dtype, _, over = f"{more} ".partition(" over ")
    return Arg(name, letters, role, dtype.strip() or "f32", tuple(over.split()))


def args(*texts: str) -> tuple[Arg, ...]:
    """Several arguments at once, in kernel order."""
    return tuple(arg(text) for text in texts)


def require_positions(name: str, position, sizes: dict[str, int]) -> int:
    """The number in `position` [1]; DeviceError where T rows from there on leave the P positions there are."""
    first = int(position[0])
    if not 0 <= first <= sizes["P"] - sizes["T"]:
        raise DeviceError(
            name,
            f"T = {sizes['T']} rows stand at positions 0 to {sizes['P'] - 1}",
            f"position {first} came for the first",
            "begin the window anew",
        )
    return first
