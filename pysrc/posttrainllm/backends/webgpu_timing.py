"""What the probe (gpu/probe.py) asks of a native machine: times by the GPU's own clock, and losers' pipelines back."""

from __future__ import annotations

import struct

from .gpu.dispatch import Dispatch


def time_replays(machine, loadeds: list, repeats: int) -> list[float]:
    """Milliseconds of one replay of each tape, over `repeats` in a row: a pass for each with two timestamps, one submit.

    The device must have timestamp-query.
    """
    wgpu, device, count = machine._wgpu, machine._device, 2 * len(loadeds)
    queries = device.create_query_set(type="timestamp", count=count)
    resolved = device.create_buffer(size=8 * count, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
    encoder = device.create_command_encoder()
    for number, loaded in enumerate(loadeds):
        calls = machine.calls_of(loaded)
        writes = {
            "query_set": queries,
            "beginning_of_pass_write_index": 2 * number,
            "end_of_pass_write_index": 2 * number + 1,
        }
        machine._encode(encoder, calls * repeats, writes)
    encoder.resolve_query_set(queries, 0, count, resolved, 0)
    machine.submit(encoder)
    ticks = struct.unpack(f"<{count}Q", bytes(machine._call(device.queue.read_buffer, resolved)))
    resolved.destroy()
    return [(ticks[i + 1] - ticks[i]) / 1e6 / repeats for i in range(0, count, 2)]


def key_of(dispatch: Dispatch) -> tuple:
    """What a pipeline is kept by."""
    kinds = tuple((index, writes) for index, _, writes in dispatch.bindings)
    return dispatch.kernel, dispatch.entry, dispatch.constants, kinds


def forget(machine, losers: list, winners: list) -> None:
    """Give back the pipelines that only `losers` use; those tapes are not replayed again."""
    kept, gone = ({key_of(d) for loaded in group for d in loaded.lowered.dispatches} for group in (winners, losers))
    for key in gone - kept:
        machine._pipelines.pop(key, None)
