"""How AdamW's moments are kept (Saving.moments): where a weight's lie in the regions m and v, and what their bytes say.

The flat buffers place each weight at a multiple of 256 bytes, 64 float32. The moments of such 64 take 256 bytes as float32, 128 as
bfloat16, 68 in 8 bits: a weight's moments lie at its place times that, and no block of 8-bit codes belongs to two weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dims import ALIGN_BYTES, ELEMENT_BYTES
from ..ops import adamw_8bit, adamw_bf16
from ..ops.lazy import np

BLOCK = adamw_8bit.BLOCK
BLOCK_BYTES = adamw_8bit.WORDS * ELEMENT_BYTES


@dataclass(frozen=True)
class Moments:
    """One way. kernel: whose operands they are. unit_bytes: of the moments of 64 elements. dtypes: in a file, by region."""

    name: str
    kernel: str
    unit_bytes: int
    dtypes: dict[str, str]

    @property
    def packed(self) -> bool:
        """Whether a region holds words of more than one moment, and no float32."""
        return self.name != "f32"

    def place(self, offset_bytes: int) -> int:
        """Byte of the moments of what is at a byte (a multiple of 256) of the flat buffers."""
        return offset_bytes // ALIGN_BYTES * self.unit_bytes

    def nbytes(self, count: int) -> int:
        """Bytes of `count` moments as they are read and written: whole words, and whole blocks."""
        if self.name == "f32":
            return count * ELEMENT_BYTES
        return -(-count // 2) * ELEMENT_BYTES if self.name == "bf16" else -(-count // BLOCK) * BLOCK_BYTES

    def sizes(self, count: int) -> dict[str, int]:
        """Sizes of the kernel by letter, for `count` elements."""
        return {"N": count} | ({"W": self.nbytes(count) // ELEMENT_BYTES} if self.packed else {})

    def pack(self, region: str, values) -> bytes:
        """Bytes of a region from float32 values, each to the nearest."""
        values = np.ascontiguousarray(values, np.float32).reshape(-1)
        if self.name == "f32":
            return values.astype("<f4").tobytes()
        words = adamw_bf16.pack(values) if self.name == "bf16" else adamw_8bit.pack(values, region == "m")
        return words.astype("<u4").tobytes()

    def unpack(self, region: str, data, count: int):
        """float32 [count] that a region's bytes stand for."""
        words = np.frombuffer(data, "<u4")
        if self.name == "f32":
            return words.view("<f4")[:count]
        return adamw_bf16.unpack(words, count) if self.name == "bf16" else adamw_8bit.unpack(words, count, region == "m")


KINDS = {
    each.name: each
    for each in (
        Moments("f32", "adamw", ALIGN_BYTES, {"m": "F32", "v": "F32"}),
        Moments("bf16", "adamw_bf16", ALIGN_BYTES // 2, {"m": "BF16", "v": "BF16"}),
        Moments("8bit", "adamw_8bit", BLOCK_BYTES, {"m": "I8", "v": "U8"}),
    )
}
BY_KERNEL = {each.kernel: each for each in KINDS.values()}
