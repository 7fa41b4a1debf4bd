"""Every kernel on a GPU against the float64 judge. Which cases: those that change the shader's way of working."""

import numpy as np
import pytest
from posttrainllm.backends.gpu import lower, tiles
from posttrainllm.backends.gpu.tiles import AttentionTile, MatmulTile
from posttrainllm.ops import KERNELS

from tests.helpers.cases import ALL_CASES, base_case
from tests.helpers.kernels import check_parity

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
SHIPPED = (*(tile for tile, _ in tiles.LARGE), tiles.MIDDLE)
COSTLY = ("attention", "attention_backward")  # every head width is another shader, seconds to compile on a CPU


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.name not in COSTLY], ids=lambda kernel: kernel.name)
def test_every_case(gpu, kernel):
    for case in ALL_CASES[kernel.name]:
        check_parity(gpu, case)


@pytest.mark.parametrize("name", COSTLY)
@pytest.mark.parametrize("width", [5, 16, 40, 128])
def test_attention_at_each_head_width(gpu, name, width):
    for time in (1, 31, 32, 33, 70):
        check_parity(gpu, base_case(name, D=width, T=time, H=2))


@pytest.mark.parametrize("kind", ["shifted", "large", "equal"])
@pytest.mark.parametrize("name", COSTLY)
def test_attention_on_unkind_data(gpu, name, kind):
    check_parity(gpu, base_case(name, kind, D=16, T=45))


def test_attention_at_the_longest_context(gpu):
    check_parity(gpu, base_case("attention", B=1, H=1, D=16, T=2048))
    check_parity(gpu, base_case("attention_backward", B=1, H=1, D=16, T=2048))


PRODUCTS = (
    "linear",
    "linear_backward_input",
    "linear_backward_weight",
    "unembed",
    "unembed_backward_input",
    "unembed_backward_weight",
)
EDGES = ((132, 68, 132), (64, 128, 256), (3, 20, 8))


@pytest.mark.parametrize("name", PRODUCTS)
def test_matmul_by_blocks_at_their_edges(gpu, name, monkeypatch):
    monkeypatch.setattr(tiles, "FORCED", [(MatmulTile(64, 32, 8, 4, 8, False), 1)])
    for rows, inputs, outputs in EDGES:
        check_parity(gpu, base_case(name, R=rows, I=inputs, O=outputs, C=inputs, V=outputs))


@pytest.mark.parametrize(
    "name, tile",
    [("linear", SHIPPED[0]), ("linear_backward_input", SHIPPED[1]), ("linear_backward_weight", SHIPPED[2])],
)
def test_tiles_as_shipped(gpu, name, tile, monkeypatch):
    assert tile.fits(gpu.limits)
    monkeypatch.setattr(tiles, "FORCED", [(tile, 1)])
    for rows, inputs, outputs in EDGES:
        check_parity(gpu, base_case(name, R=rows, I=inputs, O=outputs))


@pytest.mark.parametrize("name", PRODUCTS)
def test_sums_in_chunks(gpu, name, monkeypatch):
    monkeypatch.setattr(tiles, "FORCED", [(MatmulTile(32, 32, 8, 4, 4), 3)])
    for size in (23, 100):
        check_parity(gpu, base_case(name, R=size, I=size, O=size + 1, C=size, V=size + 3))


@pytest.mark.parametrize("name", COSTLY)
def test_wide_attention_tile(open_gpu, name, monkeypatch):
    machine = open_gpu()
    tile = AttentionTile(64, 32, 16, 4, 4)
    assert tile.fits(machine.limits)
    monkeypatch.setattr(lower, "attention_tile", lambda *_: tile)
    check_parity(machine, base_case(name, B=1, H=2, D=36, T=97))


def test_two_runs_give_the_same_bits(gpu):
    """No float atomics: a sum has one order."""
    from tests.helpers.cases import inputs_for
    from tests.helpers.kernels import run_kernel

    for name in (
        "embedding_backward",
        "linear_backward_weight",
        "layernorm_backward",
        "attention_backward",
        "grad_norm",
    ):
        case = base_case(name, D=16)
        inputs = inputs_for(case)
        once, again = (run_kernel(gpu, case.kernel, case.sizes, case.params, **inputs) for _ in range(2))
        for output in once:
            assert np.array_equal(once[output].view(np.int32), again[output].view(np.int32)), f"{name} {output}"
