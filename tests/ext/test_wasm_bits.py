"""WebAssembly and native code give the same bits: every kernel of the built engine, under Node, against the native module."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ext.calls import calls
from tests.ext.in_wasm import BUILDS, BUILT, SCRIPT, assert_native_bits, blocks, require_build
from tests.ext.tapes import Call

native = pytest.importorskip("posttrainllm._native", reason="the native module is not built")
pytest.importorskip("tools.engine", reason="the build's tools are not in the tab")
pytestmark = pytest.mark.native_only(reason="starts Node")

MEMORY64 = "process.exit(WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 5, 3, 1, 4, 1])) ? 0 : 1)"


def in_node(variant: str, sent: list[Call], folder: Path) -> list[str]:
    """A line for each call, as wasm_bits.mjs prints them."""
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not on PATH")
    build, threads, hole = BUILDS[variant]
    require_build(build)
    if build.endswith("64") and subprocess.run([node, "-e", MEMORY64], check=False).returncode:
        pytest.skip("this Node has no Memory64 (24 has); e2e/test_memory64.py does the same in Chromium")
    file = folder / "calls.bin"
    file.write_bytes(blocks(sent))
    command = [node, str(SCRIPT), str(BUILT), str(file), build, str(threads), str(hole)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("variant", BUILDS)
def test_webassembly_gives_the_native_bits(variant, tmp_path):
    sent = list(calls(seed=6))
    assert_native_bits(sent, in_node(variant, sent, tmp_path))


def test_webassembly_refuses_in_the_same_words(tmp_path):
    sizes = {"B": 2, "T": 3, "C": 4, "V": 11, "P": 3}
    call = Call.make("embedding", sizes, [], {"tokens": np.array([0, 10, 3, 4, 11, 5], np.int32)})
    (line,) = in_node("single", [call], tmp_path)
    with pytest.raises(RuntimeError) as caught:
        call.run(native.Engine(1))
    assert line == f"refused: {caught.value}"
