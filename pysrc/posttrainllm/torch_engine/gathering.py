"""Weights and moments, tensor by tensor: out of all processes into a save, and from a save into all of them.

A save reads each tensor when it comes to it. Under FSDP2 that is when the processes put it together, so that none ever holds more
than one whole tensor beside its share.
"""

from __future__ import annotations

from typing import Any

import torch

from ..store.buffers import FileRange, Tensor, in_python, pieces
from .ranks import Ranks

REGIONS = ("params", "m", "v")
"""In the order of a checkpoint's file."""


class Gathering:
    """One pass over the tensors (region, name) in an order that all processes know. Each is put together once."""

    def __init__(self, model: Any, regions: tuple[str, ...] = REGIONS) -> None:
        self._model = model
        self._order = [(region, name) for region in regions for name in model.weight_names()]
        self._at, self._bytes = 0, memoryview(b"")

    def bytes_of(self, region: str, name: str) -> memoryview:
        """A tensor's float32 bytes, on the leader. Ones before it that nobody asked for are put together and let go."""
        place = self._order.index((region, name))
        if place < self._at - 1:
            raise RuntimeError(f"{region} {name} was read out of order")
        while self._at <= place:
            self._next()
        return self._bytes

    def finish(self) -> None:
        """Take part in all that is left: what the others do while the leader saves, and the leader where a save broke off."""
        while self._at < len(self._order):
            self._next()
        self._bytes = memoryview(b"")

    def _next(self) -> None:
        self._bytes = memoryview(b"")  # before the next one is there
        self._bytes = self._model.whole_bytes(*self._order[self._at])
        self._at += 1


class _Source:
    """One tensor of a Gathering, as store/buffers.py reads a file."""

    def __init__(self, gathering: Gathering, region: str, name: str, size: int) -> None:
        self._gathering, self._region, self._name, self.size = gathering, region, name, size

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        return self._gathering.bytes_of(self._region, self._name)[offset : offset + nbytes]


def window(gathering: Gathering, region: str, name: str, nbytes: int) -> FileRange:
    """A tensor's data for a Checkpoint, which is read when it is written."""
    return FileRange(_Source(gathering, region, name, nbytes), 0, nbytes)


def spread(ranks: Ranks, model: Any, groups: dict[str, dict[str, Tensor]] | None) -> None:
    """Fill the model's parts of REGIONS from a checkpoint's groups, which only the leader has."""
    wrapped = model.wrapped
    for region in REGIONS:
        for name in model.weight_names():
            shape = wrapped.parameters[name].shape
            whole = torch.empty(shape, dtype=torch.float32)
            if ranks.leads:
                _read(groups[region][name], whole)
            whole = ranks.share(whole.to(ranks.device))
            model.held(name, region).copy_(wrapped.part(name, whole))


def _read(tensor: Tensor, into: torch.Tensor) -> None:
    target, at, scratch = memoryview(into.numpy()).cast("B"), 0, bytearray()
    for piece in pieces(tensor.data):
        raw = in_python(piece, scratch)
        target[at : at + raw.nbytes] = raw
        at += raw.nbytes
