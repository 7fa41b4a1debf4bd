"""The tapes of one model: make weights, one training step, evaluate, and decoding with a KV cache.

All tapes share the regions; activations of different tapes overlay each other, since they never run at the same time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..compile import Graph, Plan, Tape, Value, differentiate, place, record
from ..compile.tape import address
from ..dims import ALIGN_BYTES, ELEMENT_BYTES, PARTIAL_ELEMENTS
from .config import GPTConfig
from .gpt import Cache, Layout, trace

RECIPE = Value("recipe", (8,), "f32", "slots", 0)
SEED = Value("seed", (2,), "i32", "slots", ALIGN_BYTES)
DLOSS = Value("dloss", (1,), "f32", "slots", 2 * ALIGN_BYTES)
POSITION = Value("position", (1,), "i32", "slots", 3 * ALIGN_BYTES)
SLOT_BYTES = 4 * ALIGN_BYTES
LOSS = Value("loss", (2,), "f32", "metrics", 0)
NORM = Value("gradient_norm", (1,), "f32", "metrics", ALIGN_BYTES)
METRIC_BYTES = 2 * ALIGN_BYTES


@dataclass
class Pass:
    """One tape with the Values a caller writes before it (tokens, targets) and may read after it."""

    plan: Plan
    tape: Tape
    tokens: Value | None = None
    targets: Value | None = None
    outputs: dict[str, Value] = field(default_factory=dict)

    def address(self, name: str) -> tuple[int, int]:
        """(tape address, bytes) of an output."""
        value = self.outputs[name]
        return address(value), value.nbytes


def _inputs(batch: int, time: int) -> tuple[Value, Value]:
    tokens = Value("tokens", (batch, time), "i32", "inputs", 0)
    start = -(-tokens.nbytes // ALIGN_BYTES) * ALIGN_BYTES
    return tokens, Value("targets", (batch, time), "i32", "inputs", start)


def _flat(layout: Layout, region: str, start: int, stop: int) -> Value:
    return Value(f"{region}[{start}:{stop}]", ((stop - start) // ELEMENT_BYTES,), "f32", region, start)


def _seal(graph: Graph, **rest) -> Pass:
    plan = place(graph)
    return Pass(plan, record(plan), **rest)


def regions_of(passes: Iterable[Pass]) -> dict[str, int]:
    """Bytes each region must hold for all of some passes, which overlay each other there."""
    need: dict[str, int] = {}
    for each in passes:
        for region, nbytes in each.plan.region_bytes.items():
            need[region] = max(need.get(region, 0), nbytes)
    return need


def initial_weights(config: GPTConfig, training: bool = True) -> Pass:
    """Fill every weight from the seed slot: normals by stream number (the weight's place in the list), constants.

    With `training`, AdamW's moments become zero too.
    """
    layout, graph = Layout.of(config), Graph()
    weights = layout.values()
    for stream, parameter in enumerate(layout.parameters):
        sizes, value = {"N": weights[parameter.name].nbytes // ELEMENT_BYTES}, weights[parameter.name]
        if parameter.std:
            graph.call("normal", sizes, (parameter.std, stream), seed=SEED, x=value)
        else:
            graph.call("fill", sizes, (parameter.constant,), x=value)
    for region in ("m", "v") if training else ():
        moments = _flat(layout, region, 0, layout.total_bytes)
        graph.call("fill", {"N": layout.total_bytes // ELEMENT_BYTES}, (0.0,), x=moments)
    return _seal(graph)


def training_step(config: GPTConfig) -> Pass:
    """Zero gradients, forward, loss, backward, global norm, clipped AdamW, for tokens and targets [B,T]."""
    layout, graph = Layout.of(config), Graph()
    weights = layout.values()
    tokens, targets = _inputs(config.batch, config.context)
    everything = _flat(layout, "grads", 0, layout.total_bytes)
    count = layout.total_bytes // ELEMENT_BYTES
    graph.call("fill", {"N": count}, (0.0,), x=everything)
    named = trace(graph, config, weights, tokens, config.batch, config.context)
    _loss(graph, config, named["logits"], targets)
    builder = differentiate(graph, LOSS, DLOSS, set(weights))
    graph.call("grad_norm", {"N": count, "G": -(-count // PARTIAL_ELEMENTS)}, out="partials", grad=everything, norm=NORM)
    for decayed, start, stop in ((1, 0, layout.decayed_bytes), (0, layout.decayed_bytes, layout.total_bytes)):
        flat = {name: _flat(layout, region, start, stop) for name, region in
                (("grad", "grads"), ("param", "params"), ("m", "m"), ("v", "v"))}
        graph.call("adamw", {"N": (stop - start) // ELEMENT_BYTES}, (decayed,), norm=NORM, recipe=RECIPE, **flat)
    gradients = {name: builder.parameter_gradient(value) for name, value in weights.items()}
    return _seal(graph, tokens=tokens, targets=targets, outputs=gradients | {"loss": LOSS, "gradient_norm": NORM})


def _loss(graph: Graph, config: GPTConfig, logits: Value, targets: Value) -> Value:
    rows = logits.shape[0]
    node = graph.call(
        "cross_entropy", {"R": rows, "V": config.vocabulary}, out="losses", logits=logits, targets=targets, loss=LOSS
    )
    return node.arg("losses")


def evaluation(config: GPTConfig) -> Pass:
    """Forward and loss of tokens [B,T]; outputs `losses` [R] nats (0 where ignored), `loss` and `logits`."""
    layout, graph = Layout.of(config), Graph()
    tokens, targets = _inputs(config.batch, config.context)
    named = trace(graph, config, layout.values(), tokens, config.batch, config.context)
    losses = _loss(graph, config, named["logits"], targets)
    losses.keep = named["logits"].keep = True
    return _seal(
        graph, tokens=tokens, targets=targets, outputs={"losses": losses, "loss": LOSS, "logits": named["logits"]}
    )


def forward(config: GPTConfig, batch: int, time: int) -> Pass:
    """Forward only: tokens [B,T] to `logits` [R,V]. T may be shorter than the context."""
    layout, graph = Layout.of(config), Graph()
    tokens, _ = _inputs(batch, time)
    named = trace(graph, config, layout.values(), tokens, batch, time)
    named["logits"].keep = True
    return _seal(graph, tokens=tokens, outputs={"logits": named["logits"]})


def decoding(config: GPTConfig, time: int) -> Pass:
    """Tokens [1,T] that stand at positions POSITION … POSITION+T-1 of a text whose earlier keys and values are in the
    cache region, to `logits` [T,V]; theirs are added there."""
    layout, graph = Layout.of(config), Graph()
    tokens, _ = _inputs(1, time)
    named = trace(graph, config, layout.values(), tokens, 1, time, Cache.of(config, POSITION))
    named["logits"].keep = True
    return _seal(graph, tokens=tokens, outputs={"logits": named["logits"]})


class Program:
    """All tapes of a config. `training=False` leaves out the step, gradients and moments."""

    def __init__(self, config: GPTConfig, training: bool = True) -> None:
        self.config, self.layout = config, Layout.of(config)
        self.initial = initial_weights(config, training)
        self.step = training_step(config) if training else None
        self.evaluation = evaluation(config)
        self._decoding: dict[int, Pass] = {}

    def decoding(self, time: int) -> Pass:
        """The pass for `time` tokens after those in the cache; made at its first use."""
        if time not in self._decoding:
            self._decoding[time] = decoding(self.config, time)
        return self._decoding[time]

    def passes(self) -> Iterable[Pass]:
        """Every pass of the program; of those for decoding the longest, whose memory the shorter ones fit."""
        yield self.initial
        yield self.evaluation
        yield self.decoding(self.config.context)
        if self.step is not None:
            yield self.step

    def region_bytes(self) -> dict[str, int]:
        """Bytes each region must hold for all tapes."""
        need = regions_of(self.passes())
        need["slots"], need["metrics"] = SLOT_BYTES, METRIC_BYTES
        return need

    def memory(self) -> dict[str, int]:
        """Bytes by kind, as the page shows them."""
        need = self.region_bytes()
        kinds = {
            "weights_bytes": need["params"],
            "gradients_bytes": need["grads"],
            "moments_bytes": need["m"] + need["v"],
            "activations_bytes": need["arena"] + need["cache"],
        }
        kinds["other_bytes"] = sum(need.values()) - sum(kinds.values())
        return kinds | {"total_bytes": sum(need.values())}


def pack_recipe(values: Iterable[float]) -> bytes:
    """The recipe slot: eight little-endian floats."""
    return struct.pack("<8f", *values)
