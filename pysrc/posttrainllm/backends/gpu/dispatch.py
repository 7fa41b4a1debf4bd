"""A dispatch: one compute call with all that a host needs to prepare it; and the Call it is lowered from."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ...compile.graph import REGIONS
from ...compile.tape import Record
from ...dims import round_up
from ...errors import DeviceLimitError
from ...ops import Kernel
from ...ops.spec import WRITTEN
from . import shader
from .limits import Limits
from .options import HALF_ARGUMENTS, Options
from .parts import KIND_MASK, PART_SHIFT, Operand

SCRATCH = len(REGIONS)
"""The engine's own buffer, after the tape's regions: partial sums that live between two dispatches of one record."""

STATE = SCRATCH + 1
"""256 bytes that outlive a step: loss scale, good steps since it changed, halted (see guard.py)."""

HALVES = STATE + 1
"""The weights of products in half precision (see halves.py)."""

BANK = HALVES + 1
"""The first of the buffers that hold the arena's values (see banks.py)."""

STEMS = (
    "fill", "normal", "embedding", "layernorm", "linear", "attention", "gelu", "add", "unembed", "cross_entropy", "grad_norm", "adamw",
    "lora", "dpo", "blend", "gelu_erf", "adamw_bf16", "adamw_8bit",
)  # fmt: skip

VARIANTS = ("backward", "at", "cached")


def stem_of(kernel: str) -> str:
    """The shader file of a kernel."""
    return next(stem for stem in STEMS if kernel == stem or kernel.startswith(tuple(f"{stem}_{rest}" for rest in VARIANTS)))


@dataclass(eq=False)
class Span:
    """A value of the arena: its place on the tape, bytes on the device, first and last record, and its place there: an offset in a
    bank, or from the first byte of a region that lends it room. `near`: buffers of such a region that are touched beside it."""

    start: int
    tape_bytes: int
    nbytes: int
    first: int
    last: int
    beside: set[Span] = field(default_factory=set, repr=False)
    near: set[int] = field(default_factory=set, repr=False)
    bank: int = -1
    offset: int = 0
    lent: int = -1

    def operand(self, start: int = 0, nbytes: int | None = None) -> Operand:
        """Where it lies, or bytes of it from `start` on."""
        region = BANK + self.bank if self.lent < 0 else self.lent
        return Operand(region, self.offset + start, self.nbytes if nbytes is None else nbytes)


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
class Binding:
    """A storage binding that lowering asks for: its index in the shader, where it lies, whether the shader writes it."""

    index: int
    operand: Operand
    writes: bool
    name: str


def build(
    options: Options, stem: str, kernel: str, entry: str, bound: list[Binding], groups, values: dict, constants: dict,
) -> Dispatch:  # fmt: skip
    """A Dispatch of shaders/<stem>.wgsl's section `kernel`. groups: a count, spread over two dimensions, or (x, y, z).

    Raises DeviceLimitError for a binding or a count that the device does not take.
    """
    limits = options.limits
    given = tuple(sorted(constants.items()))
    places = [options.cuts.locate(b.operand) for b in bound]
    written = {place.region for b, place in zip(bound, places) if b.writes}
    bindings = []
    for each, operand in zip(bound, places):
        limits.require_binding(f"{kernel}'s {each.name}", operand.nbytes)
        if operand.offset_bytes % limits.offset_alignment:
            raise DeviceLimitError(
                "webgpu",
                f"an operand starts at a multiple of {limits.offset_alignment} bytes",
                f"{kernel}'s {each.name} starts at {operand.offset_bytes:,}",
                "place it anew",
            )
        padded = Operand(operand.region, operand.offset_bytes, round_up(operand.nbytes, 16))
        bindings.append((each.index, padded, operand.region in written))
    writable = frozenset(index for index, _, writes in bindings if writes)
    layout = shader.fields(shader.module(stem, kernel, given, writable))
    words = b"".join(struct.pack("<f" if kind == "f32" else "<I", values[name]) for name, kind in layout)
    uniforms = words.ljust(round_up(len(words), 16), b"\0")
    shape = spread(groups, limits) if isinstance(groups, int) else groups
    if max(shape) > limits.groups:
        raise DeviceLimitError(
            "webgpu",
            f"a dispatch has at most {limits.groups:,} workgroups in a dimension",
            f"{kernel} needs {max(shape):,}",
            "choose a smaller batch",
        )
    return Dispatch(stem, kernel, entry, given, tuple(bindings), uniforms, shape)


@dataclass(frozen=True)
class Call:
    """A record of the tape as lowering sees it: kernel, sizes, params by name, and the operand of each argument."""

    kernel: Kernel
    sizes: dict[str, int]
    params: dict[str, object]
    operands: dict[str, Operand]
    options: Options
    epilogue: int = 0

    @classmethod
    def of(cls, record: Record, operands: dict[str, Operand], given: Limits | Options, epilogue: int = 0) -> Call:
        """From a decoded record, where its operands lie, and what is fused to it (see fuse.py)."""
        params = {name: value for (name, _), value in zip(record.kernel.params, record.params)}
        return cls(record.kernel, record.sizes, params, operands, Options.of(given), epilogue)

    @property
    def limits(self) -> Limits:
        """The device's."""
        return self.options.limits

    @property
    def half(self) -> bool:
        """Whether its section gets the constant HALF."""
        return self.options.half and self.kernel.name in HALF_ARGUMENTS

    def element_bytes(self, argument: str) -> int:
        """Bytes of an element of an argument."""
        return self.options.element_bytes(self.kernel.name, argument)

    def dispatch(
        self, names: str, groups, values: dict, constants: dict | None = None, entry: str = "",
        scratch_bytes: int = 0, operands: dict[str, Operand] | None = None, more: tuple[Binding, ...] = (),
    ) -> Dispatch:  # fmt: skip
        """A dispatch of this kernel's section on the arguments in `names`, scratch and `more` (see `build`)."""
        places = self.operands | (operands or {})
        roles = {a.name: (index, a.role in WRITTEN) for index, a in enumerate(self.kernel.args)}
        bound = [Binding(roles[name][0], places[name], roles[name][1], name) for name in names.split()]
        if scratch_bytes:
            bound.append(Binding(shader.FIRST_SCRATCH, Operand(SCRATCH, 0, scratch_bytes), True, "scratch"))
        constants = (constants or {}) | ({"HALF": True} if self.half else {})
        name = self.kernel.name
        return build(self.options, stem_of(name), name, entry or name, [*bound, *more], groups, values, constants)


def buffer_name(number: int) -> str:
    """A buffer in words."""
    kind, part = number & KIND_MASK, number >> PART_SHIFT
    if kind >= BANK:
        return "activations"
    name = (*(f"region {region}" for region in REGIONS), "scratch", "state", "half-precision weights")[kind]
    return f"part {part} of {name}" if part else name


def spread(count: int, limits: Limits) -> tuple[int, int, int]:
    """`count` workgroups or a few more, as (x, y, 1) within the limit of one dimension."""
    rows = -(-count // limits.groups)
    return (-(-count // rows), rows, 1)


def ceil_div(value: int, by: int) -> int:
    """value/by rounded up."""
    return -(-value // by)
