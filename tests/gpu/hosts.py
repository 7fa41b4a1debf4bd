"""The machine under test, on either host: wgpu-py natively, the browser's WebGPU under Pyodide; and ways to hurt it."""

import os
import re
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace

import pytest
from posttrainllm.backends.gpu import shader
from posttrainllm.backends.gpu.dispatch import Dispatch
from posttrainllm.backends.gpu.limits import NAMES
from posttrainllm.errors import DeviceUnavailableError
from posttrainllm.ops import kernel
from posttrainllm.ops.spec import WRITTEN

IN_BROWSER = sys.platform == "emscripten"
REQUIRED = os.environ.get("PTL_GPU_REQUIRED") == "1"
"""Set by build.sh where it installed a driver: no GPU is then a failure and never a skipped test."""


def open_machine(limits=None, without=(), precision="f32"):
    """A machine at `limits`, or at all its adapter has, `without` features of these names. Skips the test where there is no GPU."""
    try:
        adapter = None if IN_BROWSER else _adapter()
    except DeviceUnavailableError as error:
        if REQUIRED:
            raise
        pytest.skip(str(error))
    if IN_BROWSER:
        return _in_browser(limits, without, precision)
    from posttrainllm.backends.webgpu import WebGPUMachine

    return WebGPUMachine(Lesser(adapter, without) if without else adapter, limits, precision)


def _adapter():
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    from posttrainllm.backends.webgpu import open_adapter

    return open_adapter()


class Lesser:
    """An adapter of wgpu-py that has not the features named."""

    def __init__(self, adapter, without):
        self._adapter, self.features = adapter, set(adapter.features) - set(without)

    def __getattr__(self, name):
        return getattr(self._adapter, name)


def _in_browser(limits, without, precision):
    from posttrainllm.backends.webgpu_browser import open_webgpu
    from pyodide.ffi import run_sync

    clamp = {theirs: getattr(limits, ours) for ours, theirs in NAMES.items()} if limits else {}
    return run_sync(open_webgpu(clamp | {"without": list(without)}, precision))


def close_machine(machine):
    """Give the machine's memory back, and its device."""
    machine.close()
    if IN_BROWSER:
        machine._engine.close()


def lose(machine):
    """Take the device away, as a driver's reset does."""
    (machine._engine.device if IN_BROWSER else machine._device).destroy()


def refuse_memory(machine, monkeypatch):
    """From now on the driver has no room for a buffer."""
    if IN_BROWSER:
        from pyodide.code import run_js

        run_js("(device) => { device.popErrorScope = async () => new GPUOutOfMemoryError('no room') }")(
            machine._engine.device
        )
        return
    import wgpu

    def create_buffer(**_):
        raise wgpu.GPUOutOfMemoryError("no room")

    monkeypatch.setattr(machine._device, "create_buffer", create_buffer)


def break_dispatch(loaded, number):
    """Ask for more workgroups than WebGPU allows in one dispatch of a loaded tape."""
    dispatches = loaded.lowered.dispatches
    dispatches[number] = replace(dispatches[number], groups=(70_000, 1, 1))
    loaded.generation = -1  # prepared again at the next replay


@contextmanager
def wrong_shader(machine, name, change):
    """Inside, kernel `name` runs with change(dispatch, source) for a shader; gives the list of entries so replaced."""
    right, replaced = Dispatch.source, []

    def source(dispatch):
        text = right(dispatch)
        if dispatch.kernel != name:
            return text
        replaced.append(dispatch.entry)
        return change(dispatch, text)

    def forget():  # natively a pipeline is kept by its kernel, not by its text
        for key in [key for key in getattr(machine, "_pipelines", ()) if key[0] == name]:
            del machine._pipelines[key]

    forget()
    options = machine.options
    machine.options = replace(options, subgroups=False)  # with them the self-test would leave them out and try again
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Dispatch, "source", source)
            yield replaced
    finally:
        machine.options = options
        forget()


def zeros(dispatch, text):
    """A shader with the same bindings that writes zeros to all that its kernel writes."""
    head = [
        line
        for line in text.splitlines()
        if re.match(r"\s*(enable|alias|diagnostic)\b", line) or shader.BINDING.search(line)
    ]
    head.insert(
        len([line for line in head if line.startswith("enable")]), re.search(r"struct Sizes \{[^}]*\}", text)[0]
    )
    bound = {index for index, _, _ in dispatch.bindings}
    written = {index for index, argument in enumerate(kernel(dispatch.kernel).args) if argument.role in WRITTEN} & bound
    body = []
    for argument in shader.arguments(text):
        if argument.index in written:
            element = re.fullmatch(r"array<(.+)>", argument.type)[1]
            body.append(
                f"for (var i = first; i < arrayLength(&{argument.name}); i += step) {{ {argument.name}[i] = {element}(); }}"
            )
    inputs = "@builtin(global_invocation_id) at: vec3u, @builtin(num_workgroups) groups: vec3u"
    flat = "let first = at.x + 64u * groups.x * (at.y + groups.y * at.z);\nlet step = 64u * groups.x * groups.y * groups.z;"
    return "\n".join([*head, f"@compute @workgroup_size(64) fn {dispatch.entry}({inputs}) {{", flat, *body, "}"])
