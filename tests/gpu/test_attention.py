"""Attention on a GPU against the float64 judge: every head width is another shader, seconds to compile on a CPU."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from posttrainllm.backends.gpu import attention_tiles, shader
from posttrainllm.backends.gpu.attention_tiles import ENTRIES, AttentionTile, TensorTile
from posttrainllm.backends.gpu.limits import DEFAULT, Limits
from posttrainllm.backends.gpu.options import HALF_ARGUMENTS, Options
from posttrainllm.ops import kernel

from tests.gpu.modules import open_device
from tests.gpu.test_tint import refused
from tests.helpers.cases import base_case, inputs_for
from tests.helpers.kernels import check_parity, compare, judged, tolerances

BUSY = pytest.mark.native_only(reason="SwiftShader takes minutes and 11 GB to compile it")
MODULES = pytest.mark.native_only(reason="a shader beside the engine, by wgpu-py: tests/gpu/modules.py")
NAMES = ("attention", "attention_backward")


def resident(rows, cols, rt, ct, **more):
    return AttentionTile(rows, cols, 0, rt, ct, RESIDENT=True, **more)


RESIDENT = {  # each way of working once; widths whose tiles fit the 32 KiB of a CPU's driver
    "padded": (resident(32, 32, 4, 4), (5, 20, 40)),
    "ahead": (resident(32, 32, 4, 4, PREFETCH=True, SPARE=True), (32,)),
    "swapped": (resident(32, 16, 4, 4, PREFETCH=True, SPARE=True, PAD=0, UNROLL_D=4), (64,)),
    "unrolled": (resident(16, 16, 4, 4, UNROLL_D=4, UNROLL_T=4), (16,)),
    "eight rows": (resident(16, 16, 8, 4), (20,)),
    "paired": (resident(16, 16, 4, 4, PAIRED=True, PREFETCH=True), (20, 64)),
    "paired, eight rows": (resident(32, 16, 8, 4, PAIRED=True), (32,)),
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
@pytest.mark.parametrize("width", [5, 16, 40, pytest.param(128, marks=BUSY)])
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


@pytest.mark.native_only(reason="a tile for larger devices than SwiftShader")
def test_a_wide_streamed_tile(open_gpu, forced):
    machine = open_gpu()
    assert forced(machine, AttentionTile(64, 32, 16, 4, 4), 36) == list(NAMES)
    for name in NAMES:
        check_parity(machine, base_case(name, B=1, H=2, D=36, T=97))


@pytest.mark.native_only(reason="seven ways of working, each compiled for long by SwiftShader")
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
        stored[argument.name] = (
            np.full(shape, np.nan, dtype) if argument.name not in inputs else inputs[argument.name].astype(dtype)
        )
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


def check_half(device, case, tile, slack):
    """Compare a tile in half precision with the judge. slack(case, inputs, expected): what rounding to halves may do, by part."""
    name, width = case.kernel.name, case.sizes["D"]
    inputs = rounded(case)
    expected = judged(kernel(name), case.sizes, case.params, inputs)
    allowed = tolerances(case, inputs, expected)
    more = {entry: tile.constants(entry, width) for entry, _ in ENTRIES[name]}
    got = run_half(device, case, inputs, more, dict.fromkeys(more, tile.ROWS))
    for output, value in got.items():
        extra = (
            np.split(slack(case, inputs)[output], 3 if output == "dqkv" else 1, axis=-1)
            if value.dtype == np.float16
            else [0.0]
        )
        for part, bound, found, right in zip(
            "qkv", extra, *(np.split(a, len(extra), axis=-1) for a in (value, expected[output]))
        ):
            stored = HALF_ROUNDING * np.abs(right).max() + HALF_STEP if value.dtype == np.float16 else 0.0
            compare(f"{case} {output} {part}", found, right, allowed[output] + stored + float(np.max(bound)))


def no_slack(case, inputs):
    """Everything is computed in single precision."""
    return {"y": np.zeros((1, 3)), "dqkv": np.zeros((1, 3))}


def weights_as_halves(case, inputs):
    """What rounding the weights of sums to halves may move each result by: half an ulp of every weight, times what it weighs."""
    s = case.sizes
    batch, time, heads, width = (s[letter] for letter in "BTHD")
    q, k, v = inputs["qkv"].astype(float).reshape(batch, time, 3, heads, width).transpose(2, 0, 3, 1, 4)
    scores = np.where(np.tril(np.ones((time, time), bool)), q @ k.swapaxes(-1, -2) / np.sqrt(width), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    flat = lambda x: x.transpose(0, 2, 1, 3).reshape(batch * time, heads * width)
    loose = lambda x: HALF_ROUNDING * np.abs(x) + HALF_STEP
    if case.kernel.name == "attention":
        return {"y": flat(loose(p) @ np.abs(v))}
    y, dy = (
        inputs[name].astype(float).reshape(batch, time, heads, width).transpose(0, 2, 1, 3) for name in ("y", "dy")
    )
    slopes = p * (dy @ v.swapaxes(-1, -2) - (y * dy).sum(-1, keepdims=True)) / np.sqrt(width)
    dq, dk = loose(slopes) @ np.abs(k), loose(slopes).swapaxes(-1, -2) @ np.abs(q)
    return {"dqkv": np.concatenate([flat(dq), flat(dk), flat(loose(p).swapaxes(-1, -2) @ np.abs(dy))], axis=-1)}


@MODULES
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "width, tile", [(16, AttentionTile(32, 32, 16)), (5, AttentionTile(32, 32, 16)), (32, resident(32, 32, 4, 4))]
)
def test_half_precision(device, name, width, tile):
    for time in (33, 70):
        check_half(device, base_case(name, B=2, H=2, D=width, T=time), tile, no_slack)


@MODULES
@pytest.mark.parametrize("name", NAMES)
def test_matrix_units_emulated(device, name):
    for time in (31, 70):
        check_half(device, base_case(name, B=2, H=2, D=16, T=time), TensorTile(32, 32, EMULATE=True), weights_as_halves)


@MODULES
def test_matrix_units_over_several_fragments(device):
    tile = TensorTile(32, 32, EMULATE=True, WIDE=False)
    check_half(device, base_case("attention", B=1, H=2, D=32, T=65), tile, weights_as_halves)


@pytest.mark.native_only(reason="text and arithmetic alone, the same on both hosts")
def test_memory_is_what_the_shader_declares():
    """Workgroup memory as Python counts it, and as the expanded text adds up."""
    for entry, of in (
        ("attention", "attention"),
        ("attention_backward", "attention_backward"),
        ("attention_backward_keys", "attention_backward"),
    ):
        for tile in (*attention_tiles.CANDIDATES[entry], *attention_tiles.TENSOR_CANDIDATES):
            for width in (32, 64) if tile.fits(Limits(workgroup_memory_bytes=1 << 20, invocations=1024), entry) else ():
                text = shader.module("attention", of, tuple(sorted(tile.constants(entry, width).items())), frozenset())
                assert tile.memory_bytes(entry, width) == declared_bytes(text, entry), f"{entry} {tile} {width}"


def declared_bytes(text, entry):
    """Bytes of the workgroup variables that an entry uses, of a module's text."""
    known = {"max": max}
    for line in text.splitlines():
        match = re.match(r"const (\w+)(?:: \w+)? = (.+?);", line)
        if match:
            try:
                known[match[1]] = shader.number(match[2], dict(known))
            except (NameError, SyntaxError, TypeError):
                pass
    body = text[text.index(f"fn {entry}(") :]
    total = 0
    for name, kind in re.findall(r"var<workgroup> (\w+): (.+);", text):
        if re.search(rf"\b{name}\b", body) or name in ("halves", "floats") or (name == "lanes" and "over_row(" in body):
            sizes = re.findall(r", ([^<>]+?)>", kind)
            count = 1
            for size in sizes:
                count *= eval(re.sub(r"(\d)u", r"\1", size).replace("/", "//"), {}, known)
            total += (
                count
                * {"vec4f": 16, "vec4u": 16, "vec2f": 8, "f32": 4, "f16": 2}[re.search(r"vec\w+|f32|f16", kind)[0]]
            )
    return total


def test_modules_through_tint():
    """The browser's compiler takes every kind; its null backend wants matrix units in workgroups of 128."""
    tiles = {
        TensorTile(64, 16): 16, TensorTile(64, 16, WIDE=False): 16, resident(16, 16, 4, 4, PREFETCH=True, SPARE=True): 32,
        resident(16, 16, 4, 4, PAD=0, UNROLL_D=8, UNROLL_T=4): 32,
        resident(16, 16, 4, 4, PAIRED=True): 32, AttentionTile(32, 32, 16): 20,
    }  # fmt: skip
    modules = []
    for name, entries in ENTRIES.items():
        for entry, _ in entries:
            for tile, width in tiles.items():
                for more in ({"HALF": True},) if isinstance(tile, TensorTile) else ({}, {"HALF": True}):
                    given = tuple(sorted((tile.constants(entry, width) | more).items()))
                    if tile.fits(DEFAULT, entry, width):
                        source = shader.module("attention", name, given, frozenset())
                        modules.append({"label": f"{entry} {tile} {more}", "source": source, "entry": entry})
    assert len(modules) > 20
    assert not refused(modules)


def test_matrix_units_only_where_a_probe_chose_them():
    limits = Limits(workgroup_memory_bytes=49152, invocations=1024)
    shape, key = ("attention", 48, 1024, 64), attention_tiles.key_of("attention", 48, 1024, 64, "f16")
    units = Options(limits, "f16", ((16, 16, 16),))
    assert any(isinstance(tile, TensorTile) for tile in attention_tiles.candidates("attention", 64, units))
    assert isinstance(attention_tiles.attention_tile(*shape, units), AttentionTile)
    chosen = replace(units, tiles={key: attention_tiles.as_choice(TensorTile(64, 32))})
    assert attention_tiles.attention_tile(*shape, chosen) == TensorTile(64, 32)
    for other in (
        replace(chosen, precision="f32"),
        replace(chosen, subgroup_matrix=()),
        replace(chosen, limits=DEFAULT),
    ):
        assert isinstance(attention_tiles.attention_tile(*shape, other), AttentionTile)
    for tile in (TensorTile(64, 32, WIDE=False), resident(64, 16, 4, 4, PREFETCH=True)):
        assert attention_tiles.of_choice(json.loads(json.dumps(attention_tiles.as_choice(tile)))) == tile
