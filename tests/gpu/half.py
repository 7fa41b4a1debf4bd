"""What the tests of half precision share: a machine that stores in it, its own buffers, and a kernel run on f16 arrays."""

import struct

import numpy as np
import pytest
from posttrainllm.backends.gpu.dispatch import STATE
from posttrainllm.backends.gpu.halves import WEIGHTS
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.options import HALF_ARGUMENTS
from posttrainllm.compile import Graph, place, record
from posttrainllm.compile.tape import address
from posttrainllm.dims import product

from tests.helpers.kernels import _placed


@pytest.fixture(scope="module")
def half(gpu):
    """A machine at WebGPU's default limits that stores in half precision."""
    from posttrainllm.backends.webgpu import WebGPUMachine, open_adapter

    adapter = open_adapter()
    if "shader-f16" not in adapter.features:
        pytest.skip("this adapter has no shader-f16")
    made = WebGPUMachine(adapter, DEFAULT, "f16")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def fresh_state(half):
    """The loss scale that a machine starts with."""
    set_state(half, 65536.0)


def read_buffer(machine, number, dtype):
    """The engine's own buffer of that number."""
    return np.frombuffer(bytes(machine._queue.read_buffer(machine._buffers[number])), dtype)


def set_state(machine, scale, good=0.0):
    """Give the state buffer a scale and a number of good steps."""
    data = struct.pack("<5f", scale, good, 0.0, 1 / scale, scale)
    machine._queue.write_buffer(machine._buffers[STATE], 0, data)


def run_half(machine, case, inputs):
    """Run a kernel with its half arguments stored as f16; returns what it wrote, by name: (float64, dtype stored).

    Asserts that nothing but the written arguments changed.
    """
    made_of, halves = case.kernel, HALF_ARGUMENTS.get(case.kernel.name, ())
    values, region_bytes = _placed(made_of, case.sizes, 0)
    for name, value in values.items():  # among the weights nothing but those of products is read in half precision
        value.region = "grads" if value.region == "params" and name not in WEIGHTS else value.region
    region_bytes["grads"] = region_bytes["params"]
    images = {region: bytearray(b"\x5a" * nbytes) for region, nbytes in region_bytes.items()}
    stored = {}
    for argument in made_of.args:
        value = values[argument.name]
        data = inputs.get(argument.name)
        data = np.full(value.shape, np.nan) if data is None else data
        kind = "<i4" if argument.dtype == "i32" else "<f4"
        if argument.name in halves and argument.name not in WEIGHTS:
            kind = "<f2"
        stored[argument.name] = kind
        raw = np.asarray(data, kind).tobytes()
        images[value.region][value.offset_bytes : value.offset_bytes + len(raw)] = raw
    graph = Graph()
    graph.call(made_of.name, case.sizes, case.params, **values)
    machine.allocate(region_bytes)
    starts = {value.region: address(value) - value.offset_bytes for value in values.values()}
    for region, start in starts.items():
        machine.upload(start, images[region])
    machine.replay(machine.load(record(place(graph))))
    found, after = {}, {region: machine.download(start, len(images[region])) for region, start in starts.items()}
    for argument in made_of.args:
        value, kind = values[argument.name], stored[argument.name]
        if argument.role != "in":
            raw = np.frombuffer(after[value.region], kind, product(value.shape), value.offset_bytes)
            found[argument.name] = raw.reshape(value.shape).astype(np.float64), kind
            images[value.region][value.offset_bytes : value.offset_bytes + raw.nbytes] = raw.tobytes()
    assert all(bytes(images[region]) == data for region, data in after.items()), f"{case} wrote outside its outputs"
    return found
