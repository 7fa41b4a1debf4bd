"""A checkpoint's tensors, on their way into an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..model.live import GPT
from ..store.buffers import CHUNK_BYTES, Tensor, in_python, nbytes, pieces
from ..store.checkpoint import Checkpoint
from . import moments


def fill(model: GPT, checkpoint: Checkpoint, training: bool) -> None:
    """Copy the tensors into the engine, at most CHUNK_BYTES at a time: Python never holds a second copy of a model."""
    model.forget_cache()
    groups, plain = {"params": checkpoint.weights}, False
    if training:
        plain = moments.kind_of(checkpoint) == model.program.saving.moments == "f32"
        groups |= {"m": checkpoint.m, "v": checkpoint.v} if plain else {}
    upload(model, groups)
    if training and not plain:
        moments.fill(model, checkpoint)


def upload(model: GPT, groups: dict[str, dict[str, Tensor]]) -> None:
    """Tensors by region and name, as they are."""
    scratch = bytearray(min(CHUNK_BYTES, max(tensor.nbytes for tensor in groups["params"].values())))
    for region, group in groups.items():
        for name, tensor in group.items():
            start, _ = model.weight_address(name, region)
            for piece in python_pieces(tensor.data, scratch):
                model.machine.upload(start, piece)
                start += piece.nbytes


def python_pieces(data: Any, scratch: bytearray) -> Iterator[memoryview]:
    """Data in order as bytes that Python can read; `scratch` takes what comes from JavaScript."""
    for piece in pieces(data):
        yield in_python(piece, scratch if nbytes(piece) <= len(scratch) else bytearray(nbytes(piece)))
