"""Attention of the GPU engine: microseconds and TFLOP/s of each pass with every tile, natively and through Dawn.

python -m bench.gpu_attention [--dawn DAWN_NODE] [PRESET…] prints one JSON line a measurement and the fastest of each pass.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from posttrainllm.backends.gpu import attention_tiles
from posttrainllm.backends.gpu.attention_tiles import ENTRIES, TensorTile, as_choice, key_of
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.subjects import one_kernel
from posttrainllm.backends.webgpu import WebGPUMachine
from posttrainllm.errors import DeviceError
from posttrainllm.ops import kernel

from bench import gpu_tensor
from bench.gpu_matmul import fill, timed
from bench.gpu_steps import config_of
from bench.gpu_tensor import LIMITS

PRODUCTS = {"attention": 2, "attention_backward": 3, "attention_backward_keys": 4}
"""Multiplications of T × D by T of each pass. The forward by matrix units makes one more; it is not counted."""
PRESETS = ["gpt2-bytes", "huge", "medium"]
PLAIN_BESIDE = 3
"""Plain tiles that are measured through Dawn where there are matrix units: what they do is known from single precision."""
UNLIKE = {"f32": 1e-4, "f16": 1e-2}
"""How far a tile's results may be from the first one's, over the largest of them: rounding, in another order."""


def sizes_of(preset: str) -> dict[str, int]:
    """B, T, H, D of a preset's attention."""
    config = config_of(preset)
    return {"B": config.batch, "T": config.context, "H": config.heads, "D": config.head_width}


def rate(entry: str, sizes: dict[str, int], us: float) -> dict[str, float]:
    """Microseconds, and TFLOP/s with the causal half of the work counted."""
    flops = PRODUCTS[entry] * sizes["B"] * sizes["H"] * sizes["T"] ** 2 * sizes["D"]
    return {"us": round(us, 1), "tflops": round(flops / us / 1e6, 2)}


def sweep(machine, sizes: dict[str, int], label: str) -> list[dict]:
    """Every tile that the device takes for every entry, by wgpu-py."""
    rows = []
    for name, entries in ENTRIES.items():
        tape = one_kernel(name, sizes)
        for entry, _ in entries:
            others = [e for e, _ in entries if e != entry]
            for tile in attention_tiles.candidates(entry, sizes["D"], machine.options):
                attention_tiles.FORCED = {entry: tile}
                row = {"preset": label, "precision": machine.options.precision, "entry": entry, "tile": as_choice(tile)}
                try:
                    loaded = machine.load(tape)
                    if not rows:
                        fill(machine)
                    calls = machine.calls_of(loaded)
                    loaded.calls = [c for c, d in zip(calls, loaded.lowered.dispatches) if d.entry not in others]
                    row |= rate(entry, sizes, 1e3 * timed(machine, loaded, 5.0))
                except DeviceError as error:
                    row["error"] = str(error)[:200]
                finally:
                    attention_tiles.FORCED = {}
                rows.append(row)
    return rows


def attention_variants(machine, presets: list[str] | None = None) -> list[dict]:
    """`sweep` over presets on a machine of either precision; every row is printed, and the fastest of each entry again."""
    rows = []
    for preset in presets or PRESETS:
        rows += sweep(machine, sizes_of(preset), preset)
    for row in rows + best(rows):
        print(json.dumps(row), flush=True)
    return rows


def best(rows: list[dict]) -> list[dict]:
    """The fastest right row of each preset, precision, entry and kind of tile."""
    found: dict[tuple, dict] = {}
    for row in rows:
        key = (row["preset"], row["precision"], row["entry"], row["tile"][0])
        if "us" in row and row.get("right", True) and row["us"] < found.get(key, {"us": 1e9})["us"]:
            found[key] = row
    return [row | {"best": True} for row in found.values()]


def modules(sizes: dict[str, int], label: str, precision: str, units: bool = True) -> list[dict]:
    """What modules.mjs takes: every tile of every entry, to be timed and held up to the first of them."""
    options, made = Options(LIMITS, precision, ((16, 16, 16),) if units and precision == "f16" else ()), []
    for name, entries in ENTRIES.items():
        tape, arguments = one_kernel(name, sizes), kernel(name).args
        for entry, _ in entries:
            tiles = attention_tiles.candidates(entry, sizes["D"], options)
            units = [tile for tile in tiles if isinstance(tile, TensorTile)]
            plain = [tile for tile in tiles if tile not in units]
            for tile in plain[:PLAIN_BESIDE] + units if units else plain:
                key = key_of(entry, sizes["B"] * sizes["H"], sizes["T"], sizes["D"], precision)
                chosen = {key: as_choice(tile)}
                lowered = lower(tape, replace(options, tiles=chosen)).dispatches
                dispatch = next(each for each in lowered if each.entry == entry)
                outputs = {index for index, a in enumerate(arguments) if a.role != "in"}
                bindings = [
                    {
                        "index": index, "bytes": operand.nbytes, "writes": writes,
                        "half": options.element_bytes(name, arguments[index].name) == 2,
                    }
                    for index, operand, writes in dispatch.bindings
                ]  # fmt: skip
                made.append(
                    {
                        "label": {"preset": label, "precision": precision, "entry": entry, "tile": as_choice(tile)},
                        "source": dispatch.source(), "entry": entry, "groups": dispatch.groups,
                        "uniforms": dispatch.uniforms.hex(), "bindings": bindings, "milliseconds": 5, "passes": 3,
                        "same": {
                            "key": f"{label} {precision} {entry}",
                            "outputs": [b for b in bindings if b["index"] in outputs],
                        },
                    }
                )  # fmt: skip
    return made


def through_dawn(
    dawn: str, node: str = "node", presets: list[str] | None = None, precisions=("f16", "f32"), seconds: float = 90.0,
    flags: list[str] | None = None,
) -> list[dict]:  # fmt: skip
    """As `attention_variants`, by the browser's compiler, with matrix units, and each tile's results held up to the first's."""
    asked = [
        each
        for preset in presets or PRESETS
        for precision in precisions
        for each in modules(sizes_of(preset), preset, precision)
    ]
    answers, errors = gpu_tensor.ask(dawn, node, asked, seconds, flags)
    rows = []
    for answer in answers[1:]:
        row = answer["label"]
        if "ms" in answer:
            row |= rate(row["entry"], sizes_of(row["preset"]), 1e3 * answer["ms"])
            row |= {"off": answer["off"], "right": (answer["off"] or 0.0) <= UNLIKE[row["precision"]]}
        else:
            row["error"] = answer.get("error", "nothing was measured")[:300]
        rows.append(row)
    if not rows:
        rows.append({"error": errors or "it said nothing"})
    for row in rows + best([row for row in rows if "entry" in row]):
        print(json.dumps(row), flush=True)
    return rows


def main() -> None:
    """By wgpu-py in both precisions, or through Dawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--dawn", help="dawn.node of npm's webgpu: measure through it")
    parser.add_argument("--node", default="node")
    parser.add_argument("--precisions", nargs="+", default=["f16", "f32"])
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    if options.dawn:
        through_dawn(options.dawn, options.node, options.presets, options.precisions, options.seconds)
        return
    for precision in options.precisions:
        machine = WebGPUMachine(precision=precision)
        attention_variants(machine, options.presets)
        machine.close()


if __name__ == "__main__":
    main()
