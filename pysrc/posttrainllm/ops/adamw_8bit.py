"""adamw_8bit: the step of adamw.py with both moments in 8 bits and a scale for every 64 elements: 27 % of the memory.

A block is 17 words: its largest magnitude as float32, then 64 codes. A code c of m (signed) is scale·c·|c|/127², one of v (from 0
to 255) scale·(c/255)⁴: both m and sqrt(v) go through a square, fine near 0 where most elements are. Blocks: Dettmers et al., arXiv
2110.02861, whose own are of 2,048 elements and map through a table. 64 are what a weight's place in the flat buffers is a multiple
of, so that no block belongs to two weights.

The weight's step is made of the new moments in float32. Each code is then one of the two next to it, the upper with a chance of the
distance from the lower, by the hash of adamw_bf16.py and for its reason; a v that is not 0 keeps a code that is not 0, so that no
step is divided by eps alone. Elements past N count as zeros.

m and v are NumPy's float32 here, operation by operation as the engines do it, so that the bits are those of the CPU engine.
"""

from .adamw_bf16 import as_words, chances, moved, step_weights
from .lazy import np
from .spec import Kernel, args

BLOCK = 64
WORDS = 1 + BLOCK // 4
SMALLEST = 2.0**-126
"""A block whose largest is below the least normal number is all zeros."""


def blocks_of(words):
    """(scales [blocks] float32, codes [blocks, 64] uint8) of uint32 words."""
    table = np.ascontiguousarray(words).reshape(-1, WORDS)
    return table[:, 0].copy().view(np.float32), table[:, 1:].copy().view(np.uint8)


def words_of(scales, codes):
    """uint32 words of scales and codes."""
    return np.concatenate([scales.astype("<f4").view("<u4")[:, None], np.ascontiguousarray(codes).view("<u4")], axis=1).reshape(-1)


def decode(scales, codes, signed: bool):
    """float32 [blocks, 64]; signed for m."""
    if signed:
        part = codes.view(np.int8).astype(np.float32) * np.float32(1 / 127)
        return part * np.abs(part) * scales[:, None]
    part = codes.astype(np.float32) * np.float32(1 / 255)
    return (part * part) * (part * part) * scales[:, None]


def encode(values, signed: bool, chance=None):
    """(scales, codes) of float32 [blocks, 64]; without `chance` (uint32 [blocks, 64]) to the nearest code."""
    size = np.abs(values)
    scales = size.max(axis=1)
    scales = np.where(scales < np.float32(SMALLEST), np.float32(0), scales)
    some = scales > 0
    inverse = np.where(some, np.float32(1) / np.where(some, scales, np.float32(1)), np.float32(0))
    most = np.float32(127 if signed else 255)
    share = np.sqrt(size * inverse[:, None])
    share = share if signed else np.sqrt(share)
    up = np.float32(0.5) if chance is None else chance.astype(np.float32) * np.float32(2.0**-16)
    codes = np.minimum(np.floor(share * most + up), most)
    if signed:
        return scales, np.where(values < 0, -codes, codes).astype(np.int8).view(np.uint8)
    return scales, np.where((values > 0) & some[:, None], np.maximum(codes, np.float32(1)), codes).astype(np.uint8)


def _blocked(values):
    """Any values by element [N] as [blocks, 64], zeros at the end."""
    return np.append(values, np.zeros(-values.size % BLOCK, values.dtype)).reshape(-1, BLOCK)


def unpack(words, count: int, signed: bool):
    """float32 [count] of uint32 words."""
    return decode(*blocks_of(words), signed).reshape(-1)[:count]


def pack(values, signed: bool, chance=None):
    """uint32 words of float32 [count]; without `chance` to the nearest code."""
    return words_of(*encode(_blocked(values), signed, None if chance is None else _blocked(chance)))


def _adamw_8bit(sizes, params, grad, norm, recipe, param, m, v):
    if not np.isfinite(norm[0]):
        return
    count = sizes["N"]
    before = unpack(as_words(m), count, True), unpack(as_words(v), count, False)
    first, second = moved(recipe, norm[0], grad, *before)
    step_weights(recipe, params[0], param, first, second)
    for words, values, signed, chance in zip((m, v), (first, second), (True, False), chances(norm[0], count)):
        words[...] = pack(values, signed, chance).view(np.int32)


ADAMW_8BIT = Kernel(
    "adamw_8bit",
    ("N", "W"),
    args("in grad [N]", "in norm [1]", "in recipe [8]", "inout param [N]", "inout m [W] i32", "inout v [W] i32"),
    _adamw_8bit,
    params=(("decayed", "int"),),
    flops=lambda s: 40 * s["N"],
    tolerance=4.0,
    source="arXiv 1711.05101; blocks: arXiv 2110.02861",
)
