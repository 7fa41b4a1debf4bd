"""The GPU engine measured: matmul rates, time of each kernel, training steps. python -m bench.gpu matmul|step|kernels|parity

Every figure is of the adapter it prints. Steps are timed without reading anything back until the last, as the ring does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import time
from collections import defaultdict
from dataclasses import replace

from posttrainllm.backends.gpu import attention_tiles, tiles
from posttrainllm.backends.gpu.attention_tiles import AttentionTile
from posttrainllm.backends.gpu.tiles import MatmulTile
from posttrainllm.backends.webgpu import WebGPUMachine
from posttrainllm.compile import Graph, Value, place, record
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import DLOSS, LOSS, NORM, RECIPE, SEED, initial_weights, pack_recipe, training_step

PYTORCH_EAGER_F32_MS = {
    "small": 4.5, "medium": 5.5, "large": 7.8, "xl": 10.3, "huge": 15.3, "massive": 22.8, "mega": 21.2,
    "gpt2-bytes": 64.0, "behemoth": 55.0, "behemoth-b8": 293.0,
}  # fmt: skip
"""PyTorch 2.11 eager float32 on an H200."""
LAYOUTS = {"NN": "linear", "NT": "linear_backward_input", "TN": "linear_backward_weight"}
SWEEP = [
    MatmulTile(128, 128, 16, 8, 8), MatmulTile(128, 128, 16, 8, 8, False), MatmulTile(128, 128, 8, 8, 8), MatmulTile(64, 64, 16, 8, 8),
    MatmulTile(64, 64, 16, 8, 8, False), MatmulTile(64, 64, 16, 8, 4), MatmulTile(64, 64, 32, 4, 4), MatmulTile(32, 32, 32, 4, 4),
    MatmulTile(64, 32, 16, 8, 4), MatmulTile(128, 64, 16, 8, 8), MatmulTile(256, 128, 16, 16, 8), MatmulTile(256, 128, 8, 16, 8),
    MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 64, 16, 16, 8), MatmulTile(256, 64, 8, 16, 8), MatmulTile(256, 128, 16, 16, 8, False),
]  # fmt: skip


def config_of(name: str) -> GPTConfig:
    """A preset, or "gpt2-bytes", or "behemoth-b8"."""
    if name == "gpt2-bytes":
        return GPTConfig.preset("gpt2", vocabulary=256)
    base, _, batch = name.partition("-b")
    config = GPTConfig.preset(base)
    return config.with_batch(int(batch)) if batch else config


def one_kernel(name: str, sizes: dict[str, int]):
    """(tape, region bytes) of one kernel on operands side by side."""
    graph, at, values = Graph(), 0, {}
    from posttrainllm.dims import product, round_up
    from posttrainllm.ops import kernel

    regions = ("params", "grads", "m", "v", "arena", "metrics")
    for number, argument in enumerate(kernel(name).args):
        shape = kernel(name).shape(argument, sizes)
        values[argument.name] = Value(argument.name, shape, "f32", regions[number], 0)
        at = max(at, round_up(product(shape) * 4, 256))
    graph.call(name, sizes, **values)
    plan = place(graph)
    return record(plan), plan.region_bytes


def median_ms(machine, loaded, repeats: int, inner: int) -> float:
    """Median milliseconds of a replay, `inner` of them between waits, after one unmeasured."""
    warm = time.perf_counter() + 0.15  # clocks rise under load
    while time.perf_counter() < warm:
        machine.replay(loaded)
        machine.wait()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(inner):
            machine.replay(loaded)
        machine.wait()
        times.append((time.perf_counter() - began) / inner)
    return statistics.median(times) * 1e3


def random_regions(machine, region_bytes) -> None:
    """Random numbers everywhere: zeros run faster than data."""
    import numpy as np
    from posttrainllm.compile.graph import REGIONS
    from posttrainllm.compile.tape import REGION_SHIFT

    block = np.random.default_rng(0).standard_normal(4 << 20).astype("<f4").tobytes()
    for region, nbytes in region_bytes.items():
        for start in range(0, nbytes, len(block)):
            machine.upload(REGIONS.index(region) << REGION_SHIFT | start, block[: nbytes - start])


def matmul(machine, size: int, layouts: list[str]) -> list[dict]:
    """TFLOP/s of every tile that the device runs, at size³."""
    rows = []
    for layout in layouts:
        tape, need = one_kernel(LAYOUTS[layout], {"R": size, "I": size, "O": size})
        machine.allocate(need)
        random_regions(machine, need)
        for tile in SWEEP:
            if not tile.fits(machine.limits):
                continue
            tiles.FORCED = [(tile, 1)]
            try:
                ms = median_ms(machine, machine.load(tape), 5, 5)
                rows.append(
                    {
                        "layout": layout,
                        "tile": list(tile.constants().values()),
                        "ms": ms,
                        "tflops": 2 * size**3 / ms / 1e9,
                    }
                )
            except Exception as error:  # noqa: BLE001 - a tile that a driver refuses is a result
                rows.append({"layout": layout, "tile": list(tile.constants().values()), "error": str(error)[:200]})
            finally:
                tiles.FORCED = []
            print(json.dumps(rows[-1]), flush=True)
    return rows


SHAPES = {
    "medium": [(2048, 128, 384), (2048, 128, 128), (2048, 128, 512), (2048, 512, 128)],
    "mega": [(1024, 384, 1152), (1024, 384, 384), (1024, 384, 1536), (1024, 1536, 384)],
    "gpt2": [(4096, 768, 2304), (4096, 768, 768), (4096, 768, 3072), (4096, 3072, 768)],
    "behemoth": [(512, 1280, 3840), (512, 1280, 1280), (512, 1280, 5120), (512, 5120, 1280)],
}
"""Linears of a step: rows, inputs, outputs."""
SHAPE_TILES = [
    MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 64, 16, 8, 8), MatmulTile(64, 64, 16, 8, 8), MatmulTile(64, 64, 16, 8, 4), MatmulTile(64, 32, 16, 8, 4),
    MatmulTile(64, 32, 32, 4, 4), MatmulTile(32, 32, 32, 4, 4),
]  # fmt: skip


def shapes(machine, names: list[str]) -> list[dict]:
    """Microseconds of each linear of a preset by tile and chunks, launch included: what tiles.py's rules are made from."""
    rows = []
    for name in names:
        for r, i, o in SHAPES[name]:
            for kernel in LAYOUTS.values():
                tape, need = one_kernel(kernel, {"R": r, "I": i, "O": o})
                machine.allocate(need)
                depth = {"linear": i, "linear_backward_input": o, "linear_backward_weight": r}[kernel]
                found = []
                for tile in SHAPE_TILES:
                    for chunks in (1, 2, 4, 8, 16):
                        if depth // chunks < 64:
                            continue
                        tiles.FORCED = [(tile, chunks)]
                        loaded = machine.load(tape)
                        times = []
                        for _ in range(3):
                            began = time.perf_counter()
                            for _ in range(10):
                                machine.replay(loaded)
                            machine.wait()
                            times.append((time.perf_counter() - began) * 1e5)
                        found.append((round(min(times), 1), [*tile.constants().values()][:5], chunks))
                tiles.FORCED = []
                loaded = machine.load(tape)
                rows.append({"kernel": kernel, "shape": [r, i, o], "best": sorted(found)[:4], "worst": max(found)})
                print(json.dumps(rows[-1]), flush=True)
    return rows


ATTENTION_SWEEP = [AttentionTile(*shape) for shape in (
    (64, 64, 32, 4, 8, 2), (64, 64, 32, 4, 4, 2), (64, 64, 32, 4, 4, 4), (64, 32, 32, 4, 4, 2), (32, 64, 32, 4, 4, 2),
    (32, 32, 32, 4, 4, 2), (32, 32, 32, 4, 4, 4), (32, 64, 32, 4, 8, 2),
)]  # fmt: skip


def attention(machine, sizes: dict[str, int], label: str = "") -> list[dict]:
    """Microseconds and TFLOP/s (causal half counted) of each attention pass with every tile."""
    rows = []
    for name in ("attention", "attention_backward"):
        tape, need = one_kernel(name, sizes)
        machine.allocate(need)
        random_regions(machine, need)
        for tile in ATTENTION_SWEEP:
            if not tile.fits(machine.limits):
                continue
            kept = dict(attention_tiles.ATTENTION_TILES)
            attention_tiles.ATTENTION_TILES.update(dict.fromkeys(kept, (tile,)))
            try:
                loaded = machine.load(tape)
                machine.replay(loaded)
                for entry, (_, us) in kernel_times(machine, loaded).items():
                    products = {"attention": 2, "attention_backward": 3, "attention_backward_keys": 4}[entry]
                    flops = products * sizes["B"] * sizes["H"] * sizes["T"] ** 2 * sizes["D"]
                    rows.append(
                        {
                            "preset": label,
                            "entry": entry,
                            "tile": list(tile.constants().values()),
                            "us": us,
                            "tflops": round(flops / us / 1e6, 2),
                        }
                    )
                    print(json.dumps(rows[-1]), flush=True)
            except Exception as error:  # noqa: BLE001
                print(json.dumps({"tile": list(tile.constants().values()), "error": str(error)[:200]}), flush=True)
            finally:
                attention_tiles.ATTENTION_TILES.update(kept)
    return rows


class Steps:
    """A model that trains on made-up tokens."""

    def __init__(self, machine, name: str) -> None:
        self.machine, config = machine, config_of(name)
        initial, self.step = initial_weights(config), training_step(config)
        need: dict[str, int] = {}
        for each in (initial, self.step):
            for region, nbytes in each.plan.region_bytes.items():
                need[region] = max(need.get(region, 0), nbytes)
        machine.allocate(need)
        machine.upload(address(SEED), struct.pack("<Q", 42))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        machine.replay(machine.load(initial.tape))
        count = config.batch * config.context
        self.tokens = struct.pack(f"<{count}i", *((i * 7919 + i // 3) % 256 for i in range(count)))
        machine.upload(address(self.step.tokens), self.tokens)
        machine.upload(address(self.step.targets), self.tokens[4:] + self.tokens[:4])
        machine.upload(address(RECIPE), pack_recipe((3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0)))
        began = time.perf_counter()
        self.loaded = machine.load(self.step.tape)
        self.prepare_seconds = time.perf_counter() - began
        self.flops = self.step.plan.graph.flops()

    def measure(self, name: str, repeats: int = 5) -> dict:
        """Milliseconds a step: without reading back, and with loss and norm read every step."""
        machine = self.machine
        first = median_ms(machine, self.loaded, 1, 2)
        inner = max(2, min(20, int(300 / first)))
        free = median_ms(machine, self.loaded, repeats, inner)
        began = time.perf_counter()
        for _ in range(inner):
            machine.upload(address(self.step.tokens), self.tokens)
            machine.replay(self.loaded)
        host = (time.perf_counter() - began) / inner * 1e3
        machine.wait()
        times = []
        for _ in range(inner):
            began = time.perf_counter()
            machine.upload(address(self.step.tokens), self.tokens)
            machine.replay(self.loaded)
            machine.download(address(LOSS), 4), machine.download(address(NORM), 4)
            times.append(time.perf_counter() - began)
        loss = struct.unpack("<f", machine.download(address(LOSS), 4))[0]
        row = {
            "preset": name, "ms": round(free, 3), "ms_read_each_step": round(statistics.median(times) * 1e3, 3), "host_ms": round(host, 3),
            "dispatches": len(self.loaded.lowered.dispatches), "tflops": round(self.flops / free / 1e9, 2),
            "prepare_seconds": round(self.prepare_seconds, 2), "loss": round(loss, 4),
        }  # fmt: skip
        if name in PYTORCH_EAGER_F32_MS:
            row["pytorch_eager_f32_ms"] = PYTORCH_EAGER_F32_MS[name]
            row["ratio"] = round(PYTORCH_EAGER_F32_MS[name] / free, 2)
        return row


def kernel_times(machine, loaded) -> dict[str, tuple[int, float]]:
    """Entry to (dispatches, total microseconds), by timestamps around a pass for each dispatch."""
    wgpu, device, count = machine._wgpu, machine._device, len(loaded.lowered.dispatches)
    queries = device.create_query_set(type="timestamp", count=2 * count)
    resolved = device.create_buffer(size=16 * count, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC)
    warm = time.perf_counter() + 0.1
    while time.perf_counter() < warm:
        machine.replay(loaded)
        machine.wait()
    for _ in range(2):
        encoder = device.create_command_encoder()
        for number, dispatch in enumerate(loaded.lowered.dispatches):
            writes = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * number,
                "end_of_pass_write_index": 2 * number + 1,
            }
            compute = encoder.begin_compute_pass(timestamp_writes=writes)
            compute.set_pipeline(machine._pipeline(dispatch)[0])
            compute.set_bind_group(0, loaded.kept[1 + number])
            compute.dispatch_workgroups(*dispatch.groups)
            compute.end()
        encoder.resolve_query_set(queries, 0, 2 * count, resolved, 0)
        device.queue.submit([encoder.finish()])
        ticks = struct.unpack(f"<{2 * count}Q", bytes(device.queue.read_buffer(resolved)))
    totals: dict[str, list] = defaultdict(lambda: [0, 0.0])
    for number, dispatch in enumerate(loaded.lowered.dispatches):
        shape = " ".join(str(v) for v in struct.unpack(f"<{len(dispatch.uniforms) // 4}I", dispatch.uniforms)[:3])
        entry = totals[f"{dispatch.entry} {shape}" if "linear" in dispatch.entry else dispatch.entry]
        entry[0] += 1
        entry[1] += (ticks[2 * number + 1] - ticks[2 * number]) / 1e3
    return {name: (n, round(us, 1)) for name, (n, us) in sorted(totals.items(), key=lambda item: -item[1][1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["matmul", "shapes", "attention", "step", "kernels"])
    parser.add_argument("names", nargs="*", help="presets, or matmul layouts NN NT TN")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--default-limits", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    machine = WebGPUMachine()
    if options.default_limits:
        from posttrainllm.backends.gpu.limits import DEFAULT

        real = machine.limits
        machine.close()
        machine = WebGPUMachine(
            limits=replace(DEFAULT, buffer_bytes=real.buffer_bytes, binding_bytes=real.binding_bytes)
        )
    print(machine.description, machine.limits)
    rows = []
    if options.what == "matmul":
        rows = matmul(machine, options.size, options.names or list(LAYOUTS))
    if options.what == "shapes":
        rows = shapes(machine, options.names)
    if options.what == "attention":
        for name in options.names or ["gpt2-bytes"]:
            c = config_of(name)
            rows += attention(machine, {"B": c.batch, "T": c.context, "H": c.heads, "D": c.head_width}, name)
    for name in options.names if options.what in ("step", "kernels") else []:
        steps = Steps(machine, name)
        if options.what == "step":
            rows.append(steps.measure(name))
        else:
            rows.append({"preset": name, "kernels": kernel_times(machine, steps.loaded)})
        print(json.dumps(rows[-1]), flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"adapter": machine.description, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
