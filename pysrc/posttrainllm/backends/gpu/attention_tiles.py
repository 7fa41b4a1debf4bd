"""Attention to dispatches, and which tile shape it gets on a device. Winners of the measurements in docs/log.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from ...dims import round_up
from ...errors import DeviceLimitError
from .dispatch import Call, Dispatch, ceil_div
from .flat import THREADS, reducing, vectors
from .limits import Limits
from .options import Options

ENOUGH_GROUPS = 160
"""Workgroups of attention that keep a large GPU busy."""
VECTOR_BYTES = 16
FRAGMENT = 16
"""Rows, columns and depth of a product of the matrix units."""
FORCED: dict[str, AttentionTile | TensorTile] = {}
"""The tile of an entry that a measurement or a test wants."""


@dataclass(frozen=True)
class AttentionTile:
    """ROWS queries (or keys) against COLS keys (or queries), CHUNK floats of a head at a time; RT × CT scores a thread.

    RESIDENT: the rows' vectors stay in workgroup memory for the whole walk, all of a head at once (CHUNK is not used).
    PREFETCH: the next columns wait in registers. SPARE: one tile of workgroup memory more, and fewer barriers. PAD 0: rows
    are not padded, their vectors are swapped about (head widths that are multiples of 32). PAIRED: two threads for each RT × CT
    scores of the backward passes.
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
    PAIRED: bool = False

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.ROWS // self.RT * (self.COLS // self.CT) * (2 if self.PAIRED else 1)

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
            vectors = 2 * rows + 2 * cols + scores
        else:
            tiles = 2 if self.SPARE or self.PAIRED else 1
            vectors = 2 * rows + 2 * cols + scores * tiles + ceil_div(self.COLS, 2)
        return VECTOR_BYTES * vectors

    def fits(self, limits: Limits, entry: str = "attention", width: int = 64) -> bool:
        """Whether a device can run an entry with it."""
        if self.RESIDENT:
            possible = (self.PAD == 1 or width % 32 == 0) and not (self.PAIRED and entry == "attention")
        else:
            possible = self.PAD == 1 and self.CHUNK // 4 <= self.COLS // self.CT
        memory = self.memory_bytes(entry, width)
        return possible and memory <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def suits(self, options: Options, entry: str, width: int) -> bool:
        """Whether a device can run an entry with it, in the options' storage."""
        return self.fits(options.limits, entry, width)

    def constants(self, entry: str = "attention", width: int = 64) -> dict[str, object]:
        """As the shader's constants, for an entry at head width `width`."""
        given = {"D": width, "VECTORS": width % 4 == 0, "KEYS": entry == "attention_backward_keys"} | asdict(self)
        if self.RESIDENT:
            wide = ceil_div(width, 4)
            unroll = next(n for n in range(min(self.UNROLL_D, wide), 0, -1) if wide % n == 0)
            given |= {"CHUNK": 4 * wide, "UNROLL_D": unroll, "HALVED": self.PAIRED and entry == "attention_backward"}
        return given


@dataclass(frozen=True)
class TensorTile:
    """ROWS queries (or keys), 16 a subgroup, against COLS keys (or queries), multiplied by matrix units; storage is f16.

    SUBGROUP: threads of a subgroup. WIDE: workgroup memory is declared as vectors. COOPERATIVE: naga's names. EMULATE: by
    ordinary arithmetic, for tests.
    """

    ROWS: int
    COLS: int
    SUBGROUP: int = 32
    WIDE: bool = True
    COOPERATIVE: bool = False
    EMULATE: bool = False

    @property
    def threads(self) -> int:
        """Threads of a workgroup."""
        return self.ROWS // FRAGMENT * self.SUBGROUP

    def memory_bytes(self, entry: str, width: int) -> int:
        """Workgroup memory of an entry at head width `width`."""
        tiles, weights = (1, 1) if entry == "attention" else (2, 2 if entry == "attention_backward_keys" else 1)
        rows, cols = (count * (width // 8 + 1) for count in (self.ROWS, self.COLS))
        working = 2 * cols + weights * self.ROWS * (self.COLS // 8 + 1)
        halves = tiles * rows + working if self.EMULATE else max(tiles * rows, working)
        floats = max(tiles * self.ROWS * (self.COLS // 4 + 1), self.ROWS * (width // 4 + 1))
        stats = self.COLS // 2 if entry == "attention_backward_keys" else 0
        return VECTOR_BYTES * (halves + floats + stats)

    def fits(self, limits: Limits, entry: str = "attention", width: int = 64) -> bool:
        """Whether a device can run an entry with it."""
        possible = width % FRAGMENT == 0 and self.COLS % (8 * self.SUBGROUP // FRAGMENT) == 0
        memory = self.memory_bytes(entry, width)
        return possible and memory <= limits.workgroup_memory_bytes and self.threads <= limits.invocations

    def suits(self, options: Options, entry: str, width: int) -> bool:
        """Whether a device can run an entry with it, in the options' storage."""
        units = options.half and (FRAGMENT,) * 3 in options.subgroup_matrix
        return units and self.fits(options.limits, entry, width)

    def constants(self, entry: str = "attention", width: int = 64) -> dict[str, object]:
        """As the shader's constants, for an entry at head width `width`."""
        return {"D": width, "TENSOR": True, "KEYS": entry == "attention_backward_keys"} | asdict(self)


KEYS = "attention_backward_keys"
ATTENTION_TILES = {
    "attention": (AttentionTile(64, 64, 32, 4, 8, 2),),
    "attention_backward": (AttentionTile(64, 64, 32, 4, 4, 4),),
    KEYS: (AttentionTile(64, 32, 32, 4, 4, 2), AttentionTile(64, 64, 32, 4, 4, 4)),
}
"""The fastest first, of those measured."""
SMALL_ATTENTION = AttentionTile(32, 32, 32)
STAY = {"RESIDENT": True, "UNROLL_D": 4}
FLAT = {"RESIDENT": True, "UNROLL_D": 16, "UNROLL_T": 8}  # no loop is left
BACKWARD = (
    AttentionTile(32, 32, 0, 8, 4, **STAY, PAIRED=True),
    AttentionTile(32, 32, 0, 4, 4, **STAY, PAIRED=True),
    AttentionTile(32, 32, 0, 8, 4, **FLAT, PAIRED=True),
    AttentionTile(32, 32, 0, 4, 4, **FLAT, PAIRED=True),
    AttentionTile(64, 32, 0, 8, 4, **STAY, PAIRED=True),
    AttentionTile(32, 32, 0, 4, 4, **STAY, PAIRED=True, PREFETCH=True),
    AttentionTile(32, 32, 0, 8, 4, **STAY, PAIRED=True, PREFETCH=True),
    AttentionTile(32, 32, 0, 4, 4, **STAY, SPARE=True),
    AttentionTile(64, 16, 0, 4, 4, **STAY),
    AttentionTile(32, 16, 0, 4, 4, **STAY, PAIRED=True),
    AttentionTile(32, 32, 32),
)
CANDIDATES = {
    "attention": (
        AttentionTile(64, 64, 32, 4, 8, 2),
        AttentionTile(64, 32, 0, 8, 4, **STAY, PREFETCH=True, SPARE=True),
        AttentionTile(64, 32, 0, 4, 4, **STAY, PREFETCH=True, SPARE=True),
        AttentionTile(32, 64, 0, 4, 8, **STAY),
        AttentionTile(64, 64, 0, 8, 4, **STAY),
        AttentionTile(64, 32, 0, 8, 4, **STAY, SPARE=True),
        AttentionTile(64, 32, 0, 8, 4, **FLAT, PREFETCH=True, SPARE=True),
        AttentionTile(64, 32, 0, 4, 4, **STAY),
        AttentionTile(32, 64, 0, 4, 8, **FLAT, PREFETCH=True),
        AttentionTile(32, 32, 0, 4, 4, **STAY, SPARE=True),
        AttentionTile(32, 16, 0, 4, 4, **STAY, PREFETCH=True),
        AttentionTile(32, 32, 32),
    ),
    "attention_backward": (AttentionTile(64, 64, 32, 4, 4, 4), *BACKWARD),
    KEYS: (AttentionTile(64, 32, 32, 4, 4, 2), *BACKWARD),
}
"""What may be the fastest somewhere: see bench/gpu_attention.py."""
TENSOR_CANDIDATES = (
    TensorTile(64, 64),
    TensorTile(64, 32),
    TensorTile(128, 32),
    TensorTile(32, 64),
    TensorTile(32, 32),
    TensorTile(64, 32, WIDE=False),
)


FASTEST_UNITS = {"attention": TensorTile(64, 64), "attention_backward": TensorTile(32, 32), KEYS: TensorTile(64, 32)}
"""On an H200 at GPT-2's shape: 4.7 times as fast as plain tiles (docs/log.md)."""


def candidates(entry: str, width: int, options: Options) -> list[AttentionTile | TensorTile]:
    """The tiles that a device can run an entry with, in storage of the options' precision."""
    units = sorted(TENSOR_CANDIDATES, key=lambda tile: tile != FASTEST_UNITS[entry])
    return [tile for tile in (*CANDIDATES[entry], *units) if tile.suits(options, entry, width)]


def key_of(entry: str, heads: int, time: int, width: int, precision: str) -> str:
    """The name of an entry at its sizes (see `attention_tile`) in what a probe found."""
    return f"{entry} {heads}x{time}x{width} {precision}"


def as_choice(tile: AttentionTile | TensorTile) -> list:
    """A tile as JSON."""
    return ["attention units" if isinstance(tile, TensorTile) else "attention", *asdict(tile).values()]


def of_choice(choice: list) -> AttentionTile | TensorTile:
    """The same, back. Raises TypeError or KeyError for what another version wrote."""
    kind, *fields = choice
    return {"attention units": TensorTile, "attention": AttentionTile}[kind](*fields)


def attention_tile(entry: str, heads: int, time: int, width: int, options: Options) -> AttentionTile | TensorTile:
    """The tile for `heads` = B·H heads of `width` D over T rows. Matrix units only where a probe saw them right."""
    if entry in FORCED:
        return FORCED[entry]
    chosen = (options.tiles or {}).get(key_of(entry, heads, time, width, options.precision))
    if chosen:
        tile = of_choice(chosen)
        if tile.suits(options, entry, width):
            return tile
    for tile in ATTENTION_TILES[entry]:
        busy = heads * ceil_div(time, tile.ROWS) >= ENOUGH_GROUPS
        if tile.suits(options, entry, width) and width > 16 and busy:
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
        tile = attention_tile(entry, s["B"] * s["H"], s["T"], s["D"], call.options)
        groups = (ceil_div(s["T"], tile.ROWS), s["B"] * s["H"], 1)
        yield call.dispatch(names, groups, s, tile.constants(entry, s["D"]), entry)


MOST_CACHED = 2048
"""Positions of a cache: scores of one row lie in workgroup memory."""


def attention_cached(call: Call) -> Iterator[Dispatch]:
    """New keys and values into the cache, then a workgroup for each row of each head."""
    s = call.sizes
    if s["P"] > MOST_CACHED:
        raise DeviceLimitError(
            "webgpu", f"a cache holds at most {MOST_CACHED:,} positions", f"{s['P']:,} came", "choose a shorter context"
        )
    wide = vectors(s["D"])
    width = s["D"] // 4 if wide else s["D"]
    count = s["T"] * s["H"] * width
    values = s | {"scale": s["D"] ** -0.5, "count": count}
    constants = {"VECTORS": wide, "WIDTH": width} | reducing(call)
    store = "attention_cached_store"
    yield call.dispatch("qkv position keys values", ceil_div(count, THREADS), values, constants, store)
    yield call.dispatch("qkv position keys values y", (s["T"], s["H"], 1), values, constants)
