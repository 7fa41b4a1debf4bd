"""First weights in torch's integer arithmetic: the same bits as ops/normal.py's, from any element on, so that each process makes its own."""

from __future__ import annotations

import torch

from ..model.gpt import Parameter
from ..ops.normal import GOLDEN, mix

CHUNK = 1 << 20
"""Elements at a time: a few 8 MiB arrays of 64-bit integers."""


def normal_(x: torch.Tensor, std: float, stream: int, seed: int, first: int = 0) -> torch.Tensor:
    """Fill x (contiguous float32, on any device) with elements first … first+N-1 of the stream: std·z, z as ops/normal.py has it."""
    flat, key = x.view(-1), mix(seed + GOLDEN * (stream + 1))
    scale = torch.tensor(std, dtype=torch.float32, device=x.device)
    for begin in range(0, flat.numel(), CHUNK):
        part = flat[begin : begin + CHUNK]
        index = torch.arange(first + begin, first + begin + part.numel(), dtype=torch.int64, device=x.device)
        total = torch.full_like(index, -6 * 65535)
        for word in range(3):
            bits = _mixed(index * _signed(3 * GOLDEN) + _signed(key + GOLDEN * (word + 1)))
            for shift in (0, 16, 32, 48):
                total += (bits >> shift) & 0xFFFF
        part.copy_(scale * (total.to(torch.float32) * 2.0**-16))  # both exact but for the product with std: one rounding
    return x


def fill(local: torch.Tensor, parameter: Parameter, stream: int, seed: int, first_row: int) -> None:
    """Give a weight, or the rows of it from first_row on, its starting value; `stream` is its place among the model's weights."""
    if parameter.std:
        row = 1
        for size in parameter.shape[1:]:
            row *= size
        normal_(local, parameter.std, stream, seed, first_row * row)
    else:
        local.fill_(parameter.constant)


def _mixed(z: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser on int64, whose products wrap; a right shift of an unsigned word is one whose copied sign bits go."""
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _shifted(z: torch.Tensor, places: int) -> torch.Tensor:
    return (z >> places) & ((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    """A 64-bit word as the int64 of the same bits."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word
