"""Attention to dispatches, and which tile shape it gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from .dispatch import Call, Dispatch, ceil_div
from .limits import Limits

ENOUGH_GROUPS = 160
"""Workgroups of attention that keep a large GPU busy."""


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


def attention(call: Call) -> Iterator[Dispatch]:
    """The dispatches of `attention` or `attention_backward`."""
    s = call.sizes
    forward = call.kernel.name == "attention"
    for entry, names in (
        [("attention", "qkv y lse")] if forward else
        [("attention_backward", "qkv y lse dy delta dqkv"), ("attention_backward_keys", "qkv lse dy delta dqkv")]
    ):  # fmt: skip
        tile = attention_tile(entry, s["B"] * s["H"], s["T"], s["D"], call.limits)
        constants = {"D": s["D"], "VECTORS": s["D"] % 4 == 0} | tile.constants()
        groups = (ceil_div(s["T"], tile.ROWS), s["B"] * s["H"], 1)
        yield call.dispatch(names, groups, s, constants, entry)
