"""What is predicted of a model's memory on the CPU engines is within 5 % of what it then holds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from posttrainllm.backends import wasm
from posttrainllm.backends.wasm import Predictor, WasmMachine
from posttrainllm.model.choosing import RESERVE_BYTES
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.held import predicted
from posttrainllm.model.live import GPT
from posttrainllm.model.memory import available_bytes
from posttrainllm.model.program import Program
from posttrainllm.ops import KERNELS

ROOT = Path(__file__).parents[2]
PRESETS = ("tiny", "small", "medium", "large", "xl", "huge", "massive", "mega", "gpt2", "behemoth")


def near(held, foreseen, allowed=0.05):
    whole = held["total_bytes"]
    assert held.keys() == foreseen.keys() and sum(held.values()) == 2 * whole
    assert all(abs(held[kind] - foreseen[kind]) <= allowed * whole for kind in held), f"{held} {foreseen}"


@pytest.mark.native_only(reason="the engine of this process")
@pytest.mark.parametrize("name", PRESETS)
def test_the_native_engine(name):
    """Memory that nobody writes to is not taken from the machine: all presets fit that the system gives addresses for."""
    from posttrainllm.backends.native import CpuMachine

    config, machine = GPTConfig.preset(name), CpuMachine(threads=2)
    program = Program(config)
    foreseen = predicted(program, machine.predictor)
    if foreseen["total_bytes"] > (available_bytes() or 0):
        pytest.skip("the machine has less memory than this preset's plan")
    model = GPT(config, machine, program)
    for each in (program.initial, program.evaluation, program.step):
        machine.load(each.tape)
    near(model.memory(), foreseen, 0.01)
    model.close()


MEASURED = """
import sys
from posttrainllm.backends.native import CpuMachine
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.held import predicted
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def trained(config):
    program, machine = Program(config), CpuMachine(threads=2)
    before, foreseen = resident(), predicted(program, machine.predictor)
    model = GPT(config, machine, program)
    model.initialise(1)
    nbytes = 4 * config.batch * config.context
    model.step(bytes(nbytes), bytes(nbytes), (1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 10.0, 20.0))
    return resident() - before, foreseen["total_bytes"], model

trained(GPTConfig.preset("tiny"))[2].close()
print(*trained(GPTConfig.preset(sys.argv[1]))[:2])
"""


@pytest.mark.native_only(reason="a process of its own")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_system_sees_as_much():
    """A step of `xl` takes as much memory of the machine as was said."""
    ran = subprocess.run([sys.executable, "-c", MEASURED, "xl"], capture_output=True, text=True, check=True)
    taken, foreseen = map(int, ran.stdout.split())
    assert abs(taken - foreseen) <= 0.05 * foreseen


class Engine:
    """As wasm.mjs's: a memory of the size that it was opened with."""

    threads, isa, replay = 2, "wasm simd128", None

    def __init__(self, nbytes):
        self.bytes = max(512, -(-nbytes // 65536)) * 65536

    def kernelNames(self):
        return [kernel.name for kernel in KERNELS]

    def allocate(self, index, nbytes):
        return True


@pytest.mark.parametrize("name", PRESETS)
def test_the_engine_in_a_tab(name):
    """That two reckonings of a memory's size agree, for every preset; what a tab really holds e2e/test_memory_held.py measures."""
    program = Program(GPTConfig.preset(name))
    need = sum(program.region_bytes().values())
    machine = WasmMachine(Engine(need + RESERVE_BYTES + wasm.OVERHEAD_BYTES))
    machine.allocate(program.region_bytes())
    near(machine.memory(), Predictor()([], program.region_bytes()), 0.0)


@pytest.mark.native_only(reason="reads the clone")
def test_figures_are_those_of_the_sources():
    """Of a memory in wasm.mjs, of what a model asks for beside its regions, and of the threads' scratch in run.h."""
    script = (ROOT / "static/wasm.mjs").read_text()
    assert int(re.search(r"const PAGE = (\d+);", script)[1]) == wasm.PAGE_BYTES
    assert int(re.search(r"const MIN_PAGES = (\d+);", script)[1]) * wasm.PAGE_BYTES == wasm.LEAST_BYTES
    assert wasm.RESERVE_BYTES == RESERVE_BYTES
    from posttrainllm.backends import native

    header = (ROOT / "ext/run.h").read_text()
    thread, shared = (
        eval(re.sub(r"int64_t\((\d+)\)", r"\1", re.search(rf"k{name}ScratchBytes = (.+);", header)[1])) for name in ("Thread", "Shared")
    )
    assert (thread, shared) == (native.THREAD_SCRATCH_BYTES, native.SHARED_SCRATCH_BYTES)
