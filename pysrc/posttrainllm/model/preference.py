"""The tape of one step of preference tuning (ops/dpo.py): S chosen answers and S rejected ones are a batch of 2·S sequences."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import lru_cache

from ..compile import Graph, Value
from ..dims import ALIGN_BYTES, ELEMENT_BYTES
from ..errors import ConfigError
from .config import GPTConfig
from .gpt import Layout, trace
from .lora import LoRAConfig
from .program import LOSS, METRIC_BYTES, NORM, Pass, backward, inputs, lenders, seal, update_weights
from .saving import PLAIN, Saving
from .zeroing import FEW_BYTES, worth_zeroing_late, zero_gradients, zero_late

BETA = Value("beta", (1,), "f32", "slots", 5 * ALIGN_BYTES)


def reference_slot(pairs: int) -> Value:
    """Log-probabilities [2S] of a batch's answers under the reference: the chosen ones', then the rejected ones'."""
    return Value("reference", (2 * pairs,), "f32", "slots", 6 * ALIGN_BYTES)


def margins_of(pairs: int) -> Value:
    """Where a step leaves its margins [S], beside loss and norm: all are read back at once."""
    return Value("margins", (pairs,), "f32", "metrics", METRIC_BYTES)


def preference_step(config: GPTConfig, pairs: int, lora: LoRAConfig | None = None, saving: Saving = PLAIN, lend: bool = True) -> Pass:
    """Zero gradients, forward, cross-entropy of every position, DPO's loss of `pairs` pairs, backward, norm, AdamW.

    Tokens and targets are [2S,T]; `reference_slot` and BETA are slots. Outputs `margins` [S], `loss` and `gradient_norm`. With
    `saving` blocks are computed again; a batch of pairs goes through in one part. Raises ConfigError where more are asked for. `lend`
    as in program.step_graph.
    """
    if saving.micro_batches > 1:
        raise ConfigError(
            "dpo", "pairs go through in one part", f"micro_batches = {saving.micro_batches} came",
            "use 1, and recompute blocks or a smaller batch to save memory",
        )  # fmt: skip
    layout, graph = Layout.of(config, lora), Graph()
    weights, rows = layout.values(), 2 * pairs * config.context
    tokens, targets = inputs(2 * pairs, config.context)
    late = lend or worth_zeroing_late(layout)
    if not late:
        zero_gradients(graph, layout)
    logits = trace(graph, config, weights, tokens, 2 * pairs, config.context, lora=lora)["logits"]
    sizes = {"R": rows, "V": config.vocabulary, "S": pairs, "T": config.context}
    losses = graph.call("cross_entropy", sizes, out="losses", logits=logits, targets=targets).arg("losses")
    slots = {"reference": reference_slot(pairs), "beta": BETA}
    margins = graph.call("dpo", sizes, losses=losses, margins=margins_of(pairs), loss=LOSS, **slots).arg("margins")
    builder = backward(graph, layout, saving)
    if late:
        zero_late(graph, layout, 0 if lend else FEW_BYTES)
    update_weights(graph, layout, saving)
    gradients = {name: builder.parameter_gradient(weights[name]) for name in layout.trainable_names}
    made = gradients | {"margins": margins, "loss": LOSS, "gradient_norm": NORM}
    step = seal(graph, tokens=tokens, targets=targets, outputs=made, lend=lenders(config) if lend else None)
    if lend:
        step.tape = replace(step.tape, apart=lru_cache(lambda: preference_step(config, pairs, lora, saving, False).tape))
    else:
        step.tape = replace(step.tape, passing=True, lends=tuple(lenders(config, late=False).items()))
    return step


def metric_bytes(pairs: int) -> int:
    """Bytes from LOSS on that hold loss, norm and margins."""
    return METRIC_BYTES + pairs * ELEMENT_BYTES


def unpack_margins(data: bytes, pairs: int) -> tuple[float, ...]:
    """The margins out of those bytes."""
    return struct.unpack_from(f"<{pairs}f", data, METRIC_BYTES)
