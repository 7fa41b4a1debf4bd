"""Every kernel on a GPU against the float64 judge. Which cases: those that change the shader's way of working."""

import numpy as np
import pytest
from posttrainllm.backends.gpu import tiles
from posttrainllm.backends.gpu.tiles import MatmulTile
from posttrainllm.ops import KERNELS

from tests.helpers.cases import ALL_CASES, base_case
from tests.helpers.kernels import check_parity

SHIPPED = (*(tile for tile, _ in tiles.LARGE), tiles.MIDDLE)
COSTLY = ("attention", "attention_backward")  # have their own tests: test_attention.py


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.name not in COSTLY], ids=lambda kernel: kernel.name)
def test_every_case(gpu, kernel):
    for case in ALL_CASES[kernel.name]:
        check_parity(gpu, case)


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
