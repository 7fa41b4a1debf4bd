"""Lowering of low-rank adapters (shaders/lora.wgsl): products whose one side has a few numbers, so tiles of a matmul do not suit."""

from __future__ import annotations

from collections.abc import Iterator

from ...dims import ELEMENT_BYTES
from ...errors import DeviceLimitError
from .dispatch import Call, Dispatch, ceil_div
from .flat import THREADS, vectors

FEW_ROWS = 256
"""Up to so many rows each has a workgroup of its own: a cached decoder's step has one."""
ROW_GROUPS, SHARE = 4, 2
"""Else a thread has SHARE rows, and a workgroup at most ROW_GROUPS times as many."""
TOGETHER = 4
BLOCK_ROWS, MOST_BLOCKS, MOST_SCRATCH_BYTES = 32, 64, 16 << 20
"""The weights' gradients are summed over blocks of at least so many rows, in at most so many blocks and so much scratch."""


def _power(most: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (most.bit_length() - 1)


def _ranks(call: Call) -> dict[str, object]:
    """Constants of shaders/lora_rank.wgsl."""
    rank = call.sizes["K"]
    return {"QUADS": ceil_div(rank, 4), "VECTORS_K": vectors(rank)}


def _rows(call: Call) -> dict[str, object]:
    """Constants of shaders/lora_rows.wgsl. Raises DeviceLimitError where a row's ranks are more than a workgroup's threads take."""
    quads, most = ceil_div(call.sizes["K"], 4), min(call.limits.invocations, THREADS)
    if quads > most:
        raise DeviceLimitError(
            "webgpu", f"an adapter's rank is at most {4 * most:,} on this device", f"{call.sizes['K']:,} came", "choose a smaller rank"
        )
    groups, share = (1, 1) if call.sizes["R"] <= FEW_ROWS else (min(ROW_GROUPS, _power(most // quads)), SHARE)
    return _ranks(call) | {"ROWS": groups * share, "SHARE": share, "LANES": _power(most // (groups * quads))}


def lora(call: Call) -> Iterator[Dispatch]:
    """hidden and the change of y, in one."""
    s, constants = call.sizes | {"first": call.params["first"]}, _rows(call)
    constants |= {"VECTORS": vectors(s["O"], s["J"], s["first"]), "TOGETHER": min(TOGETHER, constants["ROWS"])}
    yield call.dispatch("x down up strength y hidden", ceil_div(s["R"], constants["ROWS"]), s, constants)


def lora_backward_hidden(call: Call) -> Iterator[Dispatch]:
    """dhidden."""
    s, constants = call.sizes | {"first": call.params["first"]}, _rows(call)
    yield call.dispatch("dy up strength dhidden", ceil_div(s["R"], constants["ROWS"]), s, constants)


def lora_backward_input(call: Call) -> Iterator[Dispatch]:
    """dx, in threads of several rows."""
    s, wide = call.sizes, vectors(call.sizes["I"])
    width = s["I"] // 4 if wide else s["I"]
    together = min(TOGETHER, s["R"])
    values = s | {"width": width, "accumulate": call.params["accumulate"]}
    constants = _ranks(call) | {"VECTORS": wide, "TOGETHER": together}
    groups = ceil_div(ceil_div(s["R"], together) * width, THREADS)
    yield call.dispatch("dhidden down dx", groups, values, constants)


def lora_backward_weight(call: Call) -> Iterator[Dispatch]:
    """Sums over blocks of rows, then of the blocks."""
    s, constants = call.sizes, _ranks(call)
    quads = constants["QUADS"]
    constants["EACH"] = next(each for each in (4, 3, 2, 1) if quads % each == 0)
    elements = (s["I"] + s["J"]) * s["K"]
    most = max(1, min(MOST_BLOCKS, MOST_SCRATCH_BYTES // (elements * ELEMENT_BYTES)))
    block = max(BLOCK_ROWS, ceil_div(s["R"], most))
    blocks = ceil_div(s["R"], block)
    input_groups = ceil_div(s["I"], THREADS)
    values = s | {"first": call.params["first"], "blocks": blocks, "block": block, "input_groups": input_groups}
    scratch = blocks * elements * ELEMENT_BYTES
    groups = (input_groups + ceil_div(s["J"], THREADS), quads // constants["EACH"], blocks)
    yield call.dispatch("x hidden dhidden dy", groups, values, constants, scratch_bytes=scratch)
    total = "lora_backward_weight_total"
    yield call.dispatch("strength ddown dup", ceil_div(elements, THREADS), values, constants, total, scratch_bytes=scratch)
