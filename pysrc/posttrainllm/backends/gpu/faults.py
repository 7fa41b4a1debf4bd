"""What a driver or a browser says went wrong, as our errors."""

from __future__ import annotations

from ...errors import DeviceError, DeviceLostError, DeviceOutOfMemoryError


def device_error(message: str, kind: str = "") -> DeviceError:
    """A DeviceError for a message; `kind` is the name of the exception it came in. The first lines say what and where."""
    short = " ".join(line.strip() for line in message.splitlines()[:6])
    if "lost" in message.lower():
        return DeviceLostError(
            "webgpu",
            "the GPU stays until the run ends",
            f"it went away ({short})",
            "the run stopped; go on from the last save",
        )
    if "OutOfMemory" in kind or "out of memory" in message.lower():
        return DeviceOutOfMemoryError(
            "webgpu",
            "the GPU has room for the model",
            f"it refused ({short})",
            "choose a smaller model or a smaller batch",
        )
    return DeviceError(
        "webgpu", "the GPU takes every command", f"it reported: {short}", "the run stopped; please report this"
    )
