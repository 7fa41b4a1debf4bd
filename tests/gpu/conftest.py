"""A GPU for tests: Mesa's lavapipe natively, SwiftShader in Chromium, a real one where there is one."""

import os

import pytest

from .hosts import close_machine, open_machine

os.environ.setdefault("LP_NATIVE_VECTOR_WIDTH", "128")  # lavapipe compiles for four floats in half the time of eight


@pytest.fixture(scope="package", autouse=True)
def quick_tiles():
    """The smallest tile for every matmul: a CPU's driver compiles the others for seconds each. They have their own tests."""
    from posttrainllm.backends.gpu import tiles

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "LARGE", ())
        for name in ("MIDDLE", "SMALL"):
            patch.setattr(tiles, name, tiles.MatmulTile(32, 32, 8, 4, 4))
        yield


@pytest.fixture(scope="session")
def gpu():
    """A machine at WebGPU's default limits, which every device keeps."""
    from posttrainllm.backends.gpu.limits import DEFAULT

    machine = open_machine(DEFAULT)
    yield machine
    close_machine(machine)


@pytest.fixture
def open_gpu():
    """open_gpu(limits) gives another machine, closed after the test; more words as open_machine's."""
    opened = []

    def make(limits=None, **more):
        opened.append(open_machine(limits, **more))
        return opened[-1]

    yield make
    for machine in opened:
        close_machine(machine)
