"""WebAssembly and native code give the same bits: every kernel of the built engine, under Node, against the native module."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ext.calls import calls
from tests.ext.tapes import Call

native = pytest.importorskip("posttrainllm._native", reason="the native module is not built")
engine_build = pytest.importorskip("tools.engine", reason="the build's tools are not in the tab")
pytestmark = pytest.mark.native_only(reason="starts Node")

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "dist" / "engine"
SCRIPT = Path(__file__).with_name("wasm_bits.mjs")
HOLE_BYTES = (4 << 30) + (256 << 20)
"""Set aside in a memory with 64-bit addresses, so that everything lies beyond what 32 bits reach."""
BUILDS = {
    "single": ("engine-single", 1, 0), "threads-2": ("engine-threads", 2, 0), "threads-3": ("engine-threads", 3, 0),
    "64-bit": ("engine-threads64", 2, 0), "64-bit above 4 GiB": ("engine-threads64", 2, HOLE_BYTES),
}  # fmt: skip
MEMORY64 = "process.exit(WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 5, 3, 1, 4, 1])) ? 0 : 1)"


def blocks(sent: list[Call]) -> bytes:
    """Calls as wasm_bits.mjs reads them."""
    return b"".join(struct.pack("<I", c.image.nbytes) + c.record + c.image.tobytes() for c in sent)


def require_build(build: str) -> None:
    """Skip where an engine is not there, or is not of these sources."""
    if not (BUILT / f"{build}.mjs").exists():
        pytest.skip(f"dist/engine/{build}.mjs is not there: ./build.sh makes it")
    key = ROOT / "build" / "engine" / "key"
    if key.exists() and key.read_text() != engine_build.key():
        pytest.skip("dist/engine was built from other sources: ./build.sh makes it anew")


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


def assert_native_bits(sent: list[Call], lines: list[str]) -> None:
    """What wasm_bits.mjs said of each call is what the native engine gives."""
    engine = native.Engine(2)
    assert len(lines) == len(sent)
    for call, line in zip(sent, lines, strict=True):
        assert line == hashlib.sha256(call.run(engine).tobytes()).hexdigest(), (call.name, call.sizes)


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
