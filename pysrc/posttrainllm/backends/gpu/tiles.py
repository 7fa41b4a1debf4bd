"""Which tile a matmul gets on a device: what the probe measured there, else the winners of the measurements in docs/log.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from .dispatch import ceil_div
from .limits import Limits
from .options import Options

FORCED: list[tuple[MatmulTile | TensorTile, int]] = []
"""The tile and chunks that a measurement or a test wants."""
LEAST_CHUNK = 128
"""A sum is not cut finer: a chunk costs a write and a read of the whole result."""
MOST_CHUNKS = 32
LAYOUTS = {
    "linear": "NN",
    "unembed_backward_input": "NN",
    "linear_backward_input": "NT",
    "unembed": "NT",
    "linear_backward_weight": "TN",
    "unembed_backward_weight": "TN",
}
"""Kernel to how it reads a and b: N as [M,K] and [K,N], T turned."""
SUBGROUP = 32
"""Threads of a subgroup of the matrix kernel. Hosts list matrix shapes only where all subgroups have so many."""


@dataclass(frozen=True)
class MatmulTile:
    """A workgroup's tile of the result, the depth held in workgroup memory, and a thread's share. In numbers."""

    TILE_M: int
    TILE_N: int
    TILE_K: int
    THREAD_M: int
    THREAD_N: int
    K_FIRST: bool = True
    HALF_TILES: bool = False
    BUFFERS: int = 1

    @property
    def memory_bytes(self) -> int:
        """Workgroup memory."""
        return self.BUFFERS * (self.TILE_M + self.TILE_N) * self.TILE_K * (2 if self.HALF_TILES else 4)

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.TILE_M // self.THREAD_M * (self.TILE_N // self.THREAD_N)

    def fits(self, limits: Limits) -> bool:
        """Whether a device can run it."""
        return self.memory_bytes <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def suits(self, options: Options, layout: str, rows: int, columns: int, depth: int) -> bool:
        """Whether it can multiply these."""
        return self.fits(options.limits) and (options.half or not self.HALF_TILES)

    def groups(self, rows: int, columns: int) -> int:
        """Workgroups that a result needs."""
        return ceil_div(rows, self.TILE_M) * ceil_div(columns, self.TILE_N)

    def constants(self) -> dict[str, object]:
        """As the shader's constants."""
        return asdict(self)


@dataclass(frozen=True)
class TensorTile:
    """Square fragments of a subgroup, subgroups of a workgroup, and the depth held in workgroup memory: matmul_tensor.wgsl.

    TRANSPOSED: an operand that lies the other way than in layout NN is turned before the matrix units read it.
    """

    FRAGMENTS_M: int
    FRAGMENTS_N: int
    SUBGROUPS_M: int
    SUBGROUPS_N: int
    TILE_K: int
    BUFFERS: int = 1
    WIDE: bool = True
    COOPERATIVE: bool = False
    FRAGMENT: int = 16
    TRANSPOSED: bool = False

    @property
    def TILE_M(self) -> int:
        """Rows of the result in a workgroup."""
        return self.FRAGMENT * self.FRAGMENTS_M * self.SUBGROUPS_M

    @property
    def TILE_N(self) -> int:
        """Columns."""
        return self.FRAGMENT * self.FRAGMENTS_N * self.SUBGROUPS_N

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return SUBGROUP * self.SUBGROUPS_M * self.SUBGROUPS_N

    def memory_bytes(self, layout: str) -> int:
        """Workgroup memory, of vectors of 16 bytes: lines of a and of b, one longer than their numbers; and the results."""

        def lines(along_k: bool, width: int) -> int:
            return width * (self.TILE_K // 8 + 1) if along_k else self.TILE_K * (width // 8 + 1)

        as_nn = self.TRANSPOSED
        tiles = self.BUFFERS * (
            lines(layout[0] == "N" or as_nn, self.TILE_M) + lines(layout[1] == "T" and not as_nn, self.TILE_N)
        )
        results = self.SUBGROUPS_M * self.SUBGROUPS_N * self.FRAGMENT * (self.FRAGMENT * self.FRAGMENTS_N // 4 + 1)
        return 16 * (max(tiles, results) if self.WIDE else tiles + results)

    def suits(self, options: Options, layout: str, rows: int, columns: int, depth: int) -> bool:
        """Whether a device can run it, and lines of a and b start at multiples of eight numbers."""
        limits = options.limits
        lines = (depth if layout[0] == "N" else rows, depth if layout[1] == "T" else columns)
        return (
            options.half
            and (self.FRAGMENT,) * 3 in options.subgroup_matrix
            and all(line % 8 == 0 for line in lines)
            and not (
                self.TRANSPOSED and (layout == "NN" or self.TILE_N % 32)
            )  # nothing to turn; eight rows at a time, by four
            and self.memory_bytes(layout) <= limits.workgroup_memory_bytes
            and self.threads <= limits.invocations
        )

    groups = MatmulTile.groups

    def constants(self) -> dict[str, object]:
        """As the shader's constants."""
        return asdict(self) | {"TENSOR": True, "SUBGROUP": SUBGROUP}


LARGE = ((MatmulTile(128, 128, 16, 16, 8), 700), (MatmulTile(128, 64, 16, 8, 8), 380))
"""Tiles for large results, and of how many workgroups they need to be the fastest, uncut."""
MIDDLE, MIDDLE_GROUPS, MIDDLE_LEAST = MatmulTile(64, 64, 16, 8, 8), 1100, 264
"""Cut along the sum until there are MIDDLE_GROUPS; not used when that leaves fewer than MIDDLE_LEAST."""
SMALL = MatmulTile(64, 32, 32, 4, 4)
TENSOR_LARGE = ((TensorTile(4, 4, 2, 2, 32, 2), 264), (TensorTile(4, 4, 2, 2, 32), 264))
"""As LARGE, with matrix units: two buffers where they fit. See `like`."""
TENSOR_SMALL, TENSOR_LEAST = TensorTile(2, 2, 2, 2, 32), 264
"""Cut along the sum until there are TENSOR_LEAST workgroups."""


def key_of(layout: str, rows: int, columns: int, depth: int, precision: str) -> str:
    """The name of a product in what the probe found."""
    return f"{layout} {rows}x{columns}x{depth} {precision}"


def units_key(layout: str) -> str:
    """Under this the probe keeps a tile of matrix units that gave the plain kernel's numbers; without one none is used."""
    return f"{layout} matrix units"


def like(tile: TensorTile, right: TensorTile) -> TensorTile:
    """A tile whose WGSL is of the kind that gave the plain kernel's numbers."""
    return replace(tile, WIDE=right.WIDE, TRANSPOSED=right.TRANSPOSED)


def as_choice(tile: MatmulTile | TensorTile, chunks: int) -> list:
    """A tile and chunks as JSON."""
    return ["tensor" if isinstance(tile, TensorTile) else "plain", *asdict(tile).values(), chunks]


def of_choice(choice: list) -> tuple[MatmulTile | TensorTile, int]:
    """The same, back. Raises TypeError for what another version wrote."""
    kind, *fields, chunks = choice
    return (TensorTile if kind == "tensor" else MatmulTile)(*fields), chunks


def matmul_tile(
    layout: str, rows: int, columns: int, depth: int, options: Options
) -> tuple[MatmulTile | TensorTile, int]:
    """(tile, depth of a chunk) of a product: the sum is cut where there are too few tiles to keep a device busy."""
    shape = (rows, columns, depth)
    if FORCED:
        tile, chunks = FORCED[0]
        return tile, _chunk(tile, depth, chunks)
    chosen = (options.tiles or {}).get(key_of(layout, *shape, options.precision))
    if chosen:
        tile, chunks = of_choice(chosen)
        if tile.suits(options, layout, *shape):
            return tile, _chunk(tile, depth, chunks)
    longest = min(MOST_CHUNKS, max(1, depth // LEAST_CHUNK))
    units = (options.tiles or {}).get(units_key(layout))
    if units and TENSOR_SMALL.suits(options, layout, *shape):
        right = of_choice(units)[0]
        for tile, enough in TENSOR_LARGE:
            large = like(tile, right)
            if large.suits(options, layout, *shape) and tile.groups(rows, columns) >= enough:
                return large, _chunk(tile, depth, 1)
        chunks = min(ceil_div(TENSOR_LEAST, TENSOR_SMALL.groups(rows, columns)), longest)
        return like(TENSOR_SMALL, right), _chunk(TENSOR_SMALL, depth, chunks)
    for tile, enough in LARGE:
        if tile.fits(options.limits) and tile.groups(rows, columns) >= enough:
            return tile, _chunk(tile, depth, 1)
    tile = MIDDLE
    chunks = min(ceil_div(MIDDLE_GROUPS, tile.groups(rows, columns)), longest)
    if tile.groups(rows, columns) * chunks < MIDDLE_LEAST:
        tile = SMALL
        chunks = min(ceil_div(MIDDLE_LEAST, tile.groups(rows, columns)), longest)
    return tile, _chunk(tile, depth, chunks)


def _chunk(tile: MatmulTile | TensorTile, depth: int, chunks: int) -> int:
    return ceil_div(ceil_div(depth, chunks), tile.TILE_K) * tile.TILE_K
