"""Which GPU wgpu-py drives, what it allows, and what it says when something goes wrong."""

from __future__ import annotations

import logging
import os
import tempfile

from ..errors import DeviceUnavailableError
from .gpu.limits import NAMES, Limits


def native_limits(adapter) -> Limits:
    """The adapter's real limits."""
    return Limits(**{ours: int(adapter.limits[_dashes(theirs)]) for ours, theirs in NAMES.items()})


def open_adapter():
    """The best adapter, a real GPU before a software one. Raises DeviceUnavailableError where there is none."""
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one some drivers complain, window or not
    try:
        import wgpu
    except ImportError as error:
        raise DeviceUnavailableError(
            "webgpu", "the package wgpu drives the GPU", "it is not installed", "pip install wgpu"
        ) from error
    adapters = [
        a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] not in ("OpenGL", "OpenGLES", "Null")
    ]
    order = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 3}
    adapters.sort(key=lambda a: order.get(a.info["adapter_type"], 4))
    if not adapters:
        raise DeviceUnavailableError(
            "webgpu", "a GPU with a Vulkan, Metal or D3D12 driver", "none was found", 'use device="cpu"'
        )
    return adapters[0]


class Watch(logging.Handler):
    """wgpu-py logs what it cannot raise (a lost device, an error without a caller); here it stops the run."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def dashed(limits: dict[str, int]) -> dict[str, int]:
    """WebGPU's names of limits as wgpu-py spells them."""
    return {_dashes(name): value for name, value in limits.items()}


def _dashes(name: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
