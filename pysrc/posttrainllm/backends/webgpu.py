"""webgpu, natively: tapes on a GPU through wgpu-py (wgpu-native, naga). The browser's host is webgpu_browser.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..compile.tape import Tape
from ..errors import DeviceError, DeviceUnavailableError
from .gpu.dispatch import STATE, Dispatch
from .gpu.faults import device_error
from .gpu.holding import Holding
from .gpu.kinds import by_kind
from .gpu.ledger import Ledger
from .gpu.limits import NAMES, Limits
from .gpu.lower import Lowered, lower
from .gpu.memory import Memory
from .gpu.options import Options
from .gpu.ranges import TokenCheck
from .gpu.shader import for_naga
from .gpu.upkeep import Upkeep
from .webgpu_adapter import Watch, dashed, native_limits, open_adapter
from .webgpu_state import gradient_scale, loss_scale, reset_guard, set_loss_scale
from .webgpu_steps import Pace, StepQueue
from .webgpu_timing import forget, key_of, time_replays

UNIFORM_STRIDE_BYTES = 256


@dataclass
class Loaded:
    """A tape ready to run. Prepared again when a region has moved (`generation`)."""

    tape: Tape
    options: Options
    lowered: Lowered
    ranges: list
    generation: int = -1
    checked: int = -1
    refresh: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    kept: list = field(default_factory=list)


class WebGPUMachine(Holding):
    """A GPU. `limits` lowers what is asked of the adapter (tests run at WebGPU's defaults); precision "f16" stores
    activations in half precision. Raises DeviceUnavailableError where the adapter cannot."""

    name = "webgpu"

    def __init__(self, adapter=None, limits: Limits | None = None, precision: str = "f32") -> None:
        adapter = adapter or open_adapter()
        import wgpu

        self._wgpu = wgpu
        self.limits = limits or replace(native_limits(adapter), storage_buffers=8)
        found = set(adapter.features)
        self.precision = precision
        self.options = Options(self.limits, precision, subgroups="subgroup" in found, guard=True)
        if self.options.half and "shader-f16" not in found:
            raise DeviceUnavailableError(
                "webgpu", "half precision needs a GPU with shader-f16", "this one has none", 'use precision="f32"'
            )
        wanted = {theirs: getattr(self.limits, ours) for ours, theirs in NAMES.items()}
        wanted |= dict.fromkeys(("maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY"), self.limits.invocations)
        self._watch = Watch()
        logging.getLogger("wgpu").addHandler(self._watch)
        features = {"timestamp-query", "subgroup", *(["shader-f16"] if self.options.half else [])} & found
        self._device = self._call(
            adapter.request_device_sync, required_features=sorted(features), required_limits=dashed(wanted)
        )
        self.features = features
        self._queue = self._device.queue
        self.description = f"WebGPU, {adapter.info['device'] or adapter.info['vendor']}"
        self.software = (
            adapter.info["adapter_type"] == "CPU"
        )  # a CPU that plays a GPU: right, and slower than the cpu engine
        self._buffers: dict[int, object] = {}
        self._memory, self._ledger = Memory(self.limits, self), Ledger()
        self._tokens = TokenCheck()
        self._pipelines: dict = {}
        self._upkeep = Upkeep(self.options)
        self._memory.resize(STATE, len(self._upkeep.state()))
        self._call(self._queue.write_buffer, self._buffers[STATE], 0, self._upkeep.state())
        self.pace = Pace()

    def _call(self, method: Callable, *args, **kwargs):
        """Call into wgpu; every error becomes a DeviceError, and a lost device stays lost."""
        try:
            result = method(*args, **kwargs)
        except DeviceError:
            raise
        except Exception as error:  # wgpu's GPUError tree, RuntimeError, ValueError for limits
            raise device_error(str(error), type(error).__name__) from error
        if self._watch.messages:
            raise device_error(self._watch.messages[0], "")
        return result

    # Memory

    def _make(self, nbytes: int, usage: str):
        usages = self._wgpu.BufferUsage
        flags = 0
        for word in usage.split():
            flags |= getattr(usages, word)
        buffer = self._call(self._device.create_buffer, size=nbytes, usage=flags)
        self._ledger.made(buffer, nbytes)
        return buffer

    def make_buffer(self, number: int, nbytes: int) -> None:
        """For Memory: a buffer so long, with what it held before."""
        fresh, old = self._make(nbytes, "STORAGE COPY_SRC COPY_DST"), self._buffers.get(number)
        self._buffers[number] = fresh
        if old is not None:
            self._copy(old, 0, fresh, 0, old.size)
            self._ledger.destroy(old)

    def copy_buffer(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        """For Memory."""
        self._copy(self._buffers[source], at, self._buffers[target], to, nbytes)

    def drop_buffer(self, number: int) -> None:
        """For Memory."""
        self._ledger.destroy(self._buffers.pop(number))

    def _copy(self, source, at: int, target, to: int, nbytes: int) -> None:
        encoder = self._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(source, at, target, to, nbytes)
        self._call(self._queue.submit, [encoder.finish()])

    def _place(self, address: int, nbytes: int):
        number, offset = self._memory.find(address, nbytes)
        return self._buffers[number], offset

    def upload(self, address: int, data) -> None:
        data, at = memoryview(data).cast("B"), 0
        runs = self._memory.runs(address, len(data), True)
        self._tokens.uploaded(address, data)
        self._upkeep.uploaded(address, len(data))
        for number, offset, nbytes in runs:
            self._call(self._queue.write_buffer, self._buffers[number], offset, data[at : at + nbytes])
            at += nbytes

    def download(self, address: int, nbytes: int) -> bytes:
        runs = self._memory.runs(address, nbytes)
        return b"".join(bytes(self._call(self._queue.read_buffer, self._buffers[buffer], *run)) for buffer, *run in runs)

    def view(self, address: int, nbytes: int) -> memoryview:
        """A copy, to be read: a GPU's memory cannot be looked into."""
        return memoryview(self.download(address, nbytes))

    def memory(self) -> dict[str, int]:
        """Bytes held, by kind: of all buffers that there are."""
        return by_kind(self._memory.nbytes, self._ledger.held_bytes)

    # Tapes

    def load(self, tape: Tape, precision: str | None = None) -> Loaded:
        """As Machine.load. precision: "f32" keeps a tape's activations in single precision where the machine's own are halves."""
        self._memory.require(tape)
        options = replace(self.options, cuts=self._memory.cuts, precision=precision or self.precision)
        loaded = Loaded(tape, options, lower(tape, options), self._tokens.ranges_of(tape))
        self._prepare(loaded)
        return loaded

    def _pipeline(self, dispatch: Dispatch):
        key = key_of(dispatch)
        if key not in self._pipelines:
            kinds = [(index, "storage" if writes else "read-only-storage") for index, writes in key[-1]] + [
                (15, "uniform")
            ]
            compute = self._wgpu.ShaderStage.COMPUTE
            layout = self._call(
                self._device.create_bind_group_layout,
                entries=[{"binding": index, "visibility": compute, "buffer": {"type": kind}} for index, kind in kinds],
            )
            module = self._call(self._device.create_shader_module, code=for_naga(dispatch.source()))
            pipeline = self._call(
                self._device.create_compute_pipeline,
                layout=self._call(self._device.create_pipeline_layout, bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": dispatch.entry},
            )
            self._pipelines[key] = pipeline, layout
        return self._pipelines[key]

    def _prepare(self, loaded: Loaded) -> None:
        """Bind groups and uniforms for the buffers as they are now."""
        if loaded.lowered.cuts != self._memory.cuts:
            self._memory.require(loaded.tape)
            loaded.lowered = lower(loaded.tape, replace(loaded.options, cuts=self._memory.cuts))
        for number, nbytes in loaded.lowered.buffer_bytes().items():
            self._memory.resize(number, nbytes)
        dispatches = [*loaded.lowered.refresh, *loaded.lowered.dispatches]
        uniforms = self._make(UNIFORM_STRIDE_BYTES * max(1, len(dispatches)), "UNIFORM COPY_DST")
        image = b"".join(d.uniforms.ljust(UNIFORM_STRIDE_BYTES, b"\0") for d in dispatches)
        if image:
            self._call(self._queue.write_buffer, uniforms, 0, image)
        loaded.calls, loaded.kept = [], [uniforms]
        for number, dispatch in enumerate(dispatches):
            pipeline, layout = self._pipeline(dispatch)
            entries = [
                {
                    "binding": 15,
                    "resource": {
                        "buffer": uniforms,
                        "offset": number * UNIFORM_STRIDE_BYTES,
                        "size": len(dispatch.uniforms),
                    },
                }
            ]
            for index, o, _ in dispatch.bindings:
                self._memory.check(o, dispatch.kernel)
                entries.append(
                    {
                        "binding": index,
                        "resource": {"buffer": self._buffers[o.region], "offset": o.offset_bytes, "size": o.nbytes},
                    }
                )
            group = self._call(self._device.create_bind_group, layout=layout, entries=entries)
            loaded.calls.append((pipeline._internal, group._internal, *dispatch.groups))
            loaded.kept.append(group)
        first = len(loaded.lowered.refresh)
        loaded.refresh, loaded.calls = loaded.calls[:first], loaded.calls[first:]
        loaded.generation = self._memory.generation

    def replay(self, loaded: Loaded) -> None:
        self._tokens.require(loaded)
        calls = self.calls_of(loaded)
        parts = self.pace.parts if self.pace.step_seconds else 1 + len(calls) // 64
        self.submit(self.encode(self._device.create_command_encoder(), calls, parts))

    def calls_of(self, loaded: Loaded) -> list:
        """The tape's dispatches for the buffers as they are now; it is taken to run next. What must be done first is sent."""
        if loaded.generation != self._memory.generation:
            self._prepare(loaded)
        self._memory.last = loaded.lowered
        refresh, clear = self._upkeep.before(loaded.lowered)
        if clear:
            self.reset_guard()
        if refresh:
            self.submit(self.encode(self._device.create_command_encoder(), loaded.refresh, 1))
        return loaded.calls

    def drop_subgroups(self) -> None:
        """Load tapes without subgroups from now on."""
        self.options = replace(self.options, subgroups=False)

    reset_guard, gradient_scale, loss_scale, set_loss_scale = reset_guard, gradient_scale, loss_scale, set_loss_scale

    def check_bounds(self, loaded: Loaded, bounds) -> None:
        """Raise DataError where a block's tokens or targets leave the vocabulary."""
        self._tokens.require_bounds(loaded, bounds)

    def encode(self, encoder, calls: list, parts: int):
        """Append a tape to `encoder`, submitting between `parts` of it; returns the encoder to go on with."""
        size = -(-len(calls) // max(1, parts))
        for first in range(0, len(calls), size):
            if first:
                self.submit(encoder)
                encoder = self._device.create_command_encoder()
            self._call(self._encode, encoder, calls[first : first + size])
        return encoder

    def submit(self, encoder) -> None:
        """Send what was encoded."""
        self._call(lambda: self._queue.submit([encoder.finish()]))

    def _encode(self, encoder, calls: list, timestamps: dict | None = None) -> None:
        """One pass. Below wgpu-py's public calls, which cost twice as much as the GPU's work on small models; wgpu reports
        what is wrong in a pass when the encoder finishes, through the public call."""
        from wgpu.backends.wgpu_native import lib

        compute = encoder.begin_compute_pass(timestamp_writes=timestamps)
        handle, none = compute._internal, self._wgpu.backends.wgpu_native.ffi.NULL
        set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        dispatch, last = lib.wgpuComputePassEncoderDispatchWorkgroups, None
        for pipeline, group, x, y, z in calls:
            if pipeline is not last:
                set_pipeline(handle, pipeline)
                last = pipeline
            set_group(handle, 0, group, 0, none)
            dispatch(handle, x, y, z)
        compute.end()

    def steps(
        self, loaded: Loaded, parts: list[tuple[int, int, int]], row_bytes: int, metrics: int, nbytes: int
    ) -> StepQueue:
        """What takes blocks of steps: see Machine.steps."""
        return StepQueue(self, loaded, parts, row_bytes, metrics, nbytes)

    time_replays, forget = time_replays, forget

    def wait(self) -> None:
        """Until the GPU is idle."""
        self._call(self._device._poll_wait)

    def close(self) -> None:
        for buffer in self._buffers.values():
            buffer.destroy()
        self._buffers, self._pipelines = {}, {}
        logging.getLogger("wgpu").removeHandler(self._watch)
        self._device.destroy()
