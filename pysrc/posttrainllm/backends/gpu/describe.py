"""A lowered tape as text, for a host in another language."""

from __future__ import annotations

import json

from .lower import Lowered
from .memory import Memory

UNIFORM_STRIDE_BYTES = 256


def describe(lowered: Lowered, memory: Memory) -> tuple[str, bytes]:
    """(JSON, uniforms) for gpu.mjs's prepare: each source and pipeline once."""
    dispatches = [*lowered.refresh, *lowered.dispatches]
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
    plan = {"sources": list(sources), "pipelines": list(pipelines), "dispatches": calls, "refresh": len(lowered.refresh)}
    return json.dumps(plan), uniforms
