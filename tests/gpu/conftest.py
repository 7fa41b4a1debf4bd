"""A GPU for tests: Mesa's lavapipe will do. Without wgpu or an adapter these tests are skipped, and say why."""

import os
import tempfile

import pytest
from posttrainllm.errors import DeviceUnavailableError


def _adapter():
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    from posttrainllm.backends.webgpu import open_adapter

    try:
        return open_adapter()
    except DeviceUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", autouse=True)
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
    adapter = _adapter()
    from posttrainllm.backends.gpu.limits import DEFAULT
    from posttrainllm.backends.webgpu import WebGPUMachine

    machine = WebGPUMachine(adapter, DEFAULT)
    yield machine
    machine.close()


@pytest.fixture
def open_gpu():
    """open_gpu(limits) gives another machine, closed after the test."""
    from posttrainllm.backends.webgpu import WebGPUMachine

    opened = []

    def make(limits=None):
        opened.append(WebGPUMachine(_adapter(), limits))
        return opened[-1]

    yield make
    for machine in opened:
        machine.close()
