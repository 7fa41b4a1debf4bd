"""50 steps of `small` give one sha256 of the weights: on every build and number of threads, natively and in a tab.

The hash is committed in same_bits.json. It changes only where a kernel's arithmetic is changed on purpose; then

    python -m tests.model.test_same_bits

writes the new one, and the commit says what changed.
"""

import hashlib
import json
import platform
from pathlib import Path

import pytest

from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from tests.helpers.models import Model, batch, recipe

FILE = Path(__file__).with_name("same_bits.json")
STEPS = 50
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")
BUILDS = {"sse2": 2, "avx2": 1, "avx512": 1} if ON_X86 else {"neon": 1}  # and on how many threads each runs here


def weights_sha256(machine):
    """Train `small` from seed 42 for 50 steps; returns (sha256 of the weights, first and last loss)."""
    model = Model(machine, GPTConfig.preset("small"))
    losses = [
        model.step(*batch(model.config, n), recipe(n + 1, 0.002 * min(1.0, (n + 1) / 10)))[0] for n in range(STEPS)
    ]
    return hashlib.sha256(model.weights_bytes()).hexdigest(), losses[0], losses[-1]


def committed():
    return json.loads(FILE.read_text("utf-8"))["small, 50 steps"]


def test_fifty_steps_give_the_committed_weights(machine):
    sha256, first, last = weights_sha256(machine)
    assert last < 0.75 * first, "it must learn, or the hash is of nothing"
    assert sha256 == committed()


@pytest.mark.native_only(reason="a tab has one build; the machine of the test above is that")
@pytest.mark.parametrize("isa", BUILDS)
def test_every_build_gives_the_same(isa):
    from posttrainllm.backends.native import CpuMachine

    try:
        machine = CpuMachine(BUILDS[isa], isa)
    except (ValueError, DeviceError) as error:
        pytest.skip(f"this host does not run it: {error}")
    try:
        assert machine.isa == isa
        assert weights_sha256(machine)[0] == committed()
    finally:
        machine.close()


if __name__ == "__main__":
    from posttrainllm.backends.native import CpuMachine

    FILE.write_text(json.dumps({"small, 50 steps": weights_sha256(CpuMachine(1))[0]}, indent=1) + "\n", "utf-8")
    print(FILE.read_text("utf-8"))
