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
from posttrainllm.backends.gpu import tiles
from posttrainllm.backends.gpu.limits import DEFAULT, Limits
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import LOSS, training_step

from tests.gpu.test_training import ODD, Run

pytestmark = pytest.mark.native_only(reason="starts Node")
RECIPE = [3e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0]
STEPS = 11
BROKEN = "@compute @workgroup_size(1) fn broken() { let broken: u32 = 1.5; }"
SHIPPED = (tiles.LARGE, tiles.MIDDLE, tiles.SMALL)  # before conftest's quick ones
WIDE = Limits(1 << 32, 1 << 31, 49152, 1024)


def shipped_sources(monkeypatch) -> list[str]:
    """Every module that medium and the gpt2 shape make, at default and at a large GPU's limits."""
    for name, value in zip(("LARGE", "MIDDLE", "SMALL"), SHIPPED):
        monkeypatch.setattr(tiles, name, value)
    found = {}
    for config in (GPTConfig.preset("medium"), GPTConfig.preset("gpt2", vocabulary=257, layers=1)):
        for limits in (DEFAULT, WIDE):
            for dispatch in lower(training_step(config).tape, limits).dispatches:
                found[dispatch.source()] = None
    return list(found)


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


def test_training_through_pyodide_and_dawn(monkeypatch):
    judge = Asked(ODD)
    near = Run(ReferenceMachine(), ODD, nudge=2.0**-23)
    question = {
        "config": ODD.to_dict(),
        "steps": [],
        "recipes": [],
        "lose": True,
        "quick": True,
        "sources": [*shipped_sources(monkeypatch), BROKEN],
    }
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
    assert len(question["sources"]) > 40
    answer = ask(question)
    assert len(answer["refused"]) == 1 and "broken" in answer["refused"][0]
    assert np.abs(np.array(answer["losses"]) - losses).max() <= 32 * max(sway, 2.0**-23 * losses[0])
    for name, (expected, moved) in gradients.items():
        got = np.frombuffer(bytes.fromhex(answer["gradients"][name]), "<f4")
        scale = np.sqrt((expected**2).mean())
        allowed = 32 * max(np.sqrt(((moved - expected) ** 2).mean()), 2.0**-23 * scale)
        assert np.sqrt(((got - expected) ** 2).mean()) <= allowed < 0.01 * scale, name
    assert answer["progress"][0] == answer["progress"][1] > 10
    assert answer["lost"] == "E-DEVICE-LOST"


def test_regions_in_several_buffers_through_pyodide_and_dawn():
    """Bits of one buffer; a save reads all of them; and memory is as it was foreseen."""
    config = GPTConfig(2, 48, 3, 32, 256, 1)
    rng = np.random.default_rng(4)
    steps = [[rng.integers(0, 256, 32).tolist(), rng.integers(0, 256, 32).tolist()] for _ in range(4)]
    question = {"config": config.to_dict(), "steps": steps, "recipes": [RECIPE] * 4, "gradients": ["wte.weight"], "quick": True, "weights": True}
    whole, cut = ask(question), ask(question | {"clamp": {"maxBufferSize": 100_000, "maxStorageBufferBindingSize": 65_536}})
    assert whole["parts"] == 1 and cut["parts"] > 2 and whole["again"] and cut["again"]
    assert all(whole[name] == cut[name] for name in ("losses", "norms", "gradients", "weights"))
    for answer in (whole, cut):
        held = answer["memory"]
        assert all(abs(held[kind] - answer["foreseen"][kind]) <= 0.05 * held["total_bytes"] for kind in held), answer["memory"]
