"""One shader module on a GPU, beside the engine: arrays in, arrays out."""

import os
import struct
import tempfile

import numpy as np
import pytest
from posttrainllm.backends.gpu import shader
from posttrainllm.backends.webgpu import open_adapter
from posttrainllm.errors import DeviceUnavailableError


def open_device():
    """A Device of the best adapter; skips, and says why, where there is none."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        return Device(open_adapter())
    except DeviceUnavailableError as error:
        pytest.skip(str(error))


class Device:
    """The adapter's device with every feature that a shader here may use."""

    def __init__(self, adapter) -> None:
        import wgpu

        self.wgpu = wgpu
        self.features = {"shader-f16", "subgroup"} & set(adapter.features)
        limits = {
            name: adapter.limits[name]
            for name in ("max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup")
        }
        limits["max-compute-workgroup-size-x"] = adapter.limits["max-compute-workgroup-size-x"]
        self.device = adapter.request_device_sync(required_features=sorted(self.features), required_limits=limits)

    def run(self, source, entry, arrays, values, groups):
        """arrays: binding index to (array, written); `values` fill struct Sizes. Returns the written arrays by index."""
        usage, device = self.wgpu.BufferUsage, self.device
        words = b"".join(
            struct.pack("<f" if kind == "f32" else "<I", values[name]) for name, kind in shader.fields(source)
        )
        padded = words.ljust(-(-len(words) // 16) * 16, b"\0")
        uniform = device.create_buffer_with_data(data=padded, usage=usage.UNIFORM)
        layout = [{"binding": 15, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": "uniform"}}]
        entries, buffers = [{"binding": 15, "resource": {"buffer": uniform, "offset": 0, "size": len(padded)}}], {}
        for index, (array, writes) in arrays.items():
            data = np.ascontiguousarray(array).tobytes()
            data = data.ljust(-(-len(data) // 16) * 16, b"\0")
            buffers[index] = device.create_buffer_with_data(data=data, usage=usage.STORAGE | usage.COPY_SRC)
            kind = "storage" if writes else "read-only-storage"
            layout.append({"binding": index, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}})
            entries.append({"binding": index, "resource": {"buffer": buffers[index], "offset": 0, "size": len(data)}})
        group_layout = device.create_bind_group_layout(entries=layout)
        pipeline = device.create_compute_pipeline(
            layout=device.create_pipeline_layout(bind_group_layouts=[group_layout]),
            compute={
                "module": device.create_shader_module(code=shader.for_naga(source)),
                "entry_point": entry,
            },
        )
        encoder = device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.create_bind_group(layout=group_layout, entries=entries))
        compute.dispatch_workgroups(*groups)
        compute.end()
        device.queue.submit([encoder.finish()])
        found = {}
        for index, (array, writes) in arrays.items():
            if writes:
                data = bytes(device.queue.read_buffer(buffers[index]))
                found[index] = np.frombuffer(data, array.dtype, array.size).reshape(array.shape)
        for buffer in (*buffers.values(), uniform):
            buffer.destroy()
        return found
