"""Calls on the builds of the WebAssembly engine, under Node and in a browser: what both tests of them share."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from tests.ext.tapes import Call

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "dist" / "engine"
SCRIPT = Path(__file__).with_name("wasm_bits.mjs")
HOLE_BYTES = (4 << 30) + (256 << 20)
"""Set aside in a memory with 64-bit addresses, so that everything lies beyond what 32 bits reach."""
BUILDS = {
    "single": ("engine-single", 1, 0), "threads-2": ("engine-threads", 2, 0), "threads-3": ("engine-threads", 3, 0),
    "64-bit": ("engine-threads64", 2, 0), "64-bit above 4 GiB": ("engine-threads64", 2, HOLE_BYTES),
}  # fmt: skip


def blocks(sent: list[Call]) -> bytes:
    """Calls as wasm_bits.mjs reads them."""
    return b"".join(struct.pack("<I", c.image.nbytes) + c.record + c.image.tobytes() for c in sent)


def require_build(build: str) -> None:
    """Skip where an engine is not there, or is not of these sources."""
    if not (BUILT / f"{build}.mjs").exists():
        pytest.skip(f"dist/engine/{build}.mjs is not there: ./build.sh makes it")
    from tools import engine

    key = ROOT / "build" / "engine" / "key"
    if key.exists() and key.read_text() != engine.key():
        pytest.skip("dist/engine was built from other sources: ./build.sh makes it anew")


def assert_native_bits(sent: list[Call], lines: list[str]) -> None:
    """What wasm_bits.mjs said of each call is what the native engine gives."""
    from posttrainllm import _native

    engine = _native.Engine(2)
    assert len(lines) == len(sent)
    for call, line in zip(sent, lines, strict=True):
        assert line == hashlib.sha256(call.run(engine).tobytes()).hexdigest(), (call.name, call.sizes)
