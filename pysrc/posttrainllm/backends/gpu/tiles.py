"""Which tile shape a matmul gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .dispatch import ceil_div
from .limits import Limits

FORCED: list[tuple[MatmulTile, int]] = []
"""The tile and chunks that a measurement or a test wants."""
LEAST_CHUNK = 128
"""A sum is not cut finer: a chunk costs a write and a read of the whole result."""
MOST_CHUNKS = 32


@dataclass(frozen=True)
class MatmulTile:
    """A workgroup's tile of the result, the depth held in workgroup memory, and a thread's share. In floats."""

    TILE_M: int
    TILE_N: int
    TILE_K: int
    THREAD_M: int
    THREAD_N: int
    K_FIRST: bool = True

    @property
    def memory_bytes(self) -> int:
        """Workgroup memory."""
        return (self.TILE_M + self.TILE_N) * self.TILE_K * 4

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.TILE_M // self.THREAD_M * (self.TILE_N // self.THREAD_N)

    def fits(self, limits: Limits) -> bool:
        """Whether a device can run it."""
        return self.memory_bytes <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def groups(self, rows: int, columns: int) -> int:
        """Workgroups that a result needs."""
        return ceil_div(rows, self.TILE_M) * ceil_div(columns, self.TILE_N)

    def constants(self) -> dict[str, object]:
        """As the shader's constants."""
        return asdict(self)


LARGE = ((MatmulTile(128, 128, 16, 16, 8), 700), (MatmulTile(128, 64, 16, 8, 8), 380))
"""Tiles for large results, and of how many workgroups they need to be the fastest, uncut."""
MIDDLE, MIDDLE_GROUPS, MIDDLE_LEAST = MatmulTile(64, 64, 16, 8, 8), 1100, 264
"""Cut along the sum until there are MIDDLE_GROUPS; not used when that leaves fewer than MIDDLE_LEAST."""
SMALL = MatmulTile(64, 32, 32, 4, 4)


def matmul_tile(rows: int, columns: int, depth: int, limits: Limits) -> tuple[MatmulTile, int]:
    """(tile, depth of a chunk) of a product: the sum is cut where there are too few tiles to keep a device busy."""
    if FORCED:
        tile, chunks = FORCED[0]
        return tile, _chunk(tile, depth, chunks)
    for tile, enough in LARGE:
        if tile.fits(limits) and tile.groups(rows, columns) >= enough:
            return tile, _chunk(tile, depth, 1)
    tile, longest = MIDDLE, min(MOST_CHUNKS, max(1, depth // LEAST_CHUNK))
    chunks = min(ceil_div(MIDDLE_GROUPS, tile.groups(rows, columns)), longest)
    if tile.groups(rows, columns) * chunks < MIDDLE_LEAST:
        tile = SMALL
        chunks = min(ceil_div(MIDDLE_LEAST, tile.groups(rows, columns)), longest)
    return tile, _chunk(tile, depth, chunks)


def _chunk(tile: MatmulTile, depth: int, chunks: int) -> int:
    return ceil_div(ceil_div(depth, chunks), tile.TILE_K) * tile.TILE_K
