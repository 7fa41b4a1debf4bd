"""A device of wgpu-py that takes everything and keeps nothing but the sizes of its buffers: what a model holds, without holding it."""

from types import SimpleNamespace

import pytest
from posttrainllm.backends.gpu.limits import NAMES
from posttrainllm.backends.webgpu_adapter import dashed

LIMITS = {
    "maxBufferSize": 2 << 30, "maxStorageBufferBindingSize": 2 << 30, "maxComputeWorkgroupStorageSize": 32768,
    "maxComputeInvocationsPerWorkgroup": 1024, "maxStorageBuffersPerShaderStage": 16, "maxComputeWorkgroupsPerDimension": 65535,
    "minStorageBufferOffsetAlignment": 256,
}  # fmt: skip
assert set(LIMITS) == set(NAMES.values())


class Buffer:
    """A size. Mapped, it holds zeros."""

    def __init__(self, device, size):
        self.device, self.size, self.gone = device, size, False
        device.sizes[id(self)] = size

    def destroy(self):
        if not self.gone:
            del self.device.sizes[id(self)]
        self.gone = True

    __del__ = destroy

    def map_async(self, *_):
        return SimpleNamespace(_state="fulfilled", sync_wait=lambda: None)

    def read_mapped(self, _, nbytes):
        return bytes(nbytes)

    def unmap(self):
        pass


class Device:
    """What WebGPUMachine calls."""

    def __init__(self):
        self.sizes, self._poller = {}, None
        nothing = lambda *_, **__: SimpleNamespace(_internal=None)  # noqa: E731
        self.queue = SimpleNamespace(
            write_buffer=nothing, submit=nothing, read_buffer=lambda _, at, nbytes: bytes(nbytes),
        )  # fmt: skip
        for name in ("bind_group_layout", "shader_module", "pipeline_layout", "compute_pipeline", "bind_group"):
            setattr(self, f"create_{name}", nothing)
        self._poll = self._poll_wait = self.destroy = lambda: None

    def create_buffer(self, size, usage):
        return Buffer(self, size)

    def create_command_encoder(self):
        return SimpleNamespace(copy_buffer_to_buffer=lambda *_: None, finish=lambda: None)


def fake_machine(monkeypatch, precision="f32", **limits):
    """A WebGPUMachine on a Device, with these limits by WebGPU's names in place of LIMITS."""
    pytest.importorskip("wgpu")
    from posttrainllm.backends.webgpu import WebGPUMachine

    monkeypatch.setattr(WebGPUMachine, "_encode", lambda *_: None)
    adapter = SimpleNamespace(
        features={"shader-f16"}, limits=dashed(LIMITS | limits), info={"device": "fake", "adapter_type": "CPU"},
        request_device_sync=lambda **_: Device(),
    )  # fmt: skip
    return WebGPUMachine(adapter, precision=precision)
