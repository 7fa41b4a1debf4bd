"""How much memory a tab's engine takes, with addresses of 32 bits or of 64, and what is said where it cannot be had."""

from __future__ import annotations

import sys
import types

import pytest

from posttrainllm.backends import wasm
from posttrainllm.errors import DeviceLimitError, DeviceOutOfMemoryError, DeviceUnavailableError
from posttrainllm.waiting import now

GIB = 1 << 30


def host(memory_64: str, refuse: str = "", most: int = 0) -> types.ModuleType:
    """worker.mjs's part: `asked` keeps what engines were asked for; all are refused with a sentence."""
    module = types.ModuleType("posttrainllm_host")
    module.asked = []

    async def open_engine(nbytes, threads, wide=False):
        module.asked.append((nbytes, threads, wide))
        raise RuntimeError(refuse)

    module.open_engine, module.default_threads = open_engine, lambda: 2
    module.memory_64, module.most_bytes = (lambda: memory_64), (lambda nbytes, wide: most)
    return module


def opened(monkeypatch, module: types.ModuleType, nbytes: int) -> list[tuple]:
    monkeypatch.setitem(sys.modules, "posttrainllm_host", module)
    now(wasm.open_wasm(nbytes))
    return module.asked


@pytest.mark.parametrize(
    ("memory_64", "nbytes", "wide"),
    [("yes", GIB, False), ("yes", wasm.LIMIT_BYTES - wasm.OVERHEAD_BYTES, False), ("yes", wasm.LIMIT_BYTES, True), ("always", 0, True), ("never", GIB, False)],
)
def test_addresses_have_64_bits_only_where_32_do_not_reach(monkeypatch, memory_64, nbytes, wide):
    module = host(memory_64, "no such file")
    with pytest.raises(DeviceUnavailableError, match="no such file"):
        opened(monkeypatch, module, nbytes)
    assert module.asked == [(nbytes + wasm.OVERHEAD_BYTES, threads, wide) for threads in (2, 1)]


@pytest.mark.parametrize(("memory_64", "nbytes", "limit"), [("never", 9 * GIB, "4,227,858,432"), ("yes", 17 * GIB, "17,179,869,184")])
def test_what_no_addresses_reach_is_refused_with_the_numbers(monkeypatch, memory_64, nbytes, limit):
    module = host(memory_64)
    with pytest.raises(DeviceLimitError) as caught:
        opened(monkeypatch, module, nbytes)
    assert limit in str(caught.value) and f"{nbytes + wasm.OVERHEAD_BYTES:,}" in str(caught.value)
    assert ("Memory64" in str(caught.value)) == (memory_64 == "never") and not module.asked


def test_a_browser_that_refuses_memory_is_asked_what_it_gives(monkeypatch):
    with pytest.raises(DeviceOutOfMemoryError, match=r"9,680,453,632 bytes in one piece; the browser refused; it gives 4,294,967,296"):
        opened(monkeypatch, host("yes", "memory: could not allocate", 4 * GIB), 9 * GIB)


@pytest.mark.parametrize(
    ("device", "wide", "reach"),
    [(0, True, wasm.LIMIT_BYTES - wasm.OVERHEAD_BYTES), (GIB // 2, True, GIB // 4), (8 * GIB, True, 4 * GIB), (8 * GIB, False, wasm.LIMIT_BYTES - wasm.OVERHEAD_BYTES),
     (16 * GIB, True, 10 * GIB), (16 * GIB, False, wasm.LIMIT_BYTES - wasm.OVERHEAD_BYTES), (32 * GIB, True, 16 * GIB - wasm.OVERHEAD_BYTES)],
)  # fmt: skip
def test_a_model_may_take_what_the_machine_can_spare(device, wide, reach):
    assert wasm.reach_bytes(device, wide) == reach
