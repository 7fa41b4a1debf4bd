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
VARIANTS = {1: "engine-single.mjs", 2: "engine-threads.mjs", 3: "engine-threads.mjs"}


def in_node(threads: int, sent: list[Call], folder: Path) -> list[str]:
    """A line for each call, as wasm_bits.mjs prints them."""
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not on PATH")
    if not (BUILT / VARIANTS[threads]).exists():
        pytest.skip(f"dist/engine/{VARIANTS[threads]} is not there: ./build.sh makes it")
    key = ROOT / "build" / "engine" / "key"
    if key.exists() and key.read_text() != engine_build.key():
        pytest.skip("dist/engine was built from other sources: ./build.sh makes it anew")
    file = folder / "calls.bin"
    file.write_bytes(b"".join(struct.pack("<I", c.image.nbytes) + c.record + c.image.tobytes() for c in sent))
    command = [node, str(SCRIPT), str(BUILT), str(file), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("threads", VARIANTS)
def test_webassembly_gives_the_native_bits(threads, tmp_path):
    sent = list(calls(seed=6))
    lines = in_node(threads, sent, tmp_path)
    engine = native.Engine(2)
    assert len(lines) == len(sent)
    for call, line in zip(sent, lines, strict=True):
        assert line == hashlib.sha256(call.run(engine).tobytes()).hexdigest(), (call.name, call.sizes)


def test_webassembly_refuses_in_the_same_words(tmp_path):
    sizes = {"B": 2, "T": 3, "C": 4, "V": 11, "P": 3}
    call = Call.make("embedding", sizes, [], {"tokens": np.array([0, 10, 3, 4, 11, 5], np.int32)})
    (line,) = in_node(1, [call], tmp_path)
    with pytest.raises(RuntimeError) as caught:
        call.run(native.Engine(1))
    assert line == f"refused: {caught.value}"
