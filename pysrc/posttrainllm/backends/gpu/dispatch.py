"""A dispatch: one compute call with all that a host needs to prepare it; and the Call it is lowered from."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ...compile.graph import REGIONS
from ...compile.tape import Record
from ...dims import round_up
from ...errors import DeviceLimitError
from ...ops import Kernel
from ...ops.spec import WRITTEN
from . import shader
from .limits import Limits

SCRATCH = len(REGIONS)
"""The engine's own buffer, after the tape's regions: partial sums that live between two dispatches of one record."""

BANK = SCRATCH + 1
"""The first of the buffers that hold the arena's values (see banks.py)."""

STEMS = (
    "fill", "normal", "embedding", "layernorm", "linear", "attention", "gelu", "add", "unembed", "cross_entropy", "grad_norm", "adamw",
)  # fmt: skip


def stem_of(kernel: str) -> str:
    """The shader file of a kernel."""
    return next(stem for stem in STEMS if kernel == stem or kernel.startswith(f"{stem}_backward"))


@dataclass(frozen=True)
class Operand:
    """A range of a buffer: its number (a region's index, SCRATCH, or BANK + bank), offset and size in bytes."""

    region: int
    offset_bytes: int
    nbytes: int


@dataclass(frozen=True)
class Dispatch:
    """entry of the module (stem, kernel, constants, writable); bindings are (index, Operand, declared read_write)."""

    stem: str
    kernel: str
    entry: str
    constants: tuple[tuple[str, object], ...]
    bindings: tuple[tuple[int, Operand, bool], ...]
    uniforms: bytes
    groups: tuple[int, int, int]

    @property
    def writable(self) -> frozenset[int]:
        """Indices of the bindings declared read_write."""
        return frozenset(index for index, _, writes in self.bindings if writes)

    def source(self) -> str:
        """The WGSL of its module."""
        return shader.module(self.stem, self.kernel, self.constants, self.writable)


@dataclass(frozen=True)
class Call:
    """A record of the tape as lowering sees it: kernel, sizes, params by name, and the operand of each argument."""

    kernel: Kernel
    sizes: dict[str, int]
    params: dict[str, object]
    operands: dict[str, Operand]
    limits: Limits

    @classmethod
    def of(cls, record: Record, operands: dict[str, Operand], limits: Limits) -> Call:
        """From a decoded record and where its operands lie."""
        params = {name: value for (name, _), value in zip(record.kernel.params, record.params)}
        return cls(record.kernel, record.sizes, params, operands, limits)

    def dispatch(
        self, names: str, groups, values: dict, constants: dict | None = None, entry: str = "",
        scratch_bytes: int = 0, operands: dict[str, Operand] | None = None,
    ) -> Dispatch:  # fmt: skip
        """A dispatch of this kernel's section on the arguments in `names` (and scratch).

        groups: a count, spread over two dimensions where it must be, or (x, y, z).
        """
        given = tuple(sorted((constants or {}).items()))
        bound = self.operands | (operands or {})
        roles = {a.name: (index, a.role in WRITTEN) for index, a in enumerate(self.kernel.args)}
        used = [(roles[name][0], bound[name], roles[name][1], name) for name in names.split()]
        if scratch_bytes:
            used.append((shader.FIRST_SCRATCH, Operand(SCRATCH, 0, scratch_bytes), True, "scratch"))
        written = {operand.region for _, operand, writes, _ in used if writes}
        bindings = []
        for index, operand, _, name in used:
            self.limits.require_binding(f"{self.kernel.name}'s {name}", operand.nbytes)
            if operand.offset_bytes % self.limits.offset_alignment:
                raise DeviceLimitError(
                    "webgpu",
                    f"an operand starts at a multiple of {self.limits.offset_alignment} bytes",
                    f"{self.kernel.name}'s {name} starts at {operand.offset_bytes:,}",
                    "place it anew",
                )
            padded = Operand(operand.region, operand.offset_bytes, round_up(operand.nbytes, 16))
            bindings.append((index, padded, operand.region in written))
        stem = stem_of(self.kernel.name)
        writable = frozenset(index for index, _, writes in bindings if writes)
        layout = shader.fields(shader.module(stem, self.kernel.name, given, writable))
        words = b"".join(struct.pack("<f" if kind == "f32" else "<I", values[name]) for name, kind in layout)
        uniforms = words.ljust(round_up(len(words), 16), b"\0")
        shape = spread(groups, self.limits) if isinstance(groups, int) else groups
        if max(shape) > self.limits.groups:
            raise DeviceLimitError(
                "webgpu",
                f"a dispatch has at most {self.limits.groups:,} workgroups in a dimension",
                f"{self.kernel.name} needs {max(shape):,}",
                "choose a smaller batch",
            )
        return Dispatch(stem, self.kernel.name, entry or self.kernel.name, given, tuple(bindings), uniforms, shape)


def buffer_name(number: int) -> str:
    """A buffer in words."""
    return (*(f"region {region}" for region in REGIONS), "scratch")[number] if number < BANK else "activations"


def spread(count: int, limits: Limits) -> tuple[int, int, int]:
    """`count` workgroups or a few more, as (x, y, 1) within the limit of one dimension."""
    rows = -(-count // limits.groups)
    return (-(-count // rows), rows, 1)


def ceil_div(value: int, by: int) -> int:
    """value/by rounded up."""
    return -(-value // by)
