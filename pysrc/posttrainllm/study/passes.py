"""Forward passes in which activations are kept to be read, or changed on their way: graphs and tapes of their own.

The model's own tapes know nothing of this, so nothing is paid where nobody looks. A change is one `blend` right after the last
node that writes the value; what it blends with stands in the slots region, so one tape serves any number of changes there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ..compile import Graph, Value, place, record
from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT
from ..dims import ALIGN_BYTES, round_up
from ..model.gpt import Cache, trace
from ..model.program import POSITION, SLOT_BYTES, Pass
from ..waiting import now
from .weights import load_all

MOST_KEPT = 24
"""Passes of a model that stay loaded beside two a layer (a map of changes has one a layer): those used last."""
LEAST_TIME = 16
RELEASED = ("arena", "cache", "inputs", "slots")


@dataclass
class Look:
    """A pass, the Values that hold what is blended in (factor, given) by the value's name, and the tape as the engine loaded it."""

    each: Pass
    changes: dict[str, tuple[Value, Value]]
    loaded: object = None

    async def ready(self, machine) -> None:
        """Make room for it and load it, or prepare it again where a GPU's buffers have moved."""
        machine.allocate({region: nbytes for region, nbytes in self.each.plan.region_bytes.items() if nbytes})
        if self.loaded is None:
            self.loaded = (await load_all(machine, [self.each.tape]))[0]
        elif hasattr(machine, "ready_async"):
            await machine.ready_async(self.loaded)


_LOOKS: WeakKeyDictionary = WeakKeyDictionary()


def padded(time: int, context: int) -> int:
    """Positions of the pass that `time` tokens run in: a power of two or the context, so that few tapes serve every text.

    A position sees none after it, and a row's numbers do not depend on how many are computed with it.
    """
    return min(context, max(LEAST_TIME, 1 << (time - 1).bit_length()))


def look(model, batch: int, time: int, kept: frozenset[str], changed: frozenset[str] = frozenset(), lens: tuple[str, ...] = ()) -> Look:
    """The pass of `batch` rows of `time` tokens that keeps and changes the named values (see `build`), made at its first use."""
    held = _LOOKS.setdefault(model, OrderedDict())
    key = model.program, batch, time, kept, changed, lens
    if key not in held:
        held[key] = build(*key)
        if len(held) > MOST_KEPT + 2 * model.config.layers:
            held.popitem(last=False)
    held.move_to_end(key)
    return held[key]


async def release_async(model) -> None:
    """`release`, for code that awaits."""
    machine, need = model.machine, model.program.region_bytes()
    _LOOKS.pop(model, None)
    if not hasattr(machine, "trim"):
        return
    model.forget_cache(changed=False)
    slots = REGIONS.index("slots") << REGION_SHIFT
    download = machine.download_async if hasattr(machine, "download_async") else None
    kept = await download(slots, need["slots"]) if download else machine.download(slots, need["slots"])
    machine.trim({region: need.get(region, 0) for region in RELEASED})
    machine.allocate(need)
    machine.upload(slots, kept)


def release(model) -> None:
    """Give back what study's passes took of the engine beyond what the model itself needs, and forget the passes: after a big one, memory
    would else be held until the model is closed. Weights, moments and the model's own answers stay as they are. In a tab's CPU engine
    nothing is given back: its memory has one size from the start."""
    now(release_async(model))


def build(program, batch: int, time: int, kept: frozenset[str], changed: frozenset[str], lens: tuple[str, ...] = ()) -> Look:
    """tokens [B,T] to every value named in `kept`; those in `changed` are blended. Outputs are Values by name.

    `lens` names values of the residual stream that also go through ln_f and the unembedding: outputs "lens.<name>" [R,V].
    """
    config, graph = program.config, Graph()
    weights = program.layout.values()
    tokens = Value("tokens", (batch, time), "i32", "inputs", 0)
    trace(graph, config, weights, tokens, batch, time, lora=program.lora)
    values, changes = _changed(graph, changed)
    outputs = {name: values[name] for name in kept}
    rows = {"R": batch * time, "C": config.channels, "V": config.vocabulary}
    for name in lens:
        node = graph.call("layernorm", rows, out=f"lens.{name}.ln_f", x=values[name], weight=weights["ln_f.weight"], bias=weights["ln_f.bias"])
        node = graph.call("unembed", rows, out=f"lens.{name}", x=node.arg("y"), wte=weights[config.head])
        outputs[f"lens.{name}"] = node.arg("logits")
    for value in outputs.values():
        value.keep = True
    plan = place(graph)
    return Look(Pass(plan, record(plan), tokens, outputs=outputs), changes)


def build_decoding(program, time: int, changed: frozenset[str]) -> Look:
    """`build` for tokens [1,T] after those whose keys and values are in the cache, as Program.decoding, to logits [T,V]."""
    config, graph = program.config, Graph()
    tokens = Value("tokens", (1, time), "i32", "inputs", 0)
    trace(graph, config, program.layout.values(), tokens, 1, time, Cache.of(config, POSITION), program.lora)
    values, changes = _changed(graph, changed)
    values["logits"].keep = True
    plan = place(graph)
    return Look(Pass(plan, record(plan), tokens, outputs={"logits": values["logits"]}), changes)


def _changed(graph: Graph, names: frozenset[str]) -> tuple[dict[str, Value], dict[str, tuple[Value, Value]]]:
    """The graph's activations by name, and what is blended into those named."""
    values = {value.name: value for value in graph.values() if value.region == "arena"}
    changes, start = {}, SLOT_BYTES
    for name in sorted(names):
        changes[name], start = _blend(graph, values[name], start)
    return values, changes


def _blend(graph: Graph, value: Value, start: int) -> tuple[tuple[Value, Value], int]:
    """Put a blend after the last node that writes `value`; its other operands, from byte `start` of the slots on, and where they end."""
    size = round_up(value.nbytes, ALIGN_BYTES)
    factor = Value(f"{value.name}.factor", value.shape, "f32", "slots", start)
    given = Value(f"{value.name}.given", value.shape, "f32", "slots", start + size)
    last = max(index for index, node in enumerate(graph.nodes) if value in node.written())
    graph.call("blend", {"N": value.nbytes // 4}, factor=factor, given=given, y=value)
    graph.nodes.insert(last + 1, graph.nodes.pop())
    return (factor, given), start + 2 * size
