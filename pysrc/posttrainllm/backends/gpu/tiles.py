"""Which tile shape a matmul or an attention gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from .dispatch import ceil_div
from .limits import Limits

ENOUGH_GROUPS = 160
"""Workgroups that keep a large GPU busy; below it a smaller tile, or a cut along the sum, is faster."""


@dataclass(frozen=True)
class MatmulTile:
    """A workgroup's tile of the result, the depth held in workgroup memory, and a thread's share. In floats."""

    TILE_M: int
    TILE_N: int
    TILE_K: int
    THREAD_M: int
    THREAD_N: int
    UNROLL_K: int = 8

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

    def constants(self) -> dict[str, int]:
        """As the shader's constants."""
        return asdict(self)


MATMUL_TILES = (
    MatmulTile(128, 128, 16, 8, 8),
    MatmulTile(64, 64, 32, 4, 4),
    MatmulTile(32, 32, 32, 4, 4),
)
"""Largest first. All fit WebGPU's default limits."""


def matmul_tile(rows: int, columns: int, limits: Limits) -> MatmulTile:
    """The largest tile of which there are enough."""
    fitting = [tile for tile in MATMUL_TILES if tile.fits(limits)]
    for tile in fitting:
        if tile.groups(rows, columns) >= ENOUGH_GROUPS:
            return tile
    return fitting[-1]


def split_matmul_tile(rows: int, columns: int, depth: int, limits: Limits) -> tuple[MatmulTile, int]:
    """(tile, depth of a chunk) for a product whose sum may be cut: a long sum and a small result."""
    fitting = [tile for tile in MATMUL_TILES if tile.fits(limits)]
    for tile in fitting:
        groups = tile.groups(rows, columns)
        least = 4 * tile.TILE_K
        chunks = min(ceil_div(ENOUGH_GROUPS, groups), max(1, depth // least), 64)
        if groups * chunks >= ENOUGH_GROUPS or tile is fitting[-1]:
            chunk = ceil_div(ceil_div(depth, chunks), tile.TILE_K) * tile.TILE_K
            return tile, chunk
    raise AssertionError("the smallest tile fits every device")


@dataclass(frozen=True)
class AttentionTile:
    """ROWS queries (or keys) against COLS keys (or queries), CHUNK floats of a head at a time."""

    ROWS: int
    COLS: int
    CHUNK: int

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.ROWS // 4 * (self.COLS // 4)

    @property
    def memory_bytes(self) -> int:
        """Workgroup memory."""
        stride = self.CHUNK // 4 + 1
        return 16 * ((self.ROWS + self.COLS) * stride + self.ROWS * (self.COLS // 4 + 1) + self.threads)

    def fits(self, limits: Limits) -> bool:
        """Whether a device can run it."""
        return self.memory_bytes <= limits.workgroup_memory_bytes and self.threads <= limits.invocations


def attention_tile(heads: int, time: int, width: int, limits: Limits) -> AttentionTile:
    """The tile for `heads` = B·H heads of `width` D over T rows."""
    chunk = 16 if width <= 16 else 32
    large = AttentionTile(64, 64, chunk)
    if large.fits(limits) and heads * ceil_div(time, 64) >= ENOUGH_GROUPS:
        return large
    return AttentionTile(32, 32, chunk)
