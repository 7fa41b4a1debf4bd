"""webgpu, in a browser (or Node on Dawn): tapes on WebGPU through static/gpu.mjs. A step is a handful of calls into JavaScript.

What a browser answers later, Python awaits: load_all_async, ready_async, download_async, fetch_async, the step queue's landed.
The plain load and download wait through JSPI where the browser has it.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace

from ..compile.graph import REGIONS
from ..compile.tape import Tape
from ..errors import DeviceUnavailableError
from ..waiting import now
from .gpu.describe import describe
from .gpu.dispatch import STATE
from .gpu.faults import device_error
from .gpu.holding import Holding
from .gpu.kinds import by_kind
from .gpu.limits import NAMES, Limits
from .gpu.lower import Lowered, lower
from .gpu.memory import Memory
from .gpu.options import Options
from .gpu.ranges import TokenCheck
from .gpu.upkeep import HALTED_BYTE, LAST_SCALE_BYTE, SCALE_BYTE, Upkeep
from .webgpu_browser_steps import StepQueue

MATRICES = "chromium-experimental-subgroup-matrix"


@dataclass
class Loaded:
    """A tape ready to run; `replay` is its JavaScript closure, prepared again when a region has moved."""

    tape: Tape
    options: Options
    lowered: Lowered
    ranges: list
    generation: int = -1
    checked: int = -1
    prepared: object = None
    replay: object = None


async def open_webgpu(clamp: dict | None = None, precision: str = "f32", engine=None) -> WebGPUMachine:
    """A machine on this page's WebGPU, or on an `engine` (of a machine before) whose device goes on being used.

    The worker registers static/gpu.mjs as the module posttrainllm_gpu. `clamp` lowers limits by WebGPU's names and leaves out the
    features in its list `without` (tests). Raises DeviceUnavailableError.
    """
    import posttrainllm_gpu as host
    from js import Object
    from pyodide.ffi import JsException, to_js

    try:
        if engine is None:
            engine = await host.openGPU(None, to_js(clamp or {}, dict_converter=Object.fromEntries))
    except JsException as error:
        raise DeviceUnavailableError(
            "webgpu", "the browser gives the page a GPU", str(error), "the CPU engine is used"
        ) from error
    return WebGPUMachine(engine, precision)


class WebGPUMachine(Holding):
    """A GPU behind gpu.mjs's Engine."""

    name = "webgpu"

    def __init__(self, engine, precision: str = "f32") -> None:
        self.engine, self._engine, self._write = engine, engine, engine.write
        given, found = json.loads(engine.limits), json.loads(engine.features)
        self.limits = Limits(**{ours: int(given[theirs]) for ours, theirs in NAMES.items()})
        self.features, self.precision = set(found["features"]), precision
        if precision == "f16" and "shader-f16" not in self.features:
            raise DeviceUnavailableError(
                "webgpu", "half precision needs a GPU with shader-f16", "this one has none", "use single precision (f32)"
            )
        shapes = tuple((m, n, k) for kind, result, m, n, k in found["matrices"] if (kind, result) == ("f16", "f32"))
        self.options = Options(
            self.limits, precision, guard=True, subgroups="subgroups" in self.features,
            subgroup_matrix=shapes if MATRICES in self.features else (),
        )  # fmt: skip
        self.description = f"WebGPU, {engine.description}"
        self.software = bool(engine.software)  # a CPU that plays a GPU: right, and slower than the cpu engine
        self._memory = Memory(self.limits, self)
        self._tokens = TokenCheck()
        self._upkeep = Upkeep(self.options)
        self.closed = self._retired = False
        state = self._upkeep.state()
        self._memory.resize(STATE, len(state))
        self._state(0, state)

    def _state(self, offset: int, data: bytes) -> None:
        from pyodide.ffi import to_js

        self._call(self._write, STATE, offset, to_js(data))

    def drop_subgroups(self) -> None:
        """Load tapes without subgroups from now on, also those of later machines on this device."""
        found = json.loads(self.engine.features)
        found["features"] = [name for name in found["features"] if name != "subgroups"]
        self.engine.features = json.dumps(found)
        self.features.discard("subgroups")
        self.options = replace(self.options, subgroups=False)

    def reset_guard(self) -> None:
        """Let steps change the weights again after a gradient norm that was not finite stopped them."""
        self._state(HALTED_BYTE, bytes(4))

    async def gradient_scale_async(self) -> float:
        """What the gradients of the step before are multiplied by: the loss scale in f16, else 1."""
        return struct.unpack("<f", (await self._await(self._engine.read(STATE, LAST_SCALE_BYTE, 4))).to_bytes())[0]

    def loss_scale(self) -> tuple[float, float]:
        """(loss scale, good steps since it changed): what a run in half precision goes on with. At once after fetch_async."""
        kept = self._engine.view(STATE, SCALE_BYTE, 8)
        return struct.unpack("<2f", (kept or now(self._await(self._engine.read(STATE, SCALE_BYTE, 8)))).to_bytes())

    def set_loss_scale(self, scale: float, good_steps: float) -> None:
        """Go on with these."""
        self._state(0, self._upkeep.state(scale, good_steps))

    def make_buffer(self, number: int, nbytes: int) -> None:
        """For Memory: a buffer so long, with what it held before."""
        self._call(self._engine.allocate, number, nbytes)

    def copy_buffer(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        """For Memory."""
        self._call(self._engine.copy, source, at, target, to, nbytes)

    def drop_buffer(self, number: int) -> None:
        """For Memory."""
        self._call(self._engine.drop, number)

    def upload(self, address: int, data) -> None:
        from pyodide.ffi import JsProxy, to_js

        held = isinstance(data, JsProxy)  # bytes in JavaScript already, as `view` gives them
        data = data if held else memoryview(data).cast("B")
        nbytes, at = data.byteLength if held else len(data), 0
        runs = self._memory.runs(address, nbytes, True)
        self._tokens.uploaded(address, data)
        self._upkeep.uploaded(address, nbytes)
        for index, offset, size in runs:
            part = data if len(runs) == 1 else data.subarray(at, at + size) if held else data[at : at + size]
            self._call(self._write, index, offset, part if held else to_js(part))
            at += size

    async def download_async(self, address: int, nbytes: int) -> bytes:
        """Bytes of a region, once the GPU is there."""
        parts = []
        for run in self._memory.runs(address, nbytes):
            parts.append((self._engine.view(*run) or await self._await(self._engine.read(*run))).to_bytes())
        return b"".join(parts)

    def download(self, address: int, nbytes: int) -> bytes:
        return now(self.download_async(address, nbytes))

    async def fetch_async(self, regions: list[str], params_from: int = 0) -> None:
        """Read regions, and the loss scale, to where `view` finds them at once, until the next replay or upload; of params what
        stands from that byte on."""
        starts = {REGIONS.index("params"): params_from}
        wanted = [part for number in map(REGIONS.index, regions) for part in self._memory.parts_from(number, starts.get(number, 0))]
        await self._await(self._engine.fetch(json.dumps([*wanted, [STATE, 0, self._memory.nbytes[STATE]]])))

    def view(self, address: int, nbytes: int):
        """To be read: a JavaScript Uint8Array of what was fetched, or a copy: a GPU's memory cannot be looked into."""
        return self._engine.joined(json.dumps(self._memory.runs(address, nbytes))) or memoryview(self.download(address, nbytes))

    async def load_all_async(self, tapes: list[Tape], progress=None, precision: str | None = None) -> list[Loaded]:
        """Lower tapes and compile their pipelines; progress(done, all) is called as they come. precision: "f32" keeps activations in
        single precision where the machine's own are halves."""
        for tape in tapes:
            self._memory.require(tape)
        options = replace(self.options, cuts=self._memory.cuts, precision=precision or self.precision)
        made = [Loaded(tape, options, lower(tape, options), self._tokens.ranges_of(tape)) for tape in tapes]
        for loaded in made:  # all before one is bound: what grows later takes away what is bound
            for number, nbytes in loaded.lowered.buffer_bytes().items():
                self._memory.resize(number, nbytes)
        counts = [0] * len(made)

        def told(which: int):
            def tell(done: int, total: int) -> None:
                counts[which] = done / max(1, total)
                progress(int(sum(counts) / len(counts) * 100), 100)

            return tell

        for which, loaded in enumerate(made):
            await self._prepare(loaded, told(which) if progress else None)
        return made

    async def load_async(self, tape: Tape, progress=None) -> Loaded:
        """`load_all_async` of one."""
        return (await self.load_all_async([tape], progress))[0]

    def load(self, tape: Tape) -> Loaded:
        return now(self.load_async(tape))

    async def ready_async(self, loaded: Loaded) -> None:
        """Prepare a tape again where a buffer has moved since."""
        if loaded.generation != self._memory.generation:
            await self._prepare(loaded)

    async def _prepare(self, loaded: Loaded, tell=None) -> None:
        from pyodide.ffi import create_proxy, to_js

        if loaded.prepared is not None:
            loaded.prepared.release()
        if loaded.lowered.cuts != self._memory.cuts:
            self._memory.require(loaded.tape)
            loaded.lowered = lower(loaded.tape, replace(loaded.options, cuts=self._memory.cuts))
        for number, nbytes in loaded.lowered.buffer_bytes().items():
            self._memory.resize(number, nbytes)
        plan, uniforms = describe(loaded.lowered, self._memory)
        progress = create_proxy(tell) if tell else None
        try:
            loaded.prepared = await self._await(self._engine.prepare(plan, to_js(uniforms), progress))
        finally:
            if progress:
                progress.destroy()
        loaded.replay, loaded.generation = loaded.prepared.replay, self._memory.generation

    def replay(self, loaded: Loaded) -> None:
        self._tokens.require(loaded)
        self._before(loaded)
        self._call(loaded.replay)

    def _before(self, loaded: Loaded) -> None:
        """What must be done before a tape that runs next."""
        now(self.ready_async(loaded))
        self._memory.last = loaded.lowered
        refresh, clear = self._upkeep.before(loaded.lowered)
        if clear:
            self.reset_guard()
        if refresh:
            self._call(loaded.prepared.refresh)

    def steps(self, loaded: Loaded, parts: list[tuple[int, int, int]], row_bytes: int, metrics: int, nbytes: int) -> StepQueue:
        """What takes blocks of steps: see Machine.steps."""
        places = [[start, *self._memory.find(address, size), size] for start, address, size in parts]
        index, offset = self._memory.find(metrics, nbytes)
        made = self._call(self._engine.steps, json.dumps(places), row_bytes, index, offset, nbytes)
        return StepQueue(self, loaded, made, nbytes)

    def memory(self) -> dict[str, int]:
        """Bytes held, by kind: of all buffers that there are."""
        return by_kind(self._memory.nbytes, int(self._engine.heldBytes))

    async def time_replays(self, loadeds: list[Loaded], repeats: int) -> list[float]:
        """Milliseconds of one replay of each tape, over `repeats` in a row. The device must have timestamp-query."""
        from pyodide.ffi import to_js

        for loaded in loadeds:
            self._before(loaded)
        lists = to_js([loaded.prepared.calls for loaded in loadeds])
        return json.loads(await self._await(self._engine.timeReplays(lists, repeats)))

    def forget(self, losers: list[Loaded], winners: list[Loaded]) -> None:
        """Give back the pipelines that only `losers` use; those tapes are not replayed again."""
        from pyodide.ffi import to_js

        self._engine.forget(*(to_js([loaded.prepared for loaded in group]) for group in (losers, winners)))

    async def wait_async(self) -> None:
        """Until the GPU is idle; raises what went wrong before."""
        await self._await(self._engine.idle())

    def wait(self) -> None:
        """The same, from plain code."""
        now(self.wait_async())

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

    def retire(self) -> None:
        """Let the device go with this machine: another has one of its own by now."""
        self._retired = True

    def close(self) -> None:
        """Give all memory back; the device and its compiled pipelines stay for the next machine on it."""
        self.closed = True
        self._engine.clear()
        if self._retired:
            self._engine.close()
