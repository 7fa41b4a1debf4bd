"""Attention on a GPU against the float64 judge: every head width is another shader, seconds to compile on a CPU."""

import pytest
from posttrainllm.backends.gpu import attention_tiles
from posttrainllm.backends.gpu.attention_tiles import AttentionTile

from tests.helpers.cases import base_case
from tests.helpers.kernels import check_parity

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
NAMES = ("attention", "attention_backward")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [5, 16, 40, 128])
def test_attention_at_each_head_width(gpu, name, width):
    for time in (1, 31, 32, 33, 70):
        check_parity(gpu, base_case(name, D=width, T=time, H=2))


@pytest.mark.parametrize("kind", ["shifted", "large", "equal"])
@pytest.mark.parametrize("name", NAMES)
def test_attention_on_unkind_data(gpu, name, kind):
    check_parity(gpu, base_case(name, kind, D=16, T=45))


def test_attention_at_the_longest_context(gpu):
    check_parity(gpu, base_case("attention", B=1, H=1, D=16, T=2048))
    check_parity(gpu, base_case("attention_backward", B=1, H=1, D=16, T=2048))


@pytest.mark.parametrize("name", NAMES)
def test_wide_attention_tile(open_gpu, name, monkeypatch):
    machine = open_gpu()
    tile = AttentionTile(64, 32, 16, 4, 4)
    assert tile.fits(machine.limits)
    monkeypatch.setattr(attention_tiles, "attention_tile", lambda *_: tile)
    check_parity(machine, base_case(name, B=1, H=2, D=36, T=97))
