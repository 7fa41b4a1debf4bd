"""Which engine runs: the first of a list that exists here and passes its self-test, and why not the others."""

from __future__ import annotations

import os
import sys

from ..errors import ConfigError, DeviceError, DeviceUnavailableError, SelfTestError
from .base import Machine
from .reference import ReferenceMachine

DEVICES = ("auto", "cpu", "reference")
IN_BROWSER = sys.platform == "emscripten"


def default_threads() -> int:
    """As many threads as cores, at most 8."""
    return max(1, min(8, os.cpu_count() or 1))


def open_machine(
    device: str = "auto", threads: int | None = None, total_bytes: int = 0, isa: str | None = None
) -> Machine:
    """A machine that passed its self-test, with room for `total_bytes`. `isa` picks the cpu engine's build natively.

    Raises ConfigError for an unknown device, DeviceUnavailableError, SelfTestError or DeviceOutOfMemoryError.
    """
    if device not in DEVICES:
        raise ConfigError("device", f"one of {', '.join(DEVICES)}", f"{device!r} came", "choose one of those")
    if device == "reference":
        return ReferenceMachine()
    if IN_BROWSER:
        from pyodide.ffi import can_run_sync, run_sync

        from .wasm import open_wasm

        if not can_run_sync():
            raise DeviceUnavailableError(
                "cpu", "this browser lets Python wait (JSPI)", "it does not here", "use `await open_wasm(...)` instead"
            )
        machine: Machine = run_sync(open_wasm(total_bytes, threads))
    else:
        from .native import CpuMachine

        machine = CpuMachine(threads or default_threads(), isa)
    from .selftest import check

    try:
        check(machine)
    except (SelfTestError, DeviceError):
        machine.close()
        raise
    return machine
