"""Every module that half precision and matrix units make, through Tint and WebGPU's checks, on any machine: Dawn's null backend has
all features and runs nothing. Needs Node 20 or later and PTL_DAWN: the path of npm webgpu's dawn.node.
"""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from posttrainllm.backends.gpu import subjects, tiles
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.tiles import TENSOR_SMALL, TensorTile, as_choice, key_of, units_key
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import training_step
from posttrainllm.ops import KERNEL_IDS, KERNELS

from tests.gpu.test_dawn import SHIPPED, WIDE
from tests.helpers.cases import ALL_CASES

pytestmark = pytest.mark.native_only(reason="starts Node")
UNITS = ((16, 16, 16), (8, 8, 8))
FLAGS = ["enable-dawn-features=allow_unsafe_apis", "backend=null"]
BROKEN = {
    "label": "broken",
    "source": "@compute @workgroup_size(1) fn broken() { let broken: u32 = 1.5; }",
    "entry": "broken",
}


def answers(modules):
    """modules.mjs's line for each."""
    dawn, node = os.environ.get("PTL_DAWN"), shutil.which("node")
    if not dawn or not node:
        pytest.skip("PTL_DAWN is not set (the path of dawn.node from npm's webgpu), or there is no Node")
    script = Path(__file__).parent / "modules.mjs"
    modules = list(modules)
    asked = json.dumps({"flags": FLAGS, "modules": modules})
    done = subprocess.run(
        [node, str(script), dawn], input=asked, check=False, capture_output=True, text=True, timeout=300
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(modules) + 1, done.stderr[-2000:]
    return rows[1:]


def described(dispatches, label=""):
    """As modules to compile, each once. A pipeline of the null backend needs subgroups of 128."""
    found = {}
    for dispatch in dispatches:
        found[dispatch.source(), dispatch.entry] = {
            "label": f"{label} {dispatch.entry} {dispatch.constants}", "source": dispatch.source(), "entry": dispatch.entry,
        }  # fmt: skip
    return list(found.values())


def refused(modules):
    return [f"{row['label']}: {row['error']}" for row in answers(modules) if row.get("error")]


def test_a_broken_module_is_refused():
    assert len(refused([BROKEN])) == 1


@pytest.mark.parametrize("units", [(), UNITS], ids=["plain", "matrix units"])
@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_modules_of_a_training_step(monkeypatch, precision, units):
    for name, value in zip(("LARGE", "MIDDLE", "SMALL"), SHIPPED):
        monkeypatch.setattr(tiles, name, value)
    found, right = [], {units_key(layout): as_choice(TENSOR_SMALL, 1) for layout in subjects.KERNELS}
    for config in (GPTConfig.preset("medium"), GPTConfig.preset("gpt2", vocabulary=257, layers=1)):
        lowered = lower(
            training_step(config).tape, Options(DEFAULT, precision, units, subgroups=True, tiles=right, guard=True)
        )
        found += [*lowered.refresh, *lowered.dispatches]
    matrix = [d for d in found if ("TENSOR", True) in d.constants]
    assert bool(matrix) == (precision == "f16" and bool(units))
    assert not refused(described(found))


LATER = [made_of.name for made_of in KERNELS[KERNEL_IDS["lora"] :]]


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_modules_of_kernels_for_tuning(precision):
    """At the ranks and widths that change what a shader is made of."""
    modules = []
    for name in LATER:
        for case in ALL_CASES[name]:
            if case.kind == "usual":
                lowered = lower(subjects.one_kernel(name, case.sizes, case.params), Options(DEFAULT, precision, subgroups=True))
                modules += described(lowered.dispatches, str(case))
    assert len(modules) > len(LATER) and not refused({each["source"] + each["entry"]: each for each in modules}.values())


def test_every_tile_of_matrix_units_in_every_layout():
    more = (TensorTile(2, 2, 2, 2, 16, 2, False), TensorTile(4, 2, 2, 2, 16, FRAGMENT=8))
    modules = []
    for layout in subjects.KERNELS:
        shape, name = (layout, 256, 256, 512), f"{layout} 256"
        turned = [replace(tile, TRANSPOSED=True) for tile in (*subjects.TENSOR, *more)]
        for tile in (*subjects.TENSOR, *more, *turned):
            for chunks in (1, 2):
                options = Options(WIDE, "f16", UNITS, tiles={key_of(*shape, "f16"): as_choice(tile, chunks)})
                if tile.suits(options, *shape) and tile.threads % 128 == 0:
                    modules += described(lower(subjects.one_product(*shape), options).dispatches, name)
    assert len(modules) > 60 and all("enable chromium_experimental" in m["source"] for m in modules)
    too_large = "larger than the maximum allowed (16384 bytes)"  # for the null backend: Tint and its checks came before
    assert not [row for row in refused(modules) if too_large not in row]
