"""Matrix units through wgpu-py (naga's `wgpu_cooperative_matrix`), tried: whether they compile, are right, and how fast."""

from __future__ import annotations

import struct

from posttrainllm.backends.gpu import shader
from posttrainllm.backends.gpu.tiles import TensorTile

from bench.gpu_tensor import module

TILES = (
    TensorTile(4, 4, 2, 2, 32, 1, False, True),
    TensorTile(2, 4, 2, 2, 32, 1, False, True),
    TensorTile(4, 4, 2, 2, 16, 1, False, True),
)


def run(size: int = 4096) -> list[dict]:
    """A row a tile: TFLOP/s at size³ and how far its first row is off; or why not."""
    import wgpu
    from posttrainllm.backends.webgpu import open_adapter

    adapter = open_adapter()
    if "cooperative-matrix" not in adapter.features:
        return [{"error": "the adapter lists no cooperative-matrix"}]
    names = (
        "max-compute-workgroup-storage-size",
        "max-compute-invocations-per-workgroup",
        "max-compute-workgroup-size-x",
    )
    limits = {name: adapter.limits[name] for name in names}
    limits |= {name: adapter.limits[name] for name in ("max-buffer-size", "max-storage-buffer-binding-size")}
    features = ["cooperative-matrix", "shader-f16", "timestamp-query", "subgroup"]
    try:
        device = adapter.request_device_sync(
            required_features=[f for f in features if f in adapter.features], required_limits=limits
        )
    except Exception as error:  # noqa: BLE001 - what wgpu says is the result
        return [{"error": str(error)[:400]}]
    return [_one(wgpu, device, tile, size) for tile in TILES]


def _one(wgpu, device, tile: TensorTile, size: int) -> dict:
    row, asked = {"tile": str(tile)}, module(tile, "NN", (size,) * 3, "f16")
    usage = wgpu.BufferUsage
    try:
        code = "enable wgpu_cooperative_matrix;\n" + shader.for_naga(asked["source"])
        numbers = [((i * 7919) % 9 - 4) / 8 for i in range(8191)]
        uniform = device.create_buffer_with_data(data=bytes.fromhex(asked["uniforms"]), usage=usage.UNIFORM)
        layout = [{"binding": 15, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}}]
        entries, buffers = [{"binding": 15, "resource": {"buffer": uniform, "offset": 0, "size": uniform.size}}], {}
        for each in asked["bindings"]:
            kind, one = ("e", 2) if each["half"] else ("f", 4)
            image = struct.pack(f"<8191{kind}", *numbers) * (each["bytes"] // (8191 * one) + 1)
            flags = usage.STORAGE | usage.COPY_SRC
            buffers[each["index"]] = device.create_buffer_with_data(data=image[: each["bytes"]], usage=flags)
            access = "storage" if each["writes"] else "read-only-storage"
            layout.append(
                {"binding": each["index"], "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": access}}
            )
            entries.append(
                {
                    "binding": each["index"],
                    "resource": {"buffer": buffers[each["index"]], "offset": 0, "size": each["bytes"]},
                }
            )
        group_layout = device.create_bind_group_layout(entries=layout)
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(bind_group_layouts=[group_layout]),
            compute={"module": device.create_shader_module(code=code), "entry_point": asked["entry"]},
        )
        group = device.create_bind_group(layout=group_layout, entries=entries)
        queries = device.create_query_set(type="timestamp", count=2)
        resolved = device.create_buffer(size=16, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        times = []
        for repeats in (1, 10, 10, 10):
            encoder = device.create_command_encoder()
            writes = {"query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}
            compute = encoder.begin_compute_pass(timestamp_writes=writes)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            for _ in range(repeats):
                compute.dispatch_workgroups(*asked["groups"])
            compute.end()
            encoder.resolve_query_set(queries, 0, 2, resolved, 0)
            device.queue.submit([encoder.finish()])
            first, last = struct.unpack("<2Q", bytes(device.queue.read_buffer(resolved)))
            times.append((last - first) / 1e6 / repeats)
        ms = min(times[1:])
        off = 0.0
        found = struct.unpack("<64e", bytes(device.queue.read_buffer(buffers[3], 0, 128)))
        for column in range(64):
            sum_ = numbers[column] + sum(numbers[k % 8191] * numbers[(k * size + column) % 8191] for k in range(size))
            off = max(off, abs(found[column] - sum_) / (abs(sum_) * 2**-10 + size**0.5 * 2**-18))
        row |= {"ms": round(ms, 4), "tflops": round(2 * size**3 / ms / 1e9, 2), "off": off, "right": off <= 4}
        for buffer in (*buffers.values(), uniform, resolved):
            buffer.destroy()
    except Exception as error:  # noqa: BLE001
        row["error"] = str(error)[:600]
    return row
