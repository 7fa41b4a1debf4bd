"""The engines that tests run on. Native: `cpu` (the C++ extension). Under Pyodide: the same C++ as WebAssembly.

POSTTRAINLLM_TEST_MACHINES, a comma-separated list, chooses others by name: "cpu", "cpu-1", "float32" (the stand-in).
An engine that is expected but cannot be opened fails its tests; it is never skipped.
"""

import os
import sys

from posttrainllm.backends.reference import ReferenceMachine

from .float32 import Float32Machine

IN_BROWSER = sys.platform == "emscripten"
TEST_MEMORY_BYTES = 256 << 20


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


OPENED: dict[str, object] = {}


def open_once(name: str):
    """The engine of that name, opened at its first use and shared by all tests: each fills what it needs."""
    if name not in OPENED:
        OPENED[name] = KNOWN[name]()
    return OPENED[name]


def close_all() -> None:
    """Give every engine's memory and threads back."""
    while OPENED:
        OPENED.popitem()[1].close()


def available_machines() -> list[str]:
    """Names of the engines under test, the judge not among them."""
    return os.environ.get("POSTTRAINLLM_TEST_MACHINES", "cpu").split(",")


def every_machine() -> list[str]:
    """The engines under test and the judge: for laws, which bind it too."""
    return ["reference", *available_machines()]
