"""Memory of the GPU engine natively: foreseen, as the engine counts it, and as the driver tells it; and a model spread over small buffers.

    python -m bench.gpu_memory PRESET… [--precision f16] [--micro-batches 4] [--recompute 24] [--buffer-mib 256 --binding-mib 128] [--out FILE]

A row of JSON a preset (as bench.gpu has them: also "behemoth-b8", "gpt2-b1"): bytes by kind, milliseconds a step, the losses of the
first steps. With --buffer-mib the same on buffers of at most so much: the losses must be the same bits.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from posttrainllm.backends.webgpu import WebGPUMachine
from posttrainllm.backends.webgpu_adapter import native_limits, open_adapter
from posttrainllm.model.held import predicted
from posttrainllm.model.saving import PLAIN, Saving
from posttrainllm.waiting import now

from bench.gpu_steps import Steps

STEPS = 5


def driver_bytes() -> int | None:
    """What the driver says is in use; None where it has no nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0]) << 20


def row(name: str, precision: str, buffer_bytes: int, binding_bytes: int, probed: bool, saving: Saving = PLAIN) -> dict:
    """Open a machine, train a little, tell."""
    adapter, before = open_adapter(), driver_bytes()
    limits = replace(native_limits(adapter), storage_buffers=8)
    if buffer_bytes:
        limits = replace(limits, buffer_bytes=buffer_bytes, binding_bytes=binding_bytes)
    machine = WebGPUMachine(adapter, limits, precision)
    opened = driver_bytes()
    steps = Steps(machine, name, probed, saving)
    queue, losses = steps.queue, []
    for _ in range(STEPS):
        queue.push(*steps.block(1))
        losses += [loss for loss, _ in now(queue.drain())]
    began = time.perf_counter()
    queue.push(*steps.block(STEPS))
    now(queue.drain())
    ms = (time.perf_counter() - began) / STEPS * 1e3
    config, ways = steps.config, {key: value for key, value in vars(saving).items() if value != getattr(PLAIN, key)}
    nbytes = bytes(4 * config.batch * config.context)
    now(steps.model.losses_async(nbytes, nbytes))
    foreseen, held, used = predicted(steps.model.program, machine.predictor), steps.model.memory(), driver_bytes()
    found = {
        "preset": name, "precision": precision, **ways, "dispatches": len(steps.loaded.lowered.dispatches), "buffer_bytes": limits.buffer_bytes, "buffers": len(machine._memory.nbytes),
        "parts": {str(number): len(parts) for number, parts in machine._memory.cuts.parts.items()},
        "foreseen": foreseen, "held": held, "off": round(foreseen["total_bytes"] / held["total_bytes"] - 1, 4),
        "driver_bytes": used and used - opened, "driver_base_bytes": opened and opened - before, "losses": losses, "ms": round(ms, 1),
    }  # fmt: skip
    steps.model.close()
    return found


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--precision", default="f32", choices=("f32", "f16"))
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--recompute", type=int, default=0)
    parser.add_argument("--buffer-mib", type=int, default=0)
    parser.add_argument("--binding-mib", type=int, default=0)
    parser.add_argument("--no-probe", action="store_true", help="take the tiles that are taken without a measurement")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    saving = Saving(asked.micro_batches, asked.recompute)
    rows = []
    for name in asked.presets:
        sizes = [(0, 0)]
        if asked.buffer_mib:
            sizes.append((asked.buffer_mib << 20, (asked.binding_mib or asked.buffer_mib) << 20))
        made = [row(name, asked.precision, *size, not asked.no_probe, saving) for size in sizes]
        if len(made) == 2:
            made[1]["same_losses"] = made[0]["losses"] == made[1]["losses"]
        for each in made:
            print(json.dumps(each), flush=True)
        rows += made
        if asked.out:
            asked.out.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
