"""record and decode: a tape says what its graph says, the same bytes every time."""

import struct

import numpy as np
import pytest

from posttrainllm.compile import Graph, Value, decode, place, record
from posttrainllm.compile.graph import REGIONS
from posttrainllm.compile.tape import OFFSET_MASK, RECORD_BYTES, REGION_SHIFT, WORDS, address
from posttrainllm.errors import ShapeError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import Program, training_step
from posttrainllm.ops import KERNEL_IDS, KERNELS
from tests.compile import tape_hashes

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=10, vocabulary=61, batch=3)


def check_round_trip(plan, tape):
    """Every node's kernel, sizes, params (as float32) and operands come back from the bytes."""
    records = list(decode(tape))
    assert len(records) == len(tape) == len(tape.labels) == len(plan.graph.nodes)
    for entry, node in zip(records, plan.graph.nodes):
        assert entry.kernel is node.kernel and entry.sizes == node.sizes
        for got, given, (_, kind) in zip(entry.params, node.params, node.kernel.params, strict=True):
            assert got == (float(np.float32(given)) if kind == "f32" else given)
        expected = tuple((v.region, v.offset_bytes) for v in (node.values[a.name] for a in node.kernel.args))
        assert entry.operands == expected


def test_decode_gives_back_what_was_recorded():
    for each in Program(CONFIG).passes():
        check_round_trip(each.plan, each.tape)


def test_the_words_of_a_record():
    """One record by hand, as the engines read it."""
    graph = Graph()
    dy, x, dx = (
        Value(name, (6, 7), "f32", region, at)
        for name, region, at in (("dy", "v", 512), ("x", "params", 0), ("dx", "arena", 256))
    )
    rest = {
        name: Value(name, (7,), "f32", "grads", at) for name, at in (("weight", 0), ("dweight", 256), ("dbias", 512))
    }
    saved = {name: Value(name, (6,), "f32", "metrics", at) for name, at in (("mean", 0), ("rstd", 256))}
    graph.call("layernorm_backward", {"R": 6, "C": 7}, (1,), dy=dy, x=x, dx=dx, **rest, **saved)
    plan = place(graph)
    words = struct.unpack(f"<{WORDS}q", record(plan).data)
    region = {name: REGIONS.index(name) << REGION_SHIFT for name in REGIONS}
    assert words[:9] == (KERNEL_IDS["layernorm_backward"], 6, 7, 0, 0, 0, 0, 0, 0)
    assert words[9:16] == (1, 0, 0, 0, 0, 0, 0)
    grads, metrics = region["grads"], region["metrics"]
    assert (
        words[16:]
        == (region["v"] + 512, 0, grads, metrics, metrics + 256, address(dx), grads + 256, grads + 512) + (0,) * 8
    )
    assert dx.offset_bytes == 0, "the only arena value stands at its start, wherever it was told to be before"


def test_a_float_parameter_is_its_float32_bits():
    graph = Graph()
    graph.call("fill", {"N": 5}, (0.1,), out="x")
    words = struct.unpack(f"<{WORDS}q", record(place(graph)).data)
    assert words[9] == 0x3DCCCCCD


def test_the_same_config_gives_the_same_bytes():
    one, two = Program(CONFIG), Program(CONFIG)
    for first, second in zip(one.passes(), two.passes(), strict=True):
        assert first.tape == second.tape


def test_tapes_name_only_registered_regions_and_kernels():
    tape = training_step(CONFIG).tape
    for words in struct.iter_unpack(f"<{WORDS}q", tape.data):
        made_of = KERNELS[words[0]]
        assert all(word >> REGION_SHIFT in range(len(REGIONS)) for word in words[16:])
        assert all((word & OFFSET_MASK) % 256 == 0 for word in words[16 : 16 + len(made_of.args)])
        assert words[15] == 0 and all(size > 0 for size in words[1 : 1 + len(made_of.letters)])
    assert len(tape.data) % RECORD_BYTES == 0


def test_what_changes_from_step_to_step_is_a_slot():
    """Rate, clip, corrections, seed and batch are read through regions: no constant of theirs is on the tape."""
    step = training_step(CONFIG)
    read = {value.name: value.region for node in step.plan.graph.nodes for value in node.read()}
    assert {read[name] for name in ("recipe", "dloss")} == {"slots"}
    assert {read[name] for name in ("tokens", "targets")} == {"inputs"}
    params = {name for node in step.plan.graph.nodes for name, _ in node.kernel.params}
    assert params == {"value", "accumulate", "decayed"}


@pytest.mark.parametrize(
    ("sizes", "shape", "message"),
    [
        ({"R": 4, "I": 5, "O": 6}, (4, 7), "argument x must be .4, 5. .R, I."),
        ({"R": 4, "I": 5, "O": 6}, (5, 4), "argument x"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(sizes, shape, message):
    with pytest.raises(ShapeError, match=message):
        Graph().call("linear", sizes, x=Value("h", shape))


def test_an_unknown_argument_is_named():
    with pytest.raises(ShapeError, match="no argument named z"):
        Graph().call("add", {"N": 4}, z=Value("z", (4,)))


@pytest.mark.parametrize("preset", tape_hashes.PRESETS)
def test_a_presets_tapes_have_not_changed(preset):
    """Memory layout and order of work of every preset. A change on purpose: python -m tests.compile.tape_hashes"""
    assert tape_hashes.hashes(preset) == tape_hashes.committed()[preset]
