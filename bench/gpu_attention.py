"""Attention of the GPU engine natively: microseconds and TFLOP/s of each pass with every tile."""

from __future__ import annotations

from posttrainllm.backends.gpu import attention_tiles
from posttrainllm.compile import Graph, Value, place, record
from posttrainllm.dims import product, round_up
from posttrainllm.errors import DeviceError
from posttrainllm.ops import kernel

from bench.gpu_matmul import fill, timed

PRODUCTS = {"attention": 2, "attention_backward": 3, "attention_backward_keys": 4}
"""Multiplications of T × D by T of each pass."""


def tape_of(name: str, sizes: dict[str, int]):
    """One kernel with everything in the arena."""
    graph, at, values = Graph(), 0, {}
    for argument in kernel(name).args:
        shape = kernel(name).shape(argument, sizes)
        values[argument.name] = Value(argument.name, shape, argument.dtype, "arena", at)
        at += round_up(product(shape) * 4, 256)
    graph.call(name, sizes, **values)
    return record(place(graph))


def sweep(machine, sizes: dict[str, int], label: str) -> list[dict]:
    """Every candidate of attention_tiles for every entry; the causal half of the work is counted."""
    rows, candidates = [], getattr(attention_tiles, "CANDIDATES", attention_tiles.ATTENTION_TILES)
    for name, entries in attention_tiles.ENTRIES.items():
        tape = tape_of(name, sizes)
        for entry, _ in entries:
            others = [e for e, _ in entries if e != entry]
            for tile in candidates[entry]:
                if not tile.fits(machine.limits, entry, sizes["D"]):
                    continue
                attention_tiles.FORCED = {entry: tile}
                row = {"preset": label, "precision": machine.options.precision, "entry": entry, "tile": str(tile)}
                try:
                    loaded = machine.load(tape)
                    if not rows:
                        fill(machine)
                    calls = machine.calls_of(loaded)
                    loaded.calls = [c for c, d in zip(calls, loaded.lowered.dispatches) if d.entry not in others]
                    us = 1e3 * timed(machine, loaded, 5.0)
                    flops = PRODUCTS[entry] * sizes["B"] * sizes["H"] * sizes["T"] ** 2 * sizes["D"]
                    row |= {"us": round(us, 1), "tflops": round(flops / us / 1e6, 2)}
                except DeviceError as error:
                    row["error"] = str(error)[:200]
                finally:
                    attention_tiles.FORCED = {}
                rows.append(row)
    return rows
