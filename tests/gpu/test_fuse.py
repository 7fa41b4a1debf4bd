"""A product and what follows it as one dispatch: fewer dispatches, the same numbers, and nothing lost that may be read."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from posttrainllm.backends.gpu import banks
from posttrainllm.backends.gpu.banks import place
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.compile import Graph, Value, record
from posttrainllm.compile import place as plan
from posttrainllm.compile.tape import address
from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import evaluation, training_step

LAYERS = 3
CONFIG = GPTConfig(layers=LAYERS, channels=32, heads=2, context=16, vocabulary=32, batch=2)


def kernels(tape, **changes):
    return Counter(d.kernel for d in lower(tape, Options(**changes)).dispatches if not d.entry.endswith("_total"))


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_step_has_no_gelu_and_no_add_of_its_own(precision):
    tape = training_step(CONFIG).tape
    fused, apart = kernels(tape, precision=precision), kernels(tape, precision=precision, fuse=False)
    assert apart["gelu"] == apart["gelu_backward"] == LAYERS and apart["add"] == 2 * LAYERS
    assert fused["gelu"] == fused["gelu_backward"] == fused["add"] == 0
    assert fused["linear"] == apart["linear"] == 4 * LAYERS


def test_what_is_read_and_written_at_once_is_apart(monkeypatch):
    """A fused dispatch lives at both records: none of its operands may overlay another, in one buffer too."""
    monkeypatch.setattr(banks, "FEWEST_BANKS", 1)
    for tape in (training_step(CONFIG).tape, evaluation(CONFIG).tape):
        for step in place(tape, DEFAULT).steps:
            if step.epilogue:
                uses = list(step.uses.values())
                for index, one in enumerate(uses):
                    for other in uses[:index]:
                        assert (
                            one.region != other.region
                            or one.offset_bytes + one.nbytes <= other.offset_bytes
                            or other.offset_bytes + other.nbytes <= one.offset_bytes
                        ), step


def summed(keep):
    """A graph of y = x·weight + bias; z = residual + y; and something large after it in the same place."""
    graph = Graph()
    sizes = {"R": 4, "I": 8, "O": 8, "N": 32}
    made = {name: Value(name, shape, "f32", "params", start) for name, shape, start in (
        ("x", (4, 8), 0), ("weight", (8, 8), 256), ("bias", (8,), 512), ("residual", (4, 8), 768))}  # fmt: skip
    y = graph.call("linear", sizes, out="y", x=made["x"], weight=made["weight"], bias=made["bias"]).arg("y")
    y.keep = keep
    z = graph.call("add", sizes, out="z", a=made["residual"], b=y).arg("y")
    for name in "uvw":
        z = graph.call("gelu", {"N": 32}, out=name, x=z).arg("y")
    return record(plan(graph)), y


def test_a_value_that_is_kept_is_written():
    tape, y = summed(keep=True)
    placed = place(tape, DEFAULT)
    assert placed.steps[0].epilogue == 0
    assert placed.find(address(y), 128).nbytes == 128


def test_a_value_that_fusing_left_out_cannot_be_read():
    tape, _ = summed(keep=False)
    placed = place(tape, DEFAULT)
    assert placed.steps[0].epilogue == 2 and len(placed.fused) == 1
    lost = placed.fused[0]
    for span in placed.spans:  # were nothing put in its place since
        span.start += 1 << 20
    with pytest.raises(DeviceError, match="fused into the next"):
        placed.find(lost.start | 4 << 56, 128)


def _lowered(fuse, tape, given):
    return lower(tape, replace(Options.of(given), fuse=fuse))


@pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
@pytest.mark.parametrize("chunks", [1, 3])
def test_the_same_numbers_as_apart(open_gpu, monkeypatch, chunks):
    """To the bit: a sum is the same, and what follows is the same arithmetic on it."""
    from posttrainllm.backends import webgpu
    from posttrainllm.backends.gpu import tiles
    from posttrainllm.model.gpt import Layout

    from tests.gpu.test_training import ODD, Run

    monkeypatch.setattr(tiles, "FORCED", [(tiles.MatmulTile(32, 32, 8, 4, 4), chunks)])
    machine = open_gpu(DEFAULT)
    got = []
    for fuse in (True, False):
        monkeypatch.setattr(webgpu, "lower", partial(_lowered, fuse))
        run = Run(machine, ODD)
        run.train(1)
        got.append([run.machine.download(*run.step.address(p.name)) for p in Layout.of(ODD).parameters])
    assert got[0] == got[1]
