"""Attention to dispatches, and which tile shape it gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ...dims import round_up
from .dispatch import Call, Dispatch, ceil_div
from .limits import Limits

ENOUGH_GROUPS = 160
"""Workgroups of attention that keep a large GPU busy."""
VECTOR_BYTES = 16
FORCED: dict[str, AttentionTile] = {}
"""The tile of an entry that a measurement or a test wants."""


@dataclass(frozen=True)
class AttentionTile:
    """ROWS queries (or keys) against COLS keys (or queries), CHUNK floats of a head at a time; RT × CT scores a thread.

    RESIDENT: the rows' vectors stay in workgroup memory for the whole walk, all of a head at once (CHUNK is not used).
    PREFETCH: the next columns wait in registers. SPARE: one tile of workgroup memory more, and fewer barriers. PAD 0: rows
    are not padded, their vectors are swapped about (head widths that are multiples of 32).
    """

    ROWS: int
    COLS: int
    CHUNK: int = 32
    RT: int = 4
    CT: int = 4
    UNROLL_D: int = 2
    UNROLL_T: int = 1
    PAD: int = 1
    RESIDENT: bool = False
    PREFETCH: bool = False
    SPARE: bool = False

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.ROWS // self.RT * (self.COLS // self.CT)

    def memory_bytes(self, entry: str, width: int) -> int:
        """Workgroup memory of an entry at head width `width`."""
        chunk = round_up(width, 4) if self.RESIDENT else self.CHUNK
        rows, cols = (count * (chunk // 4 + self.PAD) for count in (self.ROWS, self.COLS))
        scores, lanes = self.ROWS * (self.COLS // 4 + 1), self.threads * self.RT // 4
        if not self.RESIDENT:
            vectors = rows + cols + scores + (lanes if entry != "attention_backward_keys" else 0)
        elif entry == "attention":
            vectors = rows + cols * (2 if self.SPARE else 1) + scores + lanes
        elif entry == "attention_backward":
            vectors = 2 * rows + 2 * cols + scores + lanes
        else:
            vectors = 2 * rows + 2 * cols + scores * (2 if self.SPARE else 1) + ceil_div(self.COLS, 2)
        return VECTOR_BYTES * vectors

    def fits(self, limits: Limits, entry: str = "attention", width: int = 64) -> bool:
        """Whether a device can run an entry with it."""
        if self.RESIDENT:
            possible = self.PAD == 1 or width % 32 == 0
        else:
            possible = self.PAD == 1 and self.CHUNK // 4 <= self.COLS // self.CT
        memory = self.memory_bytes(entry, width)
        return possible and memory <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def constants(self, entry: str = "attention", width: int = 64) -> dict[str, object]:
        """As the shader's constants, for an entry at head width `width`."""
        given = {"D": width, "VECTORS": width % 4 == 0, "KEYS": entry == "attention_backward_keys"} | asdict(self)
        if self.RESIDENT:
            wide = ceil_div(width, 4)
            unroll = next(n for n in range(min(self.UNROLL_D, wide), 0, -1) if wide % n == 0)
            given |= {"CHUNK": 4 * wide, "UNROLL_D": unroll}
        return given


def resident(rows: int, cols: int, rt: int, ct: int, **more) -> AttentionTile:
    """A tile whose rows stay."""
    return AttentionTile(rows, cols, 0, rt, ct, RESIDENT=True, **more)


ATTENTION_TILES = {
    "attention": (AttentionTile(64, 64, 32, 4, 8, 2),),
    "attention_backward": (AttentionTile(64, 64, 32, 4, 4, 4),),
    "attention_backward_keys": (AttentionTile(64, 32, 32, 4, 4, 2), AttentionTile(64, 64, 32, 4, 4, 4)),
}
SMALL_ATTENTION = AttentionTile(32, 32, 32)


def attention_tile(entry: str, heads: int, time: int, width: int, limits: Limits) -> AttentionTile:
    """The tile for `heads` = B·H heads of `width` D over T rows."""
    if entry in FORCED:
        return FORCED[entry]
    for tile in ATTENTION_TILES[entry]:
        if tile.fits(limits, entry, width) and width > 16 and heads * ceil_div(time, tile.ROWS) >= ENOUGH_GROUPS:
            return tile
    return replace(SMALL_ATTENTION, CHUNK=16) if width <= 16 else SMALL_ATTENTION


ENTRIES = {  # kernel to its entries and their arguments
    "attention": (("attention", "qkv y lse"),),
    "attention_backward": (
        ("attention_backward", "qkv y lse dy delta dqkv"),
        ("attention_backward_keys", "qkv lse dy delta dqkv"),
    ),
}


def attention(call: Call) -> Iterator[Dispatch]:
    """The dispatches of `attention` or `attention_backward`."""
    s = call.sizes
    for entry, names in ENTRIES[call.kernel.name]:
        tile = attention_tile(entry, s["B"] * s["H"], s["T"], s["D"], call.limits)
        groups = (ceil_div(s["T"], tile.ROWS), s["B"] * s["H"], 1)
        yield call.dispatch(names, groups, s, tile.constants(entry, s["D"]), entry)
