"""webgpu, in a browser (or Node on Dawn): tapes on WebGPU through static/gpu.mjs. A step is a handful of calls into JavaScript.

What a browser answers later, Python awaits: load_async, download_async, ring.drain_async. The plain load and download wait
through JSPI where the browser has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from ..compile.graph import REGIONS
from ..compile.tape import Tape
from ..errors import DeviceUnavailableError
from .gpu.dispatch import Dispatch
from .gpu.faults import device_error
from .gpu.limits import NAMES, Limits
from .gpu.lower import Lowered, lower
from .gpu.memory import Memory
from .gpu.ranges import TokenCheck

UNIFORM_STRIDE_BYTES = 256


@dataclass
class Loaded:
    """A tape ready to run; `replay` is its JavaScript closure, prepared again when a region has moved."""

    tape: Tape
    lowered: Lowered
    ranges: list
    generation: int = -1
    checked: int = -1
    prepared: object = None
    replay: object = None
    progress: object = field(default=None, repr=False)


async def open_webgpu(clamp: dict[str, int] | None = None) -> WebGPUMachine:
    """The machine of this page's WebGPU. `clamp` lowers limits by WebGPU's names (tests).

    The worker registers static/gpu.mjs as the module posttrainllm_gpu. Raises DeviceUnavailableError.
    """
    import posttrainllm_gpu as host
    from js import Object
    from pyodide.ffi import JsException, to_js

    try:
        engine = (
            await host.openGPU(None, to_js(clamp or {}, dict_converter=Object.fromEntries))
            if clamp
            else await host.openGPU()
        )
    except JsException as error:
        raise DeviceUnavailableError(
            "webgpu", "the browser gives the page a GPU", str(error), "the CPU engine is used"
        ) from error
    return WebGPUMachine(engine)


class WebGPUMachine:
    """A GPU behind gpu.mjs's Engine."""

    name = "webgpu"

    def __init__(self, engine) -> None:
        self._engine, self._write = engine, engine.write
        given = json.loads(engine.limits)
        self.limits = Limits(**{ours: int(given[theirs]) for ours, theirs in NAMES.items()})
        self.description = f"WebGPU, {engine.description}"
        self.software = bool(engine.software)  # a CPU that plays a GPU: right, and slower than the cpu engine
        self._memory = Memory(self.limits)
        self._tokens = TokenCheck()

    def allocate(self, region_bytes: dict[str, int]) -> None:
        for region, nbytes in region_bytes.items():
            self._memory.require(REGIONS.index(region), nbytes)  # refused before anything is made
        for region, nbytes in region_bytes.items():
            self._resize(REGIONS.index(region), nbytes)
        self._tokens.resize(region_bytes.get("inputs", 0))

    def _resize(self, number: int, nbytes: int) -> None:
        size = self._memory.grow(number, nbytes)
        if size:
            self._engine.allocate(number, size)

    def _place(self, address: int, nbytes: int) -> tuple[int, int]:
        return self._memory.find(address, nbytes)

    def upload(self, address: int, data) -> None:
        from pyodide.ffi import to_js

        data = memoryview(data).cast("B")
        index, offset = self._place(address, len(data))
        self._tokens.uploaded(address, data)
        self._write(index, offset, to_js(data))

    async def download_async(self, address: int, nbytes: int) -> bytes:
        """Bytes of a region, once the GPU is there."""
        index, offset = self._place(address, nbytes)
        return (await self._await(self._engine.read(index, offset, nbytes))).to_bytes()

    def download(self, address: int, nbytes: int) -> bytes:
        return _wait(self.download_async(address, nbytes))

    def view(self, address: int, nbytes: int) -> memoryview:
        """A copy, to be read: a GPU's memory cannot be looked into."""
        return memoryview(self.download(address, nbytes))

    async def load_async(self, tape: Tape, progress=None) -> Loaded:
        """Lower a tape and compile its pipelines; progress(done, all) is called as they come."""
        loaded = Loaded(tape, lower(tape, self.limits), self._tokens.ranges_of(tape), progress=progress)
        for number, nbytes in loaded.lowered.buffer_bytes().items():
            self._resize(number, nbytes)
        await self._prepare(loaded)
        return loaded

    def load(self, tape: Tape) -> Loaded:
        return _wait(self.load_async(tape))

    async def _prepare(self, loaded: Loaded) -> None:
        from pyodide.ffi import create_proxy, to_js

        if loaded.prepared is not None:
            loaded.prepared.release()
        plan, uniforms = describe(loaded.lowered.dispatches, self._memory)
        progress = create_proxy(loaded.progress) if loaded.progress else None
        try:
            loaded.prepared = await self._await(self._engine.prepare(plan, to_js(uniforms), progress))
        finally:
            if progress:
                progress.destroy()
        loaded.replay, loaded.generation = loaded.prepared.replay, self._memory.generation

    def replay(self, loaded: Loaded) -> None:
        self._tokens.require(loaded)
        if loaded.generation != self._memory.generation:
            _wait(self._prepare(loaded))
        self._memory.last = loaded.lowered
        self._call(loaded.replay)
        if self._engine.full and _may_wait():
            self.wait()

    @property
    def full(self) -> bool:
        """Whether so many steps are under way that an asynchronous caller should await wait_async()."""
        return bool(self._engine.full)

    async def wait_async(self) -> None:
        """Until the GPU is idle; raises what went wrong before."""
        await self._await(self._engine.idle())

    def wait(self) -> None:
        """The same, from plain code."""
        _wait(self.wait_async())

    def ring(self, address: int, nbytes: int, every: int = 8) -> MetricRing:
        """Numbers of each step, read back without waiting for the GPU."""
        index, offset = self._place(address, nbytes)
        return MetricRing(self, self._engine.ring(index, offset, nbytes, every), nbytes)

    def _call(self, method, *args):
        from pyodide.ffi import JsException

        try:
            return method(*args)
        except JsException as error:
            raise device_error(str(error)) from error

    async def _await(self, promise):
        from pyodide.ffi import JsException

        try:
            return await promise
        except JsException as error:
            raise device_error(str(error)) from error

    def close(self) -> None:
        self._engine.close()


class MetricRing:
    """As in webgpu_ring.py: push() after each replay; poll() gives the rows that have arrived, in order; drain() all."""

    def __init__(self, machine: WebGPUMachine, ring, nbytes: int) -> None:
        self._machine, self._ring, self._push, self.nbytes = machine, ring, ring.push, nbytes

    def push(self) -> None:
        self._push()

    def poll(self) -> list[bytes]:
        return self._split(self._machine._call(self._ring.poll).to_bytes())

    async def drain_async(self) -> list[bytes]:
        """All rows pushed and not yet given."""
        return self._split((await self._machine._await(self._ring.drain())).to_bytes())

    def drain(self) -> list[bytes]:
        return _wait(self.drain_async())

    def _split(self, data: bytes) -> list[bytes]:
        return [data[at : at + self.nbytes] for at in range(0, len(data), self.nbytes)]


def describe(dispatches: list[Dispatch], memory: Memory) -> tuple[str, bytes]:
    """(JSON, uniforms) for gpu.mjs's prepare: each source and pipeline once."""
    sources: dict[str, int] = {}
    pipelines: dict[tuple, int] = {}
    calls = []
    for dispatch in dispatches:
        kinds = tuple((index, writes) for index, _, writes in dispatch.bindings)
        source = sources.setdefault(dispatch.source(), len(sources))
        pipeline = pipelines.setdefault((source, dispatch.entry, kinds), len(pipelines))
        for _, operand, _ in dispatch.bindings:
            memory.check(operand, dispatch.kernel)
        bindings = [[index, o.region, o.offset_bytes, o.nbytes] for index, o, _ in dispatch.bindings]
        calls.append([pipeline, bindings, len(dispatch.uniforms), *dispatch.groups])
    uniforms = b"".join(d.uniforms.ljust(UNIFORM_STRIDE_BYTES, b"\0") for d in dispatches)
    return json.dumps({"sources": list(sources), "pipelines": list(pipelines), "dispatches": calls}), uniforms


def _may_wait() -> bool:
    from pyodide.ffi import can_run_sync

    return can_run_sync()


def _wait(coroutine):
    """Run a coroutine to its end from plain code. Needs JSPI."""
    from pyodide.ffi import run_sync

    if not _may_wait():
        coroutine.close()
        raise DeviceUnavailableError(
            "webgpu", "this browser lets Python wait (JSPI)", "it does not here", "use the async methods"
        )
    return run_sync(coroutine)
