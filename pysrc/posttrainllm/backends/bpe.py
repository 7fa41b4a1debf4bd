"""The C++ tokenizer (ext/bpe.h), natively and in the tab. Arrays of ids are array("i"); texts are bytes of at most 1 GiB.

`open_bpe` gives None where there is none: the caller then does it in Python (data/bpe_reference.py).
"""

from __future__ import annotations

import atexit
import sys
import weakref
from array import array
from typing import Protocol

from ..errors import DeviceError, DeviceOutOfMemoryError

SHARED_BYTES = 64 << 20
"""The WebAssembly memory in which all tokenizers of a tab encode; one that learns gets its own, for its text."""
LARGEST_BYTES = 2 << 30
MEMORY = -1  # kBpeMemory


class BpeEngine(Protocol):
    """Splits, encodes and learns. ids and merges are numbered as in `load`'s table."""

    name: str

    def load(self, table: array) -> None:
        """256 ids of the bytes, then (left, right, token) for each merge in order. Forgets what was counted."""

    def encode(self, data: bytes) -> array:
        """The ids of a text."""

    def split(self, data: bytes) -> array:
        """The lengths of its pre-tokens, in bytes."""

    def count(self, data: bytes) -> int:
        """Add its pre-tokens to the counts; how many different ones there are now."""

    def train(self, tokens: int, minimum: int) -> array:
        """(left, right, token) of each merge, until there are so many new tokens or no pair comes `minimum` times."""

    def close(self) -> None:
        """Give the memory back."""


_alive: weakref.WeakSet[NativeBpe] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A tokenizer that lives as long as its module is none that leaked: nanobind would complain of it at the end."""
    for engine in list(_alive):
        engine.close()


class NativeBpe:
    """In this process."""

    name = "native"

    def __init__(self, native, runs: array) -> None:
        self._bpe = native.Bpe(runs.tobytes())
        _alive.add(self)

    def load(self, table: array) -> None:
        self._call(self._bpe.load, table.tobytes())

    def encode(self, data: bytes) -> array:
        return array("i", self._call(self._bpe.encode, data))

    def split(self, data: bytes) -> array:
        return array("i", self._call(self._bpe.split, data))

    def count(self, data: bytes) -> int:
        return self._call(self._bpe.count, data)

    def train(self, tokens: int, minimum: int) -> array:
        return array("i", self._call(self._bpe.train, tokens, minimum))

    def close(self) -> None:
        self._bpe = None

    def _call(self, method, *arguments):
        try:
            return method(*arguments)
        except MemoryError as error:
            raise _no_memory("the system refused more") from error
        except ValueError as error:
            raise DeviceError(
                "tokenizer", "the engine takes a table and texts of the sizes in ext/bpe.h", str(error)
            ) from error


class WasmBpe:
    """In the tab (static/bpe.mjs)."""

    name = "wasm"

    def __init__(self, engine, runs: array, own: bool) -> None:
        import posttrainllm_host as host

        self._engine, self._own, self._to_uint8, self._bpe = engine, own, host.to_uint8, None
        self._bpe = engine.openBpe(self._bytes(runs))
        if self._bpe is None:
            raise _no_memory("its memory is full")

    def load(self, table: array) -> None:
        self._call(self._bpe.load, self._bytes(table))

    def encode(self, data: bytes) -> array:
        self._call(self._bpe.encode, self._bytes(data))
        return self._result()

    def split(self, data: bytes) -> array:
        self._call(self._bpe.split, self._bytes(data))
        return self._result()

    def count(self, data: bytes) -> int:
        return self._call(self._bpe.count, self._bytes(data))

    def train(self, tokens: int, minimum: int) -> array:
        self._call(self._bpe.train, tokens, minimum)
        return self._result()

    def close(self) -> None:
        if self._bpe is None:
            return
        bpe, self._bpe = self._bpe, None
        try:
            bpe.close()
            if self._own:
                self._engine.close()
        except Exception as error:  # a JsException: the instance ended before
            self._ended(error)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            self.close()

    def _bytes(self, data):
        return self._to_uint8(memoryview(data).cast("B"))

    def _result(self) -> array:
        return array("i", self._bpe.result().to_bytes())

    def _call(self, method, *arguments) -> int:
        try:
            count = int(method(*arguments))
        except Exception as error:  # a JsException: abort() ends an instance that runs out of memory
            self._ended(error)
            raise _no_memory(f"the engine ended ({error})") from error
        if count == MEMORY:
            raise _no_memory("its memory is full")
        if count < 0:
            raise DeviceError(
                "tokenizer", "the engine takes a table and texts of the sizes in ext/bpe.h", "another came"
            )
        return count

    def _ended(self, error: Exception) -> None:
        global _shared
        if _shared is self._engine:
            _shared = None


def _no_memory(came: str) -> DeviceOutOfMemoryError:
    return DeviceOutOfMemoryError("tokenizer", "text and tables fit the engine's memory", came, "use a shorter text")


_shared = None


async def prepare() -> None:
    """In the tab: open the engine in which tokenizers encode, so that plain calls need not wait for it. Else nothing."""
    global _shared
    if sys.platform == "emscripten" and _shared is None:
        import posttrainllm_host as host

        _shared = await host.open_engine(SHARED_BYTES, 1)


async def open_bpe_async(runs: array, text_bytes: int = 0) -> BpeEngine | None:
    """An engine with no table yet; None where there is none. `text_bytes` > 0: one that will learn from so much text."""
    if sys.platform != "emscripten":
        return _native(runs)
    try:
        if not text_bytes:
            await prepare()
            return WasmBpe(_shared, runs, own=False)
        import posttrainllm_host as host

        nbytes = min(LARGEST_BYTES, SHARED_BYTES + 4 * text_bytes)
        return WasmBpe(await host.open_engine(nbytes, 1), runs, own=True)
    except DeviceError:
        raise
    except Exception:  # a JsException or no such module: there is no engine on this page
        return None


def open_bpe(runs: array, text_bytes: int = 0) -> BpeEngine | None:
    """`open_bpe_async` from plain code; in a browser that cannot wait, only what `prepare` opened."""
    if sys.platform != "emscripten":
        return _native(runs)
    from pyodide.ffi import can_run_sync, run_sync

    if can_run_sync():
        return run_sync(open_bpe_async(runs, text_bytes))
    return WasmBpe(_shared, runs, own=False) if _shared is not None else None


def _native(runs: array) -> NativeBpe | None:
    try:
        from .. import _native as native
    except ImportError:
        return None
    return NativeBpe(native, runs) if hasattr(native, "Bpe") else None
