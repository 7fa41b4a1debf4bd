"""What a probe can measure in a tape: products and attention, each with the tiles that may be the fastest, as JSON choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log2

from ...compile import Graph, Value, place, record
from ...compile.tape import Tape, decode
from ...dims import product, round_up
from ...ops import kernel
from . import attention_tiles as attention
from .dispatch import ceil_div
from .options import Options
from .tiles import (
    LAYOUTS,
    LEAST_CHUNK,
    MIDDLE,
    MOST_CHUNKS,
    SMALL,
    TENSOR_SMALL,
    MatmulTile,
    TensorTile,
    as_choice,
    key_of,
    matmul_tile,
    of_choice,
    units_key,
)

PLAIN = (
    MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 128, 16, 8, 8), MatmulTile(128, 64, 16, 8, 8), MIDDLE, SMALL,
    MatmulTile(32, 32, 32, 4, 4),
)  # fmt: skip
HALF = (MatmulTile(128, 128, 32, 16, 8, True, True), MatmulTile(128, 128, 32, 8, 8, True, True))
TENSOR = (TensorTile(4, 4, 2, 4, 32), TensorTile(4, 4, 2, 2, 32), TensorTile(2, 2, 2, 2, 64), TENSOR_SMALL)
"""By promise for a large result, as an H200 has them."""
ENOUGH_THREADS, ENOUGH_UNITS = 1 << 16, 264
"""A sum is cut until there are so many threads; with matrix units so many workgroups."""
MOST_SCRATCH_BYTES = 128 << 20
KERNELS = {"NN": ("linear", "ROI"), "NT": ("linear_backward_input", "RIO"), "TN": ("linear_backward_weight", "IOR")}
"""Layout to the kernel that is timed for it, and its letters for rows, columns and depth."""
LETTERS = {
    "linear": "ROI", "linear_backward_input": "RIO", "linear_backward_weight": "IOR",
    "unembed": "RVC", "unembed_backward_input": "RCV", "unembed_backward_weight": "VCR",
}  # fmt: skip
CHECKED = (136, 136, 264)
"""Rows, columns and depth of the product that a tile is checked on: no multiple of any tile."""
ATTENTION_BY_PRODUCT = 4.0
"""About how much longer attention takes for its arithmetic than a product for its own."""
SHARED = 2.0
"""What is found for a product is taken over by others of its layout within this factor of its result's size and its depth."""


@dataclass(frozen=True)
class Product:
    """A matmul of a tape."""

    layout: str
    rows: int
    columns: int
    depth: int

    @property
    def shape(self) -> tuple[str, int, int, int]:
        """As tiles.py's functions take it."""
        return self.layout, self.rows, self.columns, self.depth

    @property
    def kernel(self) -> str:
        """What is run to measure it."""
        return KERNELS[self.layout][0]

    @property
    def sizes(self) -> dict[str, int]:
        """Of that kernel."""
        return dict(zip(KERNELS[self.layout][1], self.shape[1:]))

    @property
    def flops(self) -> float:
        """Of one."""
        return 2.0 * self.rows * self.columns * self.depth

    def key(self, precision: str) -> str:
        """Its name in what is found."""
        return key_of(*self.shape, precision)

    def choices(self, options: Options) -> list[list]:
        """See `candidates`."""
        return [as_choice(*each) for each in candidates(options, *self.shape)]

    def alike(self, other: Product | Attention) -> bool:
        """Whether what is the fastest for another should be for this one too."""
        if not isinstance(other, Product) or self.layout != other.layout or self == other:
            return self == other
        pairs = ((self.rows * self.columns, other.rows * other.columns), (self.depth, other.depth))
        return all(1 / SHARED <= mine / theirs <= SHARED for mine, theirs in pairs)

    def takes(self, choice: list, options: Options) -> bool:
        """Whether a choice made for one alike can be taken over."""
        return of_choice(choice)[0].suits(options, *self.shape)

    def sample(self) -> Product:
        """A small one, to check a tile on."""
        return Product(self.layout, *CHECKED)

    def to_check(self, choice: list, default: list) -> list[list]:
        """What is right, and what must give the same, on the sample: [] where a choice needs no check."""
        tile, right = of_choice(choice)[0], of_choice(default)[0]
        if not isinstance(tile, TensorTile):
            return []
        plain = as_choice(MIDDLE, 1) if isinstance(right, TensorTile) else as_choice(right, min(default[-1], 2))
        return [plain, as_choice(tile, min(choice[-1], 2))]


@dataclass(frozen=True)
class Attention:
    """An entry of attention in a tape."""

    entry: str
    kernel: str
    B: int
    T: int
    H: int
    D: int

    @property
    def sizes(self) -> dict[str, int]:
        """Of its kernel."""
        return {"B": self.B, "T": self.T, "H": self.H, "D": self.D}

    @property
    def flops(self) -> float:
        """Of one, nearly: the causal half of three products."""
        return 3.0 * self.B * self.H * self.T**2 * self.D

    def key(self, precision: str) -> str:
        """Its name in what is found."""
        return attention.key_of(self.entry, self.B * self.H, self.T, self.D, precision)

    def choices(self, options: Options) -> list[list]:
        """The tile taken without a measurement, then those that a device can run: two of matrix units, then plain ones."""
        default = attention.attention_tile(self.entry, self.B * self.H, self.T, self.D, replace(options, tiles=None))
        tiles = attention.candidates(self.entry, self.D, options)
        units = [tile for tile in tiles if isinstance(tile, attention.TensorTile)]
        plain = [tile for tile in tiles if tile not in units]
        return [attention.as_choice(tile) for tile in dict.fromkeys([default, *units[:2], *plain, *units[2:]])]

    def alike(self, other: Product | Attention) -> bool:
        """Never, but to itself: sizes decide too much."""
        return self == other

    def takes(self, choice: list, options: Options) -> bool:
        """See Product's."""
        return False

    def sample(self) -> Attention:
        """A small one, to check a tile on."""
        return replace(self, B=1, T=min(self.T, 150), H=2)

    def to_check(self, choice: list, default: list) -> list[list]:
        """As Product's."""
        if not isinstance(attention.of_choice(choice), attention.TensorTile):
            return []
        small = replace(attention.SMALL_ATTENTION, CHUNK=16) if self.D <= 16 else attention.SMALL_ATTENTION
        units = isinstance(attention.of_choice(default), attention.TensorTile)
        return [attention.as_choice(small) if units else default, choice]


def subjects(tapes: Iterable[Tape]) -> list[Product | Attention]:
    """What can be measured of tapes, that with most of the work first."""
    work: Counter = Counter()
    for tape in tapes:
        for each in decode(tape):
            name, sizes = each.kernel.name, each.sizes
            if name in LETTERS:
                found = [Product(LAYOUTS[name], *(sizes[letter] for letter in LETTERS[name]))]
            else:
                found = [
                    Attention(entry, name, *(sizes[x] for x in "BTHD")) for entry, _ in attention.ENTRIES.get(name, ())
                ]
            for subject in found:
                work[subject] += subject.flops * (1.0 if name in LETTERS else ATTENTION_BY_PRODUCT)
    return [subject for subject, _ in work.most_common()]


def candidates(options: Options, layout: str, rows: int, columns: int, depth: int) -> list[tuple]:
    """(tile, chunks) worth a measurement by promise, the one taken without a measurement first."""
    shape = (layout, rows, columns, depth)
    units = (options.tiles or {}).get(units_key(layout))
    default, chunk = matmul_tile(*shape, replace(options, tiles={units_key(layout): units}))
    area = default.TILE_M * default.TILE_N

    def far(tile: MatmulTile) -> float:
        return abs(log2(tile.TILE_M * tile.TILE_N / area))

    tensor = TENSOR if TENSOR[0].groups(rows, columns) * 2 > ENOUGH_UNITS else TENSOR[::-1]
    if layout != "NN":  # what turns its operands, and the first as they lie
        tensor = (
            *(replace(tile, TRANSPOSED=True) for tile in tensor[:2]),
            tensor[0],
            replace(tensor[2], TRANSPOSED=True),
        )
    others = (
        *tensor,
        replace(tensor[0], WIDE=False, BUFFERS=1),
        *sorted((*(HALF if options.half else ()), *PLAIN), key=far),
    )
    found = [(default, ceil_div(depth, chunk))]
    for tile in others:
        if tile.suits(options, *shape):
            found.append((tile, _chunks(tile, rows, columns, depth)))
    return list(dict.fromkeys(found))


def _chunks(tile: MatmulTile | TensorTile, rows: int, columns: int, depth: int) -> int:
    """Into how many a sum is cut, to keep a device busy with this tile."""
    wanted = ENOUGH_UNITS if isinstance(tile, TensorTile) else ENOUGH_THREADS // tile.threads
    most = min(depth // LEAST_CHUNK, MOST_SCRATCH_BYTES // (4 * rows * columns), MOST_CHUNKS)
    return max(1, min(ceil_div(wanted, tile.groups(rows, columns)), most))


def one_kernel(name: str, sizes: dict[str, int], params: tuple = ()) -> Tape:
    """A tape of one kernel with everything in the arena, so that a host gives it memory by itself."""
    graph, at, values = Graph(), 0, {}
    for argument in kernel(name).args:
        shape = kernel(name).shape(argument, sizes)
        values[argument.name] = Value(argument.name, shape, argument.dtype, "arena", at)
        at += round_up(product(shape) * 4, 256)
    graph.call(name, sizes, params, **values)
    return record(place(graph))


def one_product(layout: str, rows: int, columns: int, depth: int) -> Tape:
    """`one_kernel` for a matmul."""
    subject = Product(layout, rows, columns, depth)
    return one_kernel(subject.kernel, subject.sizes)


def words(choice: list) -> str:
    """A choice, for the log."""
    return f"{choice[0]} {' '.join(str(int(value)) for value in choice[1:])}"
