"""Which engine a device name opens here."""

from __future__ import annotations

import os
import sys

from ..errors import ConfigError, DeviceUnavailableError
from .base import Machine
from .reference import ReferenceMachine

DEVICES = ("auto", "cpu", "webgpu", "reference")
IN_BROWSER = sys.platform == "emscripten"


def default_threads() -> int:
    """As many threads as cores, at most 8."""
    return max(1, min(8, os.cpu_count() or 1))


def open_engine(
    device: str = "auto", threads: int | None = None, total_bytes: int = 0, isa: str | None = None, precision: str = "f32"
) -> Machine:
    """A machine with room for `total_bytes`, not yet tested (model/selftest.py does that). `isa` picks the cpu engine's build;
    precision "f16" stores activations in half precision (webgpu only).

    Raises ConfigError for an unknown device, DeviceUnavailableError or DeviceOutOfMemoryError.
    """
    if device not in DEVICES:
        raise ConfigError("device", f"one of {', '.join(DEVICES)}", f"{device!r} came", "choose one of those")
    if precision != "f32" and device != "webgpu":
        raise ConfigError("precision", "half precision (f16) runs on webgpu", f"{precision} came with {device}", "add --device webgpu")
    if device == "reference":
        return ReferenceMachine()
    if device == "webgpu":
        if IN_BROWSER:
            raise DeviceUnavailableError(
                "webgpu", "a GPU in the tab is opened by waiting for it", "this call does not wait", "use `await open_webgpu()`"
            )
        from .webgpu import WebGPUMachine

        return WebGPUMachine(precision=precision)
    if IN_BROWSER:
        from pyodide.ffi import can_run_sync, run_sync

        from .wasm import open_wasm, spare

        if not can_run_sync():
            if machine := spare(total_bytes):
                return machine
            raise DeviceUnavailableError(
                "cpu", "this browser lets Python wait (JSPI)", "it does not here", "use `await open_wasm(...)` instead"
            )
        return run_sync(open_wasm(total_bytes, threads))
    from .native import CpuMachine

    return CpuMachine(threads or default_threads(), isa)
