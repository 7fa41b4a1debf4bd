"""What a device allows, and the sentences for what it does not."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import DeviceLimitError


@dataclass(frozen=True)
class Limits:
    """Limits of a device; the values here are WebGPU's defaults, which every device keeps. Sizes in bytes."""

    buffer_bytes: int = 256 << 20
    binding_bytes: int = 128 << 20
    workgroup_memory_bytes: int = 16384
    invocations: int = 256
    storage_buffers: int = 8
    groups: int = 65535
    offset_alignment: int = 256

    def require_buffer(self, what: str, nbytes: int) -> None:
        """Raise DeviceLimitError when one buffer cannot hold `nbytes`."""
        if nbytes > self.buffer_bytes:
            raise DeviceLimitError(
                "webgpu",
                f"one buffer holds at most {self.buffer_bytes:,} bytes on this device",
                f"{what} needs {nbytes:,}",
                "choose a smaller model or a smaller batch",
            )

    def require_binding(self, what: str, nbytes: int) -> None:
        """Raise DeviceLimitError when a shader cannot see `nbytes` at once."""
        if nbytes > self.binding_bytes:
            raise DeviceLimitError(
                "webgpu",
                f"a shader sees at most {self.binding_bytes:,} bytes of a buffer on this device",
                f"{what} has {nbytes:,}",
                "choose a smaller model or a smaller batch",
            )


DEFAULT = Limits()
NAMES = {  # Limits field to WebGPU's name
    "buffer_bytes": "maxBufferSize",
    "binding_bytes": "maxStorageBufferBindingSize",
    "workgroup_memory_bytes": "maxComputeWorkgroupStorageSize",
    "invocations": "maxComputeInvocationsPerWorkgroup",
    "storage_buffers": "maxStorageBuffersPerShaderStage",
    "groups": "maxComputeWorkgroupsPerDimension",
    "offset_alignment": "minStorageBufferOffsetAlignment",
}
