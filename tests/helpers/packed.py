"""The words in which adamw_bf16 and adamw_8bit keep moments, for the tests."""

import numpy as np

from posttrainllm.ops import adamw_8bit, adamw_bf16

PACKED = ("adamw_bf16", "adamw_8bit")


def packed_words(name: str, count: int) -> int:
    """Words of `count` moments."""
    return -(-count // 2) if name == "adamw_bf16" else -(-count // 64) * 17


def pack(name: str, moment: str, values) -> np.ndarray:
    """Moments "m" or "v" as a kernel's words, to the nearest."""
    words = adamw_bf16.pack(values) if name == "adamw_bf16" else adamw_8bit.pack(values, moment == "m")
    return words.view(np.int32)


def beside(name: str, moment: str, values, rubbish) -> np.ndarray:
    """The words of float32 values, and those of `rubbish` where no element's bits are."""
    ours = pack(name, moment, np.ones(values.size, np.float32)).view(np.uint8) != 0
    if name == "adamw_bf16":  # 1.0 has a byte that is zero
        ours = np.repeat(ours.reshape(-1, 2).any(axis=1), 2)
    else:  # and the scale three
        ours.reshape(-1, 68)[:, :4] = True
    return np.where(ours, pack(name, moment, values).view(np.uint8), rubbish.view(np.uint8)).view(np.int32)


def unpacked(name, moment, words, count):
    """(moments as float64, about the distance to a neighbouring one) of a kernel's words."""
    words = np.ascontiguousarray(words).view(np.uint32)
    if name == "adamw_bf16":
        values = adamw_bf16.unpack(words, count).astype(float)
        return values, np.abs(values) * 2.0**-7
    scales, codes = adamw_8bit.blocks_of(words)
    signed, power, most = (True, 2, 127) if moment == "m" else (False, 4, 255)
    values = adamw_8bit.decode(scales, codes, signed).astype(float)
    share = (np.abs(values) / np.where(scales > 0, scales, 1)[:, None]) ** (1 / power)
    steps = scales[:, None] * ((share + 1 / most) ** power - share**power)
    return values.reshape(-1)[:count], steps.reshape(-1)[:count]
