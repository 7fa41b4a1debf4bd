"""Which tile shape a matmul or an attention gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from .dispatch import ceil_div
from .limits import Limits

FORCED: list[tuple[MatmulTile, int]] = []
"""The tile and chunks that a measurement or a test wants."""
LEAST_CHUNK = 128
"""A sum is not cut finer: a chunk costs a write and a read of the whole result."""
MOST_CHUNKS = 32
ENOUGH_GROUPS = 160
"""Workgroups of attention that keep a large GPU busy."""


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


@dataclass(frozen=True)
class AttentionTile:
    """ROWS queries (or keys) against COLS keys (or queries), CHUNK floats of a head at a time; RT × CT scores a thread."""

    ROWS: int
    COLS: int
    CHUNK: int
    RT: int = 4
    CT: int = 4
    UNROLL_D: int = 2

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.ROWS // self.RT * (self.COLS // self.CT)

    @property
    def memory_bytes(self) -> int:
        """Workgroup memory."""
        stride = self.CHUNK // 4 + 1
        return 16 * ((self.ROWS + self.COLS) * stride + self.ROWS * (self.COLS // 4 + 1) + self.threads * self.RT // 4)

    def fits(self, limits: Limits) -> bool:
        """Whether a device can run it."""
        wide_enough = self.CHUNK // 4 <= self.COLS // self.CT
        return wide_enough and self.memory_bytes <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def constants(self) -> dict[str, int]:
        """As the shader's constants."""
        return asdict(self)


ATTENTION_TILES = {
    "attention": (AttentionTile(64, 64, 32, 4, 8, 2),),
    "attention_backward": (AttentionTile(64, 64, 32, 4, 4, 4),),
    "attention_backward_keys": (AttentionTile(64, 32, 32, 4, 4, 2), AttentionTile(64, 64, 32, 4, 4, 4)),
}
SMALL_ATTENTION = AttentionTile(32, 32, 32)


def attention_tile(entry: str, heads: int, time: int, width: int, limits: Limits) -> AttentionTile:
    """The tile for `heads` = B·H heads of `width` D over T rows."""
    for tile in ATTENTION_TILES[entry]:
        if tile.fits(limits) and width > 16 and heads * ceil_div(time, tile.ROWS) >= ENOUGH_GROUPS:
            return tile
    return replace(SMALL_ATTENTION, CHUNK=16) if width <= 16 else SMALL_ATTENTION
