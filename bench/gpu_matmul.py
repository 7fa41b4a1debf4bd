"""Matmuls of the GPU engine natively: rates by tile and layout, and each linear of a preset by tile and chunks."""

from __future__ import annotations

import statistics
import struct

from posttrainllm.backends.gpu import subjects, tiles
from posttrainllm.backends.gpu.dispatch import STATE
from posttrainllm.backends.gpu.tiles import MatmulTile
from posttrainllm.dims import product
from posttrainllm.errors import DeviceError

TWO = {"BUFFERS": 2}
SWEEP = [
    MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 128, 8, 16, 8, **TWO), MatmulTile(128, 128, 16, 16, 8, **TWO),
    MatmulTile(128, 128, 8, 8, 8, **TWO), MatmulTile(128, 128, 16, 8, 8), MatmulTile(256, 128, 8, 16, 8, **TWO), MatmulTile(256, 128, 16, 16, 8),
    MatmulTile(128, 64, 16, 8, 8), MatmulTile(128, 64, 16, 8, 8, **TWO), MatmulTile(64, 64, 16, 8, 8), MatmulTile(64, 64, 16, 8, 8, **TWO),
    MatmulTile(256, 64, 8, 16, 8, **TWO), MatmulTile(128, 256, 8, 16, 16, **TWO),
]  # fmt: skip
HALF_SWEEP = [
    MatmulTile(128, 128, 16, 16, 8),
    *subjects.HALF,
    MatmulTile(128, 128, 16, 16, 8, True, True),
    MatmulTile(256, 128, 16, 16, 8, True, True),
]
SHAPES = {
    "medium": [(2048, 128, 384), (2048, 128, 128), (2048, 128, 512), (2048, 512, 128)],
    "mega": [(1024, 384, 1152), (1024, 384, 384), (1024, 384, 1536), (1024, 1536, 384)],
    "gpt2": [(4096, 768, 2304), (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768)],
    "behemoth": [(512, 1280, 3840), (512, 1280, 1280), (512, 1280, 5120), (512, 5120, 1280)],
}
"""Linears of a step: rows, inputs, outputs."""


def fill(machine) -> None:
    """Numbers in everything the machine holds but its state: zeros run faster than data."""
    block = struct.pack("<4096e", *(((i * 7919) % 257 - 128) / 128 for i in range(4096))) * 128
    from posttrainllm.compile.tape import REGION_SHIFT

    for number, nbytes in machine._memory.nbytes.items():
        for start in range(0, nbytes if number != STATE else 0, len(block)):
            machine.upload(number << REGION_SHIFT | start, block[: nbytes - start])


def timed(machine, loaded, milliseconds: float = 15.0) -> float:
    """Milliseconds of a replay by the GPU's clock: the median of five groups, after one to warm up."""
    once = max(1e-3, machine.time_replays([loaded], 3)[0])
    repeats = max(2, int(milliseconds / once))
    machine.time_replays([loaded], repeats)
    return statistics.median(machine.time_replays([loaded], repeats)[0] for _ in range(5))


def rates(machine, size: int = 4096, layouts=("NN", "NT", "TN")) -> list[dict]:
    """TFLOP/s of every tile that the device runs, at size³."""
    rows = []
    for layout in layouts:
        tape = subjects.one_product(layout, size, size, size)
        for tile in HALF_SWEEP if machine.options.half else SWEEP:
            if not tile.fits(machine.limits):
                continue
            tiles.FORCED = [(tile, 1)]
            row = {
                "precision": machine.options.precision,
                "layout": layout,
                "tile": [int(v) for v in tile.constants().values()],
            }
            try:
                loaded = machine.load(tape)
                if not rows:
                    fill(machine)
                ms = timed(machine, loaded)
                row |= {"ms": round(ms, 3), "tflops": round(2 * size**3 / ms / 1e9, 2)}
            except DeviceError as error:  # a tile that a driver refuses is a result
                row["error"] = str(error)[:200]
            finally:
                tiles.FORCED = []
            rows.append(row)
    return rows


def shapes(machine, names: list[str]) -> list[dict]:
    """Microseconds of each linear of a preset by every tile and chunks of the probe: what tiles.py's rules are made from."""
    rows = []
    for name in names:
        for r, i, o in SHAPES[name]:
            for layout, shape in (("NN", (r, o, i)), ("NT", (r, i, o)), ("TN", (i, o, r))):
                tape, found = subjects.one_product(layout, *shape), []
                for tile, chunks in subjects.candidates(machine.options, layout, *shape):
                    tiles.FORCED = [(tile, chunks)]
                    us = 1e3 * timed(machine, machine.load(tape), 2.0)
                    found.append((round(us, 1), [int(v) for v in tile.constants().values()], chunks))
                tiles.FORCED = []
                best = min(found)
                rows.append(
                    {
                        "preset": name, "layout": layout, "shape": list(shape), "default_us": found[0][0], "best": best,
                        "tflops": round(2 * product(shape) / best[0] / 1e6, 2), "all": sorted(found),
                    }
                )  # fmt: skip
    return rows
