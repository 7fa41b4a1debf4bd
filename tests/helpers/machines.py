"""The engines that tests run on. Native: `cpu` (the C++ extension). Under Pyodide: the same C++ as WebAssembly.

POSTTRAINLLM_TEST_MACHINES, a comma-separated list, chooses others by name: "cpu", "cpu-1", "float32" (the stand-in).
An engine that is expected but cannot be opened fails its tests; it is never skipped.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

from posttrainllm.backends.reference import ReferenceMachine

from .float32 import Float32Machine

IN_BROWSER = sys.platform == "emscripten"
TEST_MEMORY_BYTES = 256 << 20


@dataclass(frozen=True)
class Opener:
    """An engine by name, opened when its first test runs."""

    name: str
    open: Callable[[], object]


def _cpu(threads: int):
    if IN_BROWSER:
        from pyodide.ffi import run_sync

        from posttrainllm.backends.wasm import open_wasm

        return run_sync(open_wasm(TEST_MEMORY_BYTES, threads))
    from posttrainllm.backends.native import CpuMachine

    return CpuMachine(threads)


KNOWN = {
    "reference": ReferenceMachine,
    "float32": Float32Machine,
    "cpu": lambda: _cpu(2),
    "cpu-1": lambda: _cpu(1),
}


def available_machines() -> list[Opener]:
    """The engines under test, the judge not among them."""
    names = os.environ.get("POSTTRAINLLM_TEST_MACHINES", "cpu").split(",")
    return [Opener(name, KNOWN[name]) for name in names]


def every_machine() -> list[Opener]:
    """The engines under test and the judge: for laws, which bind it too."""
    return [Opener("reference", ReferenceMachine), *available_machines()]
