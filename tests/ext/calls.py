"""Calls of every kernel with sizes on both sides of the engine's tiles, and random data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tests.ext.tapes import KERNELS, Call, extent
from tests.helpers.packed import pack, packed_words

SIZES = {
    "N": [1, 15, 16, 17, 1000, 16385, 70001],
    "NW": [1, 2, 15, 63, 64, 65, 1000, 16385, 70001],
    "RC": [(1, 1), (3, 5), (33, 128), (257, 130), (70, 1000)],
    "RIO": [
        (1, 1, 1), (5, 3, 7), (33, 130, 40), (64, 257, 97), (70, 96, 288), (3, 512, 1000), (13, 270, 790), (300, 300, 33), (41, 513, 520)
    ],
    "BTHD": [
        (1, 1, 1, 1), (2, 7, 3, 5), (1, 64, 2, 16), (2, 65, 2, 32), (1, 130, 1, 48), (1, 200, 2, 128), (1, 33, 1, 256)
    ],
    "THDP": [(1, 1, 1, 1), (1, 3, 5, 9), (1, 2, 32, 200), (7, 2, 16, 64), (65, 1, 48, 300), (130, 2, 20, 131), (3, 1, 256, 70)],
    "RCV": [(1, 1, 1), (37, 48, 256), (90, 130, 300)],
    "RV": [(1, 2), (5, 7), (64, 256), (9, 1001)],
    "ST": [(1, 1), (3, 7), (2, 64), (5, 1001)],
    "NG": [(1, 1), (16384, 1), (16385, 2), (70001, 5)],
    "RIOKJ": [
        (1, 1, 4, 1, 1), (5, 3, 10, 2, 7), (33, 130, 40, 4, 16), (300, 96, 288, 8, 96), (70, 257, 97, 33, 90), (9, 20, 600, 600, 521)
    ],
    "ROKJ": [(1, 4, 1, 1), (5, 10, 2, 7), (33, 40, 4, 16), (300, 288, 8, 96), (70, 297, 33, 290)],
    "RIK": [(1, 1, 1), (5, 3, 7), (33, 130, 4), (300, 96, 8), (64, 257, 97)],
    "BTCVP": [(1, 1, 1, 1, 1), (2, 5, 7, 11, 6), (3, 40, 48, 30, 64)],
}
PARAMETERS = {"": [[]], "f": [[0.1]], "fi": [[0.02, 3]], "b": [[0], [1]], "i": [[0], [3]]}


def value(random: np.random.Generator, name: str, operand: str, sizes: dict[str, int], rule: str) -> np.ndarray:
    """Data in the operand's domain."""
    count = extent(rule, sizes)
    if operand == "tokens":
        return random.integers(0, sizes["V"], count).astype(np.int32)
    if operand == "targets":
        return np.where(random.random(count) < 0.1, -100, random.integers(0, sizes["V"], count)).astype(np.int32)
    if operand == "position":
        return random.integers(0, sizes["P"] - sizes["T"] + 1, count).astype(np.int32)
    if operand == "seed":
        return np.array([42, 7], np.int32)
    if operand == "recipe":
        return np.array([3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 3.69, 7.01], np.float32)
    if operand in ("m", "v") and rule == "W":
        moments = random.standard_normal(sizes["N"]).astype(np.float32)
        return pack(name, operand, moments if operand == "m" else moments**2)
    data = random.standard_normal(count) * (3 if operand == "logits" else 1)
    if operand in ("v", "rstd", "norm") or (operand, name) == ("loss", "cross_entropy_backward"):
        data = np.abs(data) + 0.5
    if operand == "lse":
        data += 4
    return data.astype(np.float32)


def calls(seed: int = 1) -> Iterator[Call]:
    """Each kernel at each of its sizes and parameters."""
    random = np.random.default_rng(seed)
    for name, kernel in KERNELS.items():
        for letters, parameters in itertools.product(SIZES[kernel.letters], PARAMETERS[kernel.parameters]):
            sizes = dict(zip(kernel.letters, letters if isinstance(letters, tuple) else (letters,)))
            if kernel.letters == "NW":
                sizes["W"] = packed_words(name, sizes["N"])
            values = {operand: value(random, name, operand, sizes, rule) for operand, _, rule in kernel.operands}
            yield Call.make(name, sizes, parameters, values)
