"""The true path of a tab: Python under Pyodide, gpu.mjs, WebGPU on Dawn (Tint), here in Node on any Vulkan driver.

Needs Node 20 or later, Pyodide as build.sh lays it out, and PTL_DAWN: the path of npm webgpu's dawn.node. Without a GPU,
VK_DRIVER_FILES may name the SwiftShader that Debian's chromium ships.
"""

import json
import os
import shutil
import struct
import subprocess

import numpy as np
import pytest
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import LOSS

from tests.gpu.test_training import ODD, Run

pytestmark = pytest.mark.native_only(reason="starts Node")
RECIPE = [3e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0]
STEPS = 11


class Asked(Run):
    """The reference, which remembers what it was fed."""

    def feed(self, number, each=None):
        self.fed = []
        super().feed(number, each)

    def __init__(self, config):
        machine = ReferenceMachine()
        upload = machine.upload
        self.fed = []

        def remember(where, data):
            if len(data) == config.batch * config.context * 4:
                self.fed.append(list(struct.unpack(f"<{len(data) // 4}i", data)))
            upload(where, data)

        machine.upload = remember
        super().__init__(machine, config)


def ask(question):
    """What tests/gpu/in_pyodide.py answers."""
    from tools import paths, runtime

    dawn, node, pyodide = os.environ.get("PTL_DAWN"), shutil.which("node"), runtime.folder()
    if not dawn:
        pytest.skip("PTL_DAWN is not set: the path of dawn.node from npm's webgpu")
    if not node or not (pyodide / "pyodide.mjs").exists():
        pytest.skip("Node or Pyodide is missing: ./build.sh build")
    script = str(paths.REPO / "tests" / "gpu" / "dawn.mjs")
    done = subprocess.run(
        [node, script, dawn, str(pyodide), str(paths.REPO)],
        input=json.dumps(question),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_training_through_pyodide_and_dawn():
    judge = Asked(ODD)
    near = Run(ReferenceMachine(), ODD, nudge=2.0**-23)
    question = {"config": ODD.to_dict(), "steps": [], "recipes": [], "lose": True}
    losses, sway, gradients = [], 0.0, {}
    for number in range(1, STEPS + 1):
        judge.train(number)
        near.train(number)
        question["steps"].append(judge.fed[:2])
        question["recipes"].append([*RECIPE[:6], 1 / (1 - 0.9**number), 1 / (1 - 0.95**number)])
        losses.append(struct.unpack("<f", judge.machine.download(address(LOSS), 4))[0])
        sway = max(sway, abs(near.number(LOSS) - losses[-1]))
        if number == 1:
            gradients = {
                p.name: (judge.read(judge.step, p.name), near.read(near.step, p.name))
                for p in Layout.of(ODD).parameters
            }
    question["gradients"] = list(gradients)
    answer = ask(question)
    assert np.abs(np.array(answer["losses"]) - losses).max() <= 32 * max(sway, 2.0**-23 * losses[0])
    for name, (expected, moved) in gradients.items():
        got = np.frombuffer(bytes.fromhex(answer["gradients"][name]), "<f4")
        scale = np.sqrt((expected**2).mean())
        allowed = 32 * max(np.sqrt(((moved - expected) ** 2).mean()), 2.0**-23 * scale)
        assert np.sqrt(((got - expected) ** 2).mean()) <= allowed < 0.01 * scale, name
    assert answer["progress"][0] == answer["progress"][1] > 10
    assert answer["lost"] == "E-DEVICE-LOST"
