"""The matmuls' epilogues, half precision and matrix units (emulated where there are none), against float64."""

import numpy as np
import pytest
from posttrainllm.backends.gpu import shader

from tests.gpu.modules import open_device

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
QUICK = {"TILE_M": 32, "TILE_N": 32, "TILE_K": 8, "THREAD_M": 4, "THREAD_N": 4, "K_FIRST": True}
TENSOR = {"TENSOR": True, "EMULATE": True, "FRAGMENTS_M": 1, "FRAGMENTS_N": 2, "SUBGROUPS_M": 2, "SUBGROUPS_N": 1}
LETTERS = {  # kernel to its stem and the letters of rows, columns and depth
    "linear": ("linear", "ROI"),
    "linear_backward_input": ("linear", "RIO"),
    "linear_backward_weight": ("linear", "IOR"),
    "unembed": ("unembed", "RVC"),
    "unembed_backward_input": ("unembed", "RCV"),
    "unembed_backward_weight": ("unembed", "VCR"),
}
EPS = {"f4": 2.0**-23, "f2": 2.0**-10}


@pytest.fixture(scope="module")
def device():
    return open_device()


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return 0.5 * (1 + np.tanh(u)) + 0.5 * x * (1 - np.tanh(u) ** 2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def layout(name, sizes):
    """Shapes of a, b and out as the kernel's buffers hold them, and how a·b reads them."""
    rows, columns, depth = (sizes[letter] for letter in LETTERS[name][1])
    a_along = name != "linear_backward_weight" and name != "unembed_backward_weight"
    b_along = name in ("linear_backward_input", "unembed")
    a, b = ((rows, depth) if a_along else (depth, rows)), ((columns, depth) if b_along else (depth, columns))
    return a, b, (rows, columns), (lambda x: x if a_along else x.T), (lambda x: x.T if b_along else x)


def check(device, name, sizes, constants, chunks=1, epilogue=0):
    """Run one product, total included, and compare it with float64 arithmetic on the same stored numbers."""
    rng = np.random.default_rng(sum(sizes.values()) + epilogue)
    stem, letters = LETTERS[name]
    a_shape, b_shape, out_shape, turn_a, turn_b = layout(name, sizes)
    half = constants.get("HALF", False)
    stored = np.float16 if half else np.float32
    out_type = (
        np.float16 if half and name in ("linear", "linear_backward_input", "unembed_backward_input") else np.float32
    )
    a = rng.standard_normal(a_shape).astype(stored)
    b = rng.standard_normal(b_shape).astype(stored)
    bias = rng.standard_normal(out_shape[1]).astype(np.float32)
    added = name.endswith("weight")
    out = rng.standard_normal(out_shape).astype(out_type) if added else np.full(out_shape, np.nan, out_type)
    other = rng.standard_normal(out_shape).astype(out_type)
    expected = turn_a(a.astype(float)) @ turn_b(b.astype(float)) + (out if added else 0)
    wanted = {}
    numbers = {letter: sizes[letter] for letter in sizes}
    # Binding by kernel: inputs first, in the order of the op.
    first, second = (1, 0) if name == "unembed_backward_weight" else (0, 1)
    arrays = {first: (a, False), second: (b, False)}
    if name == "linear":
        arrays[2], arrays[3], at = (bias, False), (out, True), 3
        expected = expected + bias
    else:
        arrays[2], at = (out, True), 2
    if name == "linear_backward_weight":
        arrays[3] = (bias, True)
        wanted[3] = bias + b.astype(float).sum(0)
    if epilogue == 1:
        arrays[4] = (np.full(out_shape, np.nan, out_type), True)
        wanted[4] = gelu(expected)
    if epilogue in (2, 3):
        arrays[4] = (other, False)
        expected = expected + other if epilogue == 2 else expected * gelu_slope(other.astype(float))
    wanted[at] = expected
    depth = sizes[letters[2]]
    tile_k = constants.get("TILE_K", 32)
    chunk = -(-depth // chunks // tile_k) * tile_k
    chunks = -(-depth // chunk)
    vectors = {f"VECTORS_{x}": shape[1] % 4 == 0 for x, shape in (("A", a_shape), ("B", b_shape), ("OUT", out_shape))}
    whole = out_shape[0] * out_shape[1] + (out_shape[1] if name == "linear_backward_weight" else 0)
    numbers |= {"chunk": chunk, "chunks": chunks, "first_chunk": 0, "whole": whole // (4 if vectors["VECTORS_OUT"] else 1)}
    numbers["line"] = sizes.get("V", 0)
    given = tuple(
        sorted((constants | vectors | {"SPLIT": chunks > 1} | ({"EPILOGUE": epilogue} if epilogue else {})).items())
    )
    source = shader.module(stem, name, given, frozenset())
    known = shader.Expansion(dict(given))
    known.run(shader.sections(stem)[name].splitlines())
    tile_m, tile_n = known.known["TILE_M"], known.known["TILE_N"]
    groups = (-(-out_shape[1] // tile_n), -(-out_shape[0] // tile_m), chunks)
    if chunks > 1:
        scratch = np.full(chunks * whole, np.nan, np.float32)
        reads = {index: arrays[index] for index in (first, second)}
        sums = device.run(source, name, reads | {8: (scratch, True)}, numbers, groups)
        rest = {index: array for index, array in arrays.items() if index not in reads} | {8: (sums[8], True)}
        got = device.run(source, f"{name}_total", rest, numbers, (-(-numbers["whole"] // 256), 1, 1))
    else:
        got = device.run(source, name, arrays, numbers, groups)
    for index, value in wanted.items():
        found = got[index].astype(float)
        rounding = EPS[got[index].dtype.str[1:]]
        allowed = rounding * np.abs(value) + 8 * EPS["f4"] * np.sqrt(depth) * np.abs(value).max()
        error = np.abs(found - value)
        bad = ~(error <= allowed)
        assert not bad.any(), (
            f"{name} binding {index}: {bad.sum()} of {bad.size} off, worst {np.nanmax(error)}, {np.isnan(found).sum()} NaN"
        )


SIZES = {"R": 40, "I": 48, "O": 72, "C": 48, "V": 72}
ODD = {"R": 37, "I": 23, "O": 41, "C": 23, "V": 41}
EPILOGUES = [("linear", 1), ("linear", 2), ("linear_backward_input", 3)]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name, epilogue", EPILOGUES)
def test_epilogues(device, name, epilogue, half):
    for sizes in (SIZES, ODD):
        for chunks in (1, 3):
            check(device, name, sizes, QUICK | ({"HALF": True} if half else {}), chunks, epilogue)


@pytest.mark.parametrize("tiles", [False, True])
@pytest.mark.parametrize("name", LETTERS)
def test_half_precision(device, name, tiles):
    for sizes in (SIZES, ODD):
        for chunks in (1, 2):
            check(device, name, sizes, QUICK | {"HALF": True, "HALF_TILES": tiles}, chunks)


@pytest.mark.parametrize("name", LETTERS)
def test_two_buffers(device, name):
    for sizes in (SIZES, ODD, {"R": 8, "I": 8, "O": 8, "C": 8, "V": 8}):
        for chunks in (1, 2):
            check(device, name, sizes, QUICK | {"BUFFERS": 2}, chunks)


@pytest.mark.parametrize("buffers, wide, depth", [(1, True, 16), (2, True, 32), (1, False, 32), (2, False, 16)])
@pytest.mark.parametrize("name", LETTERS)
def test_matrix_units_emulated(device, name, buffers, wide, depth):
    constants = TENSOR | {"HALF": True, "BUFFERS": buffers, "WIDE": wide, "TILE_K": depth}
    check(device, name, SIZES, constants)
    check(device, name, SIZES, constants, 2)


TURNED = [name for name in LETTERS if name not in ("linear", "unembed_backward_input")]


@pytest.mark.parametrize("wide, depth, subgroups", [(True, 32, 1), (False, 64, 2), (True, 16, 4)])
@pytest.mark.parametrize("name", TURNED)
def test_matrix_units_with_operands_turned(device, name, wide, depth, subgroups):
    constants = TENSOR | {"HALF": True, "WIDE": wide, "TILE_K": depth, "TRANSPOSED": True, "SUBGROUPS_N": subgroups}
    check(device, name, SIZES, constants)
    check(device, name, {"R": 136, "I": 72, "O": 264, "C": 72, "V": 264}, constants, 2)


def test_what_is_turned_may_end_anywhere_along_its_rows(device):
    constants = TENSOR | {"HALF": True, "TRANSPOSED": True}
    check(device, "unembed", {"R": 40, "C": 48, "V": 41}, constants)
    check(device, "linear_backward_weight", {"R": 37, "I": 48, "O": 72}, constants)


@pytest.mark.parametrize("name, epilogue", EPILOGUES)
def test_epilogues_of_matrix_units(device, name, epilogue):
    check(device, name, SIZES, TENSOR | {"HALF": True}, 1, epilogue)


def test_fragments_of_eight_and_columns_that_are_no_multiple_of_four(device):
    constants = TENSOR | {"HALF": True, "FRAGMENT": 8, "FRAGMENTS_M": 2, "TILE_K": 16}
    check(device, "linear_backward_input", SIZES, constants)
    check(device, "unembed", {"R": 40, "C": 48, "V": 41}, TENSOR | {"HALF": True})
