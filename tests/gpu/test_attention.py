"""Attention on a GPU against the float64 judge: every head width is another shader, seconds to compile on a CPU."""

import numpy as np
import pytest
from posttrainllm.backends.gpu import attention_tiles, shader
from posttrainllm.backends.gpu.attention_tiles import ENTRIES, AttentionTile, resident
from posttrainllm.backends.gpu.options import HALF_ARGUMENTS
from posttrainllm.ops import kernel

from tests.gpu.modules import open_device
from tests.helpers.cases import base_case, inputs_for
from tests.helpers.kernels import check_parity, compare, judged, tolerances

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
NAMES = ("attention", "attention_backward")
RESIDENT = {  # each way of working once; widths whose tiles fit the 32 KiB of a CPU's driver
    "padded": (resident(32, 32, 4, 4), (5, 20, 40)),
    "ahead": (resident(32, 32, 4, 4, PREFETCH=True, SPARE=True), (32,)),
    "swapped": (resident(32, 16, 4, 4, PREFETCH=True, SPARE=True, PAD=0, UNROLL_D=4), (64,)),
    "unrolled": (resident(16, 16, 4, 4, UNROLL_D=4, UNROLL_T=4), (16,)),
    "eight rows": (resident(16, 16, 8, 4), (20,)),
    "wide": (resident(16, 16, 4, 4, UNROLL_D=4), (128,)),
    "eight columns": (resident(16, 64, 4, 8, PREFETCH=True), (16,)),
}
HALF_ROUNDING, HALF_STEP = 2.0**-11, 2.0**-25  # a half's, relative; and absolute below its normal numbers


@pytest.fixture(scope="module")
def device():
    return open_device()


@pytest.fixture
def forced(monkeypatch):
    """forced(machine, tile, width) has every entry that fits use a tile; returns the kernels it is complete for."""

    def force(machine, tile, width):
        fitting = {e for name in NAMES for e, _ in ENTRIES[name] if tile.fits(machine.limits, e, width)}
        monkeypatch.setattr(attention_tiles, "FORCED", dict.fromkeys(fitting, tile))
        return [name for name in NAMES if {e for e, _ in ENTRIES[name]} & fitting]

    return force


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [5, 16, 40, 128])
def test_each_head_width(gpu, name, width):
    for time in (1, 31, 32, 33, 70):
        check_parity(gpu, base_case(name, D=width, T=time, H=2))


@pytest.mark.parametrize("kind", ["shifted", "large", "equal"])
@pytest.mark.parametrize("name", NAMES)
def test_unkind_data(gpu, name, kind):
    check_parity(gpu, base_case(name, kind, D=16, T=45))


def test_the_longest_context(gpu):
    check_parity(gpu, base_case("attention", B=1, H=1, D=16, T=2048))
    check_parity(gpu, base_case("attention_backward", B=1, H=1, D=16, T=2048))


def test_a_wide_streamed_tile(open_gpu, forced):
    machine = open_gpu()
    assert forced(machine, AttentionTile(64, 32, 16, 4, 4), 36) == list(NAMES)
    for name in NAMES:
        check_parity(machine, base_case(name, B=1, H=2, D=36, T=97))


@pytest.mark.parametrize("label", RESIDENT)
def test_rows_that_stay(open_gpu, forced, label):
    machine = open_gpu()
    tile, widths = RESIDENT[label]
    for width in widths:
        ready = forced(machine, tile, width)
        assert ready
        for name in ready:
            for time in (1, 33, 97):
                check_parity(machine, base_case(name, B=1, H=2, D=width, T=time))
            for kind in ("shifted", "large"):
                check_parity(machine, base_case(name, kind, B=1, H=2, D=width, T=45))


def run_half(device, case, inputs, more, groups_rows):
    """What a kernel's entries leave, by argument, on inputs stored in half precision; `more` constants by entry."""
    made_of, sizes = case.kernel, case.sizes
    stored = {}
    for argument in made_of.args:
        dtype = np.float16 if argument.name in HALF_ARGUMENTS[made_of.name] else np.float32
        shape = made_of.shape(argument, sizes)
        stored[argument.name] = np.full(shape, np.nan, dtype) if argument.name not in inputs else inputs[argument.name].astype(dtype)
    places = {a.name: (index, a.role != "in") for index, a in enumerate(made_of.args)}
    for entry, names in ENTRIES[made_of.name]:
        given = tuple(sorted((more[entry] | {"HALF": True}).items()))
        source = shader.module("attention", made_of.name, given, frozenset())
        arrays = {places[name][0]: (stored[name], places[name][1]) for name in names.split()}
        groups = (-(-sizes["T"] // groups_rows[entry]), sizes["B"] * sizes["H"], 1)
        written = device.run(source, entry, arrays, sizes, groups)
        for name, (index, _) in places.items():
            if index in written:
                stored[name] = written[index].copy()
    return {a.name: stored[a.name] for a in made_of.args if a.role != "in"}


def rounded(case):
    """A case's inputs as half precision holds them."""
    halves = HALF_ARGUMENTS[case.kernel.name]
    return {
        name: value.astype(np.float16).astype(np.float32) if name in halves else value
        for name, value in inputs_for(case).items()
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width, tile", [(16, AttentionTile(32, 32, 16)), (5, AttentionTile(32, 32, 16)), (32, resident(32, 32, 4, 4))])
def test_half_precision(device, name, width, tile):
    for time in (33, 70):
        case = base_case(name, B=2, H=2, D=width, T=time)
        inputs = rounded(case)
        expected = judged(kernel(name), case.sizes, case.params, inputs)
        allowed = tolerances(case, inputs, expected)
        more = {entry: tile.constants(entry, width) for entry, _ in ENTRIES[name]}
        got = run_half(device, case, inputs, more, dict.fromkeys(more, tile.ROWS))
        for output, value in got.items():
            if value.dtype == np.float16:
                slack = HALF_ROUNDING * np.abs(expected[output]).max() + HALF_STEP
                compare(f"{case} {output}", value, expected[output], allowed[output] + slack)
            else:
                compare(f"{case} {output}", value, expected[output], allowed[output])
