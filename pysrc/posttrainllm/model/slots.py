"""What changes from step to step, and what a step says: their places in the regions inputs, slots and metrics.

A batch that goes through in K parts (Saving.micro_batches) has a place for each: tokens and targets of part k at k·stride, the share
of the loss that its rows have in a slot of its own, and its mean loss with the count it is of in a metric of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..compile.graph import Value
from ..compile.tape import OFFSET_MASK, address
from ..dims import ALIGN_BYTES, ELEMENT_BYTES, round_up
from ..ops.lazy import np

RECIPE = Value("recipe", (8,), "f32", "slots", 0)
SEED = Value("seed", (2,), "i32", "slots", ALIGN_BYTES)
DLOSS = Value("dloss", (1,), "f32", "slots", 2 * ALIGN_BYTES)
POSITION = Value("position", (1,), "i32", "slots", 3 * ALIGN_BYTES)
SLOT_BYTES = 8 * ALIGN_BYTES
"""With room for the slots of other losses (tune/)."""
LOSS = Value("loss", (2,), "f32", "metrics", 0)
NORM = Value("gradient_norm", (1,), "f32", "metrics", ALIGN_BYTES)
METRIC_BYTES = 2 * ALIGN_BYTES


def pack_recipe(values: Iterable[float]) -> bytes:
    """The recipe slot: eight little-endian floats."""
    return struct.pack("<8f", *values)


def inputs(batch: int, time: int, parts: int = 1) -> tuple[Value, Value]:
    """Tokens and targets [B,T] of the first of so many parts of B rows, where a tape reads them: all tokens, then all targets."""
    tokens = Value("tokens", (batch, time), "i32", "inputs", 0)
    return tokens, Value("targets", (batch, time), "i32", "inputs", parts * stride_bytes(tokens))


def stride_bytes(one: Value) -> int:
    """From a part of a batch to the next."""
    return round_up(one.nbytes, ALIGN_BYTES)


def dloss_of(part: int, parts: int) -> Value:
    """The slot of a part's share of the loss, all of whose targets count 1 together."""
    return DLOSS if parts == 1 else Value(f"dloss[{part}]", (1,), "f32", "slots", SLOT_BYTES + part * ALIGN_BYTES)


def loss_of(part: int) -> Value:
    """Where a part leaves [mean loss of its targets that count, how many count]."""
    return LOSS if part == 0 else Value(f"loss[{part}]", (2,), "f32", "metrics", METRIC_BYTES + (part - 1) * ALIGN_BYTES)


def slot_bytes(parts: int) -> int:
    """Bytes of the region slots."""
    return SLOT_BYTES + (parts * ALIGN_BYTES if parts > 1 else 0)


def metric_bytes(parts: int) -> int:
    """Bytes from LOSS on that hold the losses of all parts, and the norm."""
    return METRIC_BYTES + (parts - 1) * ALIGN_BYTES


def places(tokens: Value, targets: Value, parts: int) -> dict[int, list[int]]:
    """The addresses of tokens, targets, share and loss of every part, by those of the first: what compile.repeat takes."""
    found = {address(one): [address(one) + part * stride_bytes(one) for part in range(parts)] for one in (tokens, targets)}
    found[address(dloss_of(0, parts))] = [address(dloss_of(part, parts)) for part in range(parts)]
    found[address(LOSS)] = [address(loss_of(part)) for part in range(parts)]
    return found


def spread(rows, one: Value, parts: int, into):
    """Write tokens or targets, int32 [count, B, T], part by part at their strides into int32 rows `into` [count, words of all strides]."""
    words, stride = one.nbytes // ELEMENT_BYTES, stride_bytes(one) // ELEMENT_BYTES
    rows = rows.reshape(len(into), parts, words)
    for part in range(parts):
        into[:, part * stride : part * stride + words] = rows[:, part]


def shares(targets, parts: int):
    """float32 [count, K] of targets [count, B, T]: how many of a part's targets count, over how many do in the batch."""
    counted = (targets.reshape(len(targets), parts, -1) >= 0).sum(2)
    return (counted / np.maximum(1, counted.sum(1, keepdims=True))).astype("<f4")


def unpack_metrics(data: bytes, parts: int = 1) -> tuple[float, float]:
    """(loss in nats, gradient norm) of the metrics region's bytes: the mean over all targets that count, whatever part they are in."""
    norm = struct.unpack_from("<f", data, address(NORM) & OFFSET_MASK)[0]
    if parts == 1:
        return struct.unpack_from("<f", data, 0)[0], norm
    found = [struct.unpack_from("<2f", data, loss_of(part).offset_bytes) for part in range(parts)]
    counted = sum(count for _, count in found)
    return (sum(loss * count for loss, count in found) / counted if counted else 0.0), norm
