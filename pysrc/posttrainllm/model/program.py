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
from .gpt import STRENGTH, Cache, Layout, trace  # noqa: F401 - STRENGTH is one of the slots below
from .lora import LoRAConfig, sites
from .saving import PLAIN, Saving

RECIPE = Value("recipe", (8,), "f32", "slots", 0)
SEED = Value("seed", (2,), "i32", "slots", ALIGN_BYTES)
DLOSS = Value("dloss", (1,), "f32", "slots", 2 * ALIGN_BYTES)
POSITION = Value("position", (1,), "i32", "slots", 3 * ALIGN_BYTES)
SLOT_BYTES = 8 * ALIGN_BYTES
"""With room for the slots of other losses (tune/)."""
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


def inputs(batch: int, time: int) -> tuple[Value, Value]:
    """Tokens and targets [B,T], where a tape reads them."""
    tokens = Value("tokens", (batch, time), "i32", "inputs", 0)
    start = -(-tokens.nbytes // ALIGN_BYTES) * ALIGN_BYTES
    return tokens, Value("targets", (batch, time), "i32", "inputs", start)


def _flat(layout: Layout, region: str, start: int, stop: int) -> Value:
    """Bytes start … stop of the flat buffers as they stand in params; the other regions begin at what is trained."""
    offset = start if region == "params" else start - layout.frozen_bytes
    return Value(f"{region}[{offset}:{offset + stop - start}]", ((stop - start) // ELEMENT_BYTES,), "f32", region, offset)


def seal(graph: Graph, **rest) -> Pass:
    """A finished graph as a Pass."""
    plan = place(graph)
    return Pass(plan, record(plan), **rest)


def regions_of(passes: Iterable[Pass]) -> dict[str, int]:
    """Bytes each region must hold for all of some passes, which overlay each other there."""
    need: dict[str, int] = {}
    for each in passes:
        for region, nbytes in each.plan.region_bytes.items():
            need[region] = max(need.get(region, 0), nbytes)
    return need


def initial_weights(config: GPTConfig, training: bool = True, lora: LoRAConfig | None = None) -> Pass:
    """Fill every weight from the seed slot: normals by stream number (the weight's place in the list), constants; with `lora`
    those of the adapter alone.

    With `training`, AdamW's moments become zero too.
    """
    layout, graph = Layout.of(config, lora), Graph()
    weights, trainable = layout.values(), layout.trainable_names
    for stream, parameter in enumerate(layout.parameters):
        if parameter.name not in trainable:
            continue
        sizes, value = {"N": weights[parameter.name].nbytes // ELEMENT_BYTES}, weights[parameter.name]
        if parameter.std:
            graph.call("normal", sizes, (parameter.std, stream), seed=SEED, x=value)
        else:
            graph.call("fill", sizes, (parameter.constant,), x=value)
    for region in ("m", "v") if training else ():
        moments = _flat(layout, region, layout.frozen_bytes, layout.total_bytes)
        graph.call("fill", {"N": moments.nbytes // ELEMENT_BYTES}, (0.0,), x=moments)
    return seal(graph)


def zero_gradients(graph: Graph, layout: Layout) -> None:
    """Append: every gradient becomes zero, so that the backward may add to it."""
    everything = _flat(layout, "grads", layout.frozen_bytes, layout.total_bytes)
    graph.call("fill", {"N": everything.nbytes // ELEMENT_BYTES}, (0.0,), x=everything)


def update_weights(graph: Graph, layout: Layout) -> None:
    """Append: the gradients' global norm, and clipped AdamW on all that is trained."""
    everything = _flat(layout, "grads", layout.frozen_bytes, layout.total_bytes)
    count = everything.nbytes // ELEMENT_BYTES
    graph.call("grad_norm", {"N": count, "G": -(-count // PARTIAL_ELEMENTS)}, out="partials", grad=everything, norm=NORM)
    parts = (1, layout.frozen_bytes, layout.decayed_bytes), (0, layout.decayed_bytes, layout.total_bytes)
    for decayed, start, stop in parts:
        if start == stop:
            continue
        flat = {name: _flat(layout, region, start, stop) for name, region in
                (("grad", "grads"), ("param", "params"), ("m", "m"), ("v", "v"))}
        graph.call("adamw", {"N": (stop - start) // ELEMENT_BYTES}, (decayed,), norm=NORM, recipe=RECIPE, **flat)


def training_step(config: GPTConfig, lora: LoRAConfig | None = None) -> Pass:
    """Zero gradients, forward, loss, backward, global norm, clipped AdamW, for tokens and targets [B,T]; with `lora` of the
    adapter alone."""
    layout, graph = Layout.of(config, lora), Graph()
    weights = layout.values()
    tokens, targets = inputs(config.batch, config.context)
    zero_gradients(graph, layout)
    named = trace(graph, config, weights, tokens, config.batch, config.context, lora=lora)
    _loss(graph, config, named["logits"], targets)
    builder = differentiate(graph, LOSS, DLOSS, layout.trainable_names, layout.frozen_bytes)
    update_weights(graph, layout)
    gradients = {name: builder.parameter_gradient(weights[name]) for name in layout.trainable_names}
    return seal(graph, tokens=tokens, targets=targets, outputs=gradients | {"loss": LOSS, "gradient_norm": NORM})


def _loss(graph: Graph, config: GPTConfig, logits: Value, targets: Value) -> Value:
    rows = logits.shape[0]
    node = graph.call(
        "cross_entropy", {"R": rows, "V": config.vocabulary}, out="losses", logits=logits, targets=targets, loss=LOSS
    )
    return node.arg("losses")


def evaluation(config: GPTConfig, lora: LoRAConfig | None = None) -> Pass:
    """Forward and loss of tokens [B,T]; outputs `losses` [R] nats (0 where ignored), `loss` and `logits`."""
    layout, graph = Layout.of(config, lora), Graph()
    tokens, targets = inputs(config.batch, config.context)
    named = trace(graph, config, layout.values(), tokens, config.batch, config.context, lora=lora)
    losses = _loss(graph, config, named["logits"], targets)
    losses.keep = named["logits"].keep = True
    return seal(
        graph, tokens=tokens, targets=targets, outputs={"losses": losses, "loss": LOSS, "logits": named["logits"]}
    )


def forward(config: GPTConfig, batch: int, time: int, lora: LoRAConfig | None = None) -> Pass:
    """Forward only: tokens [B,T] to `logits` [R,V]. T may be shorter than the context."""
    layout, graph = Layout.of(config, lora), Graph()
    tokens, _ = inputs(batch, time)
    named = trace(graph, config, layout.values(), tokens, batch, time, lora=lora)
    named["logits"].keep = True
    return seal(graph, tokens=tokens, outputs={"logits": named["logits"]})


def decoding(config: GPTConfig, time: int, lora: LoRAConfig | None = None) -> Pass:
    """Tokens [1,T] that stand at positions POSITION … POSITION+T-1 of a text whose earlier keys and values are in the
    cache region, to `logits` [T,V]; theirs are added there."""
    layout, graph = Layout.of(config, lora), Graph()
    tokens, _ = inputs(1, time)
    named = trace(graph, config, layout.values(), tokens, 1, time, Cache.of(config, POSITION), lora)
    named["logits"].keep = True
    return seal(graph, tokens=tokens, outputs={"logits": named["logits"]})


def merging(config: GPTConfig, lora: LoRAConfig) -> Pass:
    """Work the adapter into the base's weights: W[:, first:first+J] += strength·down·up, by the kernel that adds it to activations.

    `identity` [rank, rank], where gradients stand otherwise, must be written before; strength is the slot's.
    """
    layout, graph = Layout.of(config, lora), Graph()
    weights, rank = layout.values(), lora.rank
    identity = Value("identity", (rank, rank), "f32", "grads", 0)
    for site in sites(config, lora):
        sizes = {"R": site.inputs, "I": rank, "O": site.outputs, "K": rank, "J": site.columns}
        down, up, weight = weights[site.down()], weights[site.up()], weights[f"{site.linear}.weight"]
        graph.call("lora", sizes, (site.first,), out=site.name, x=down, down=identity, up=up, strength=STRENGTH, y=weight)
    return seal(graph, outputs={"identity": identity})


class Program:
    """All tapes of a config. `training=False` leaves out the step, gradients and moments.

    With `lora` every tape applies an adapter, and `initial` and the step are about the adapter alone. `saving` says how the step
    earns memory. Raises ConfigError where it does not suit the config.
    """

    def __init__(
        self, config: GPTConfig, training: bool = True, lora: LoRAConfig | None = None, saving: Saving = PLAIN
    ) -> None:
        saving.require_fit(config)
        self.config, self.lora, self.layout, self.saving = config, lora, Layout.of(config, lora), saving
        self.initial = initial_weights(config, training, lora)
        self.step = training_step(config, lora) if training else None
        self.evaluation = evaluation(config, lora)
        self._decoding: dict[int, Pass] = {}

    def decoding(self, time: int) -> Pass:
        """The pass for `time` tokens after those in the cache; made at its first use."""
        if time not in self._decoding:
            self._decoding[time] = decoding(self.config, time, self.lora)
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
        need["slots"], need["metrics"] = SLOT_BYTES, METRIC_BYTES + ALIGN_BYTES  # and the margins of up to 64 pairs (preference.py)
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
