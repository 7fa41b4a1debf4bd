"""AdamW's moments between a live model and a file, whichever way each of them keeps them (model/moments.py).

In a file they are tensors by the weights' names: F32 or BF16 windows on the engine's memory, or codes (I8 for m, U8 for v) and scales
(F32, one for every 64 elements), which lie interleaved in the engine and are taken apart while they are written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..dims import ELEMENT_BYTES
from ..errors import FormatError
from ..model.live import GPT
from ..model.moments import BLOCK, BLOCK_BYTES, KINDS, Moments
from ..ops.lazy import np
from ..store.buffers import FileRange, MemorySource, Tensor, is_js
from ..store.checkpoint import Checkpoint
from ..store.strict_json import quote

REGIONS = ("m", "v")
PIECE = 1 << 20
"""Elements converted at a time: a multiple of 64."""


class _Part:
    """The codes, or the scales, of blocks as a source of bytes."""

    def __init__(self, blocks: Any, scales: bool) -> None:
        self._blocks, self._first, self._each = MemorySource(blocks), 0 if scales else ELEMENT_BYTES, ELEMENT_BYTES if scales else BLOCK
        self.size = self._blocks.size // BLOCK_BYTES * self._each

    def read_at(self, offset: int, nbytes: int) -> bytes:
        low, high = offset // self._each, -(-(offset + nbytes) // self._each)
        raw = bytes(self._blocks.read_at(low * BLOCK_BYTES, (high - low) * BLOCK_BYTES))
        data = bytearray((high - low) * self._each)
        _copy_columns(raw, BLOCK_BYTES, self._first, data, self._each, 0)
        return bytes(data[offset - low * self._each :][:nbytes])


def _copy_columns(source: bytes, width: int, first: int, target: bytearray, other: int, at: int) -> None:
    """Columns of one table of bytes, from `first` on, into another's from `at` on: all that the narrower one has."""
    count = min(width, other)
    try:
        columns = np.frombuffer(source, np.uint8).reshape(-1, width)[:, first : first + count]
    except ImportError:  # a page that trains has not loaded NumPy: a column at a time, slower
        for byte in range(count):
            target[at + byte :: other] = source[first + byte :: width]
    else:
        np.frombuffer(target, np.uint8).reshape(-1, other)[:, at : at + count] = columns


def tensors_of(model: GPT) -> dict[str, dict[str, Tensor]]:
    """m, v, and of 8-bit moments m_scale and v_scale: tensors by name, as windows on the engine's memory."""
    kind, found = KINDS[model.program.saving.moments], {region: {} for region in REGIONS}
    if kind.name == "8bit":
        found |= {f"{region}_scale": {} for region in REGIONS}
    for region in REGIONS:
        for parameter in model.program.layout.trainable:
            name, shape = parameter.name, parameter.shape
            view, count = model.weight_view(name, region), math.prod(shape)
            if kind.name == "8bit":
                scales = _Part(view, True)
                found[f"{region}_scale"][name] = Tensor("F32", (scales.size // ELEMENT_BYTES,), FileRange(scales, 0, scales.size))
                view = FileRange(_Part(view, False), 0, count)
            elif kind.name == "bf16":
                view = view.subarray(0, 2 * count) if is_js(view) else view[: 2 * count]
            found[region][name] = Tensor(kind.dtypes[region], shape, view)
    return found


def kind_of(checkpoint: Checkpoint) -> str:
    """How a run's moments are kept, by the first of them: "bf16", "8bit", or else "f32". `checked` sees that all are so."""
    first = next(iter(checkpoint.m.values()), None)
    return next((kind.name for kind in KINDS.values() if first is not None and first.dtype == kind.dtypes["m"]), "f32")


def require_scales(checkpoint: Checkpoint) -> None:
    """Raise FormatError unless 8-bit moments of a run that was seen to be whole have a scale for every 64 elements, each a number from 0 on, and others none."""
    eight = kind_of(checkpoint) == "8bit"
    for region in REGIONS:
        scales, codes = getattr(checkpoint, f"{region}_scale"), getattr(checkpoint, region)
        prefix = f"adamw.{region}_scale."
        for name in sorted(scales.keys() ^ (codes.keys() if eight else set())):
            came = "it is missing" if name not in scales else f"{quote(prefix + name)} came"
            _refuse(f"it holds {prefix}{name}" if name not in scales else "it holds scales of 8-bit moments alone", came)
        for name, tensor in scales.items():
            blocks = -(-math.prod(codes[name].shape) // BLOCK)
            if tensor.dtype != "F32" or tuple(tensor.shape) != (blocks,) or tensor.nbytes != ELEMENT_BYTES * blocks:
                _refuse(f"{prefix}{name} is F32 [{blocks}]", f"it is {quote(tensor.dtype)} {quote(list(tensor.shape))}")
            numbers = tensor.view().cast("B").cast("f")
            if not math.isfinite(sum(numbers)) or min(numbers) < 0:
                _refuse(f"the scales of {prefix}{name} are numbers from 0 on", "one is not")


def _refuse(rule: str, came: str) -> None:
    raise FormatError("the run", rule, came, "choose a file that this program saved", code="E-FORMAT-TENSOR")


def fill(model: GPT, checkpoint: Checkpoint) -> None:
    """Copy a run's moments into the engine, a piece at a time. Where the model keeps them otherwise than the run did, each number
    becomes the nearest that there is."""
    saved, kept = KINDS[kind_of(checkpoint)], KINDS[model.program.saving.moments]
    for region in REGIONS:
        for name in getattr(checkpoint, region):
            start, _ = model.weight_address(name, region)
            for count, data in _pieces(checkpoint, region, name, saved):
                if saved is not kept:
                    data = kept.pack(region, saved.unpack(region, data, count))
                model.machine.upload(start, data)
                start += len(data)


def _pieces(checkpoint: Checkpoint, region: str, name: str, saved: Moments) -> Iterator[tuple[int, bytes]]:
    """(elements, their bytes as a region of that kind has them), in order."""
    total = math.prod(getattr(checkpoint, region)[name].shape)
    for first in range(0, total, PIECE):
        count = min(PIECE, total - first)
        yield count, _saved(checkpoint, region, name, saved, first, count)


def _saved(checkpoint: Checkpoint, region: str, name: str, saved: Moments, first: int, count: int) -> bytes:
    """Bytes of elements first … first + count (first a multiple of 64), as a region of that kind has them."""
    each = {"f32": ELEMENT_BYTES, "bf16": 2, "8bit": 1}[saved.name]
    data = _read(getattr(checkpoint, region)[name].data, first * each, count * each)
    if saved.name == "8bit":
        blocks = -(-count // BLOCK)
        scales = _read(getattr(checkpoint, f"{region}_scale")[name].data, first // BLOCK * ELEMENT_BYTES, blocks * ELEMENT_BYTES)
        raw, codes = bytearray(blocks * BLOCK_BYTES), data.ljust(blocks * BLOCK, b"\0")
        _copy_columns(scales, ELEMENT_BYTES, 0, raw, BLOCK_BYTES, 0)
        _copy_columns(codes, BLOCK, 0, raw, BLOCK_BYTES, ELEMENT_BYTES)
        data = bytes(raw)
    return data.ljust(saved.nbytes(count), b"\0")


class _Full:
    """A weight's moments as float32, as a source of bytes: unpacked where they are read."""

    def __init__(self, checkpoint: Checkpoint, region: str, name: str, saved: Moments) -> None:
        self._of, self._saved = (checkpoint, region, name, saved), saved
        self.size = ELEMENT_BYTES * math.prod(getattr(checkpoint, region)[name].shape)

    def read_at(self, offset: int, nbytes: int) -> bytes:
        first = offset // ELEMENT_BYTES // BLOCK * BLOCK
        count = -(-(offset + nbytes) // ELEMENT_BYTES) - first
        numbers = self._saved.unpack(self._of[1], _saved(*self._of, first, count), count)
        return numbers.astype("<f4").tobytes()[offset - first * ELEMENT_BYTES :][:nbytes]


def in_full(checkpoint: Checkpoint) -> dict[str, dict[str, Tensor]]:
    """m and v of a run as F32 tensors, however it kept them; what is packed is unpacked where it is read."""
    saved = KINDS[kind_of(checkpoint)]
    if not saved.packed:
        return {region: getattr(checkpoint, region) for region in REGIONS}
    found: dict[str, dict[str, Tensor]] = {region: {} for region in REGIONS}
    for region in REGIONS:
        for name, tensor in getattr(checkpoint, region).items():
            source = _Full(checkpoint, region, name, saved)
            found[region][name] = Tensor("F32", tuple(tensor.shape), FileRange(source, 0, source.size))
    return found


def _read(data: Any, offset: int, nbytes: int) -> bytes:
    if isinstance(data, FileRange):
        return bytes(data.source.read_at(data.offset + offset, nbytes))
    return bytes(MemorySource(data).read_at(offset, nbytes))
