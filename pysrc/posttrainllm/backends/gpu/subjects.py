"""What a probe can measure in a tape: products and attention, each with the tiles that may be the fastest, as JSON choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

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
TENSOR = (
    TensorTile(4, 4, 2, 4, 32), TensorTile(4, 4, 2, 2, 32, 2), TensorTile(4, 4, 2, 2, 32), TensorTile(4, 2, 2, 4, 32, 2),
    TENSOR_SMALL, TensorTile(2, 2, 2, 2, 64),
)  # fmt: skip
CHUNKS = (1, 2, 4, 8, 16)
FEWEST_GROUPS, MOST_GROUPS = 24, 3000
"""Of workgroups, of a tile worth trying."""
MOST_SCRATCH_BYTES = 128 << 20
KERNELS = {"NN": ("linear", "ROI"), "NT": ("linear_backward_input", "RIO"), "TN": ("linear_backward_weight", "IOR")}
"""Layout to the kernel that is timed for it, and its letters for rows, columns and depth."""
LETTERS = {
    "linear": "ROI", "linear_backward_input": "RIO", "linear_backward_weight": "IOR",
    "unembed": "RVC", "unembed_backward_input": "RCV", "unembed_backward_weight": "VCR",
}  # fmt: skip
CHECKED = (264, 264, 264)
"""Rows, columns and depth of the product that a tile is checked on: no multiple of any tile."""
MOST_ATTENTION = 4
"""Tiles of attention that are tried, of each kind: each is another pipeline to compile."""


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

    def sample(self) -> Product:
        """A small one, to check a tile on."""
        return Product(self.layout, *CHECKED)

    def to_check(self, choice: list) -> tuple[list, list[list]]:
        """What is known to be right, and what must give the same: nothing, where a choice needs no check."""
        tile = of_choice(choice)[0]
        same = [as_choice(tile, 1), as_choice(tile, 2)] if isinstance(tile, TensorTile) else []
        return as_choice(MIDDLE, 1), same


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
        """The tile taken without a measurement, and a few of those that a device can run."""
        default = attention.attention_tile(self.entry, self.B * self.H, self.T, self.D, replace(options, tiles=None))
        tiles = attention.candidates(self.entry, self.D, options)
        units = [tile for tile in tiles if isinstance(tile, attention.TensorTile)]
        plain = [tile for tile in tiles if tile not in units]
        found = dict.fromkeys([default, *units[:MOST_ATTENTION], *plain[: 1 if units else MOST_ATTENTION]])
        return [attention.as_choice(tile) for tile in found]

    def sample(self) -> Attention:
        """A small one, to check a tile on."""
        return replace(self, B=1, T=min(self.T, 150), H=2)

    def to_check(self, choice: list) -> tuple[list, list[list]]:
        """As Product's."""
        checked = isinstance(attention.of_choice(choice), attention.TensorTile)
        small = replace(attention.SMALL_ATTENTION, CHUNK=16) if self.D <= 16 else attention.SMALL_ATTENTION
        return attention.as_choice(small), [choice] if checked else []


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
                work[subject] += subject.flops
    return [subject for subject, _ in work.most_common()]


def candidates(options: Options, layout: str, rows: int, columns: int, depth: int) -> list[tuple]:
    """(tile, chunks) worth a measurement, the one taken without a measurement first."""
    shape = (layout, rows, columns, depth)
    units = (options.tiles or {}).get(units_key(layout))
    tile, chunk = matmul_tile(*shape, replace(options, tiles={units_key(layout): units}))
    found, tiles = [(tile, ceil_div(depth, chunk))], []
    if units:
        tiles = [replace(tile, WIDE=of_choice(units)[0].WIDE) for tile in TENSOR]
    tiles = [tile for tile in tiles if tile.suits(options, *shape)]
    tiles += [tile for tile in (PLAIN[:1] if tiles else (*PLAIN, *HALF)) if tile.suits(options, *shape)]
    for tile in tiles:
        groups = tile.groups(rows, columns)
        largest = not any(other.TILE_M * other.TILE_N > tile.TILE_M * tile.TILE_N for other in tiles)
        for chunks in CHUNKS:
            scratch = chunks * rows * columns * 4 * (chunks > 1)
            if chunks > 1 and (depth // chunks < LEAST_CHUNK or scratch > MOST_SCRATCH_BYTES):
                break
            if groups * chunks < FEWEST_GROUPS or (groups * chunks > MOST_GROUPS and not (largest and chunks == 1)):
                continue
            if (tile, chunks) not in found:
                found.append((tile, chunks))
    return found


def one_kernel(name: str, sizes: dict[str, int]) -> Tape:
    """A tape of one kernel with everything in the arena, so that a host gives it memory by itself."""
    graph, at, values = Graph(), 0, {}
    for argument in kernel(name).args:
        shape = kernel(name).shape(argument, sizes)
        values[argument.name] = Value(argument.name, shape, argument.dtype, "arena", at)
        at += round_up(product(shape) * 4, 256)
    graph.call(name, sizes, **values)
    return record(place(graph))


def one_product(layout: str, rows: int, columns: int, depth: int) -> Tape:
    """`one_kernel` for a matmul."""
    subject = Product(layout, rows, columns, depth)
    return one_kernel(subject.kernel, subject.sizes)


def words(choice: list) -> str:
    """A choice, for the log."""
    return f"{choice[0]} {' '.join(str(int(value)) for value in choice[1:])}"
