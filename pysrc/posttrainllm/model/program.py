"""The tapes of one model: make weights, one training step, evaluate, and decoding with a KV cache.

All tapes share the regions; activations of different tapes overlay each other, since they never run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..compile import Graph, Plan, Tape, Value, differentiate, place, recompute, record, repeat
from ..compile.differentiate import Builder
from ..compile.tape import address
from ..dims import ALIGN_BYTES, ELEMENT_BYTES, PARTIAL_ELEMENTS, round_up
from .config import GPTConfig
from .gpt import STRENGTH, Cache, Layout, trace  # noqa: F401 - STRENGTH is one of the slots below
from .lora import LoRAConfig, sites
from .moments import KINDS, Moments
from .saving import PLAIN, Saving
from .slots import (  # noqa: F401 - others take them from here
    DLOSS, LOSS, METRIC_BYTES, NORM, POSITION, RECIPE, SEED, SLOT_BYTES, dloss_of, inputs, metric_bytes, pack_recipe, places, slot_bytes,
)  # fmt: skip
from .zeroing import FEW_BYTES, flat, worth_zeroing_late, zero_gradients, zero_late


@dataclass
class Pass:
    """One tape with the Values a caller writes before it (tokens, targets) and may read after it.

    A step whose batch goes through in `parts` has the plan, tokens and targets of the first of them (see slots.py).
    """

    plan: Plan
    tape: Tape
    tokens: Value | None = None
    targets: Value | None = None
    outputs: dict[str, Value] = field(default_factory=dict)
    parts: int = 1
    kept_bytes: int = 0  # of the arena, from the forward for the backward

    def address(self, name: str) -> tuple[int, int]:
        """(tape address, bytes) of an output."""
        value = self.outputs[name]
        return address(value), value.nbytes

    def flops(self) -> int:
        """Multiplies and adds of the tape, all parts of a batch together."""
        return self.tape.flops() if self.parts > 1 else self.plan.graph.flops()

    def batch(self) -> tuple[int, int]:
        """(rows, tokens in a row) of all parts together."""
        rows, time = self.tokens.shape
        return self.parts * rows, time


def kept_bytes(plan: Plan, forward: int) -> int:
    """Bytes of the arena that hold something when the forward, of so many nodes, is done."""
    kept = (span for span in plan.arena if span.first < forward <= span.last and span.value.region == "arena")
    return sum(round_up(span.value.nbytes, ALIGN_BYTES) for span in kept)


def seal(graph: Graph, body: range = range(0), lend: dict[str, int] | None = None, **rest) -> Pass:
    """A finished graph as a Pass. With `parts` the tape has its nodes `body` for each of them, one after another on the same arena."""
    plan = place(graph, lend)
    made = Pass(plan, record(plan), **rest)
    if made.parts > 1:
        made.tape = repeat(made.tape, body, places(made.tokens, made.targets, made.parts))
        plan.region_bytes.update(inputs=2 * made.targets.offset_bytes, slots=slot_bytes(made.parts), metrics=metric_bytes(made.parts))
    return made


def regions_of(passes: Iterable[Pass]) -> dict[str, int]:
    """Bytes each region must hold for all of some passes, which overlay each other there."""
    need: dict[str, int] = {}
    for each in passes:
        for region, nbytes in each.plan.region_bytes.items():
            need[region] = max(need.get(region, 0), nbytes)
    return need


def with_slots(need: dict[str, int], parts: int) -> dict[str, int]:
    """Bytes by region, with the room that slots and metrics have for more than the tapes name."""
    return need | {"slots": slot_bytes(parts), "metrics": metric_bytes(parts) + ALIGN_BYTES}  # and the margins of up to 64 pairs (preference.py)


def moments_of(layout: Layout, region: str, start: int, stop: int, kind: Moments) -> Value:
    """AdamW's moments (region "m" or "v") of what is at bytes start … stop of the flat buffers in params."""
    begin, end = (kind.place(at - layout.frozen_bytes) for at in (start, stop))
    dtype, words = "i32" if kind.packed else "f32", (end - begin) // ELEMENT_BYTES
    return Value(f"{region}[{begin}:{end}]", (words,), dtype, region, begin)


def initial_weights(config: GPTConfig, training: bool = True, lora: LoRAConfig | None = None, saving: Saving = PLAIN) -> Pass:
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
        moments = moments_of(layout, region, layout.frozen_bytes, layout.total_bytes, KINDS[saving.moments])
        graph.call("fill", {"N": moments.nbytes // ELEMENT_BYTES}, (0.0,), x=moments)
    return seal(graph)


def lenders(config: GPTConfig, late: bool = True) -> dict[str, int]:
    """What lends its memory to a step, as compile.place takes it: keys and values, and where they become zero late the gradients."""
    return ({"grads": 0} if late else {}) | {"cache": Cache.nbytes(config)}


def update_weights(graph: Graph, layout: Layout, saving: Saving = PLAIN) -> None:
    """Append: the gradients' global norm, and clipped AdamW on all that is trained."""
    everything = flat(layout, "grads", layout.frozen_bytes, layout.total_bytes)
    count = everything.nbytes // ELEMENT_BYTES
    graph.call("grad_norm", {"N": count, "G": -(-count // PARTIAL_ELEMENTS)}, out="partials", grad=everything, norm=NORM)
    parts, kind = ((1, layout.frozen_bytes, layout.decayed_bytes), (0, layout.decayed_bytes, layout.total_bytes)), KINDS[saving.moments]
    for decayed, start, stop in parts:
        if start == stop:
            continue
        each = {name: flat(layout, region, start, stop) for name, region in (("grad", "grads"), ("param", "params"))}
        each |= {region: moments_of(layout, region, start, stop, kind) for region in ("m", "v")}
        graph.call(kind.kernel, kind.sizes((stop - start) // ELEMENT_BYTES), (decayed,), norm=NORM, recipe=RECIPE, **each)


@dataclass
class Step:
    """The graph of a training step, one part of its batch; nodes `body` are gone through for every part, `forward` come before the
    backward."""

    graph: Graph
    body: range
    forward: int
    rest: dict

    def flops(self) -> int:
        """Multiplies and adds of a step, all parts together."""
        whole, once = self.graph, Graph()
        once.nodes = whole.nodes[self.body.start : self.body.stop]
        return whole.flops() + (self.rest["parts"] - 1) * once.flops()


def step_graph(config: GPTConfig, lora: LoRAConfig | None = None, saving: Saving = PLAIN, lend: bool = True) -> Step:
    """What training_step places and records. With `lend` a text's keys and values, which are of no more use when weights change, lend
    their memory to a step; and where a batch goes through whole gradients do until they are."""
    layout, graph, parts = Layout.of(config, lora), Graph(), saving.micro_batches
    weights, rows = layout.values(), config.batch // parts
    tokens, targets = inputs(rows, config.context, parts)
    late = parts == 1 and (lend or worth_zeroing_late(layout))
    if not late:
        zero_gradients(graph, layout)
    first = len(graph.nodes)
    named = trace(graph, config, weights, tokens, rows, config.context, lora=lora)
    _loss(graph, config, named["logits"], targets)
    forward = len(graph.nodes)
    builder = backward(graph, layout, saving, dloss_of(0, parts))
    if late:
        zero_late(graph, layout, 0 if lend else FEW_BYTES)
    body = range(first, len(graph.nodes))
    update_weights(graph, layout, saving)
    gradients = {name: builder.parameter_gradient(weights[name]) for name in layout.trainable_names}
    outputs = gradients | {"loss": LOSS, "gradient_norm": NORM}
    rest = {"tokens": tokens, "targets": targets, "outputs": outputs, "parts": parts, "lend": lenders(config, late) if lend else {}}
    return Step(graph, body, forward, rest)


def training_step(config: GPTConfig, lora: LoRAConfig | None = None, saving: Saving = PLAIN) -> Pass:
    """Zero gradients, forward, loss, backward, global norm, clipped AdamW, for tokens and targets [B,T]; with `lora` of the
    adapter alone.

    With `saving` the batch goes through in parts, whose gradients add up before the norm, and blocks are computed again.
    """
    step = step_graph(config, lora, saving)
    made = seal(step.graph, step.body, **step.rest)
    made.kept_bytes = kept_bytes(made.plan, step.forward)
    if step.rest["lend"]:
        made.tape = replace(made.tape, apart=lambda: _step_apart(config, lora, saving))
    return made


@lru_cache(maxsize=16)
def _step_apart(config: GPTConfig, lora: LoRAConfig | None, saving: Saving) -> Tape:
    """The same step with activations in the arena alone, and gradients zero from the start, or many at a time."""
    step = step_graph(config, lora, saving, lend=False)
    return replace(seal(step.graph, step.body, **step.rest).tape, passing=True, lends=tuple(lenders(config, late=False).items()))


def backward(graph: Graph, layout: Layout, saving: Saving = PLAIN, dloss: Value = DLOSS) -> Builder:
    """Append the gradients of LOSS by all that is trained; the first `saving.recompute` blocks are then computed again in it."""
    forward = len(graph.nodes)
    builder = differentiate(graph, LOSS, dloss, layout.trainable_names, layout.frozen_bytes)
    recompute(graph, forward, [f"blocks.{layer}." for layer in range(saving.recompute)])
    return builder


def _loss(graph: Graph, config: GPTConfig, logits: Value, targets: Value) -> Value:
    rows = logits.shape[0]
    node = graph.call(
        "cross_entropy", {"R": rows, "V": config.vocabulary}, out="losses", logits=logits, targets=targets, loss=LOSS
    )
    return node.arg("losses")


def evaluation(config: GPTConfig, lora: LoRAConfig | None = None, saving: Saving = PLAIN, rows: int = 0) -> Pass:
    """Forward and loss of tokens [B,T], of one part of a batch, or of so many rows; outputs `losses` [R] nats (0 where ignored), `loss` and `logits`."""
    layout, graph, rows = Layout.of(config, lora), Graph(), rows or config.batch // saving.micro_batches
    tokens, targets = inputs(rows, config.context)
    named = trace(graph, config, layout.values(), tokens, rows, config.context, lora=lora)
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


def rows_to_evaluate(config: GPTConfig, saving: Saving, fits: Callable[[int], bool]) -> int:
    """How many rows of a batch are evaluated at once: as in the step, or where blocks are computed again so few that it needs no more."""
    rows = config.batch // saving.micro_batches
    if not saving.recompute:
        return rows
    return next((each for each in range(rows, 1, -1) if rows % each == 0 and fits(each)), 1)


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
        self.initial = initial_weights(config, training, lora, saving)
        self.step = training_step(config, lora, saving) if training else None
        self.evaluation = evaluation(config, lora, saving)
        if self.step is not None:
            most = self.step.plan.region_bytes["arena"]
            rows = rows_to_evaluate(config, saving, lambda rows: evaluation(config, lora, rows=rows).plan.region_bytes["arena"] <= most)
            if rows < self.evaluation.tokens.shape[0]:
                self.evaluation = evaluation(config, lora, rows=rows)
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
        return with_slots(regions_of(self.passes()), self.saving.micro_batches if self.step else 1)

    def memory(self) -> dict[str, int]:
        """Bytes by kind, as the page shows them: activations are what a step keeps from its forward for its backward and a text's keys
        and values, scratch is what only passes through."""
        return by_kind(self.region_bytes(), self.step.kept_bytes if self.step else 0)


def by_kind(need: dict[str, int], kept: int) -> dict[str, int]:
    """Bytes of all regions by what they are for, `kept` of the arena being what a forward keeps."""
    kinds = {
        "weights_bytes": need["params"],
        "gradients_bytes": need["grads"],
        "moments_bytes": need["m"] + need["v"],
        "activations_bytes": kept + need["cache"],
        "scratch_bytes": need["arena"] - kept,
    }
    kinds["other_bytes"] = sum(need.values()) - sum(kinds.values())
    return kinds | {"total_bytes": sum(need.values())}
