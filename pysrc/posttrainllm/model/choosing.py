"""Which Saving to take: what each would need in bytes and cost in time, reckoned from plans before anything is made.

What is chosen takes the least time, counted in operations: results in place cost nothing and are always there; then a batch goes through
in as few parts as will do, which adds no operation and rounds sums otherwise; then, where parts alone are not enough, as few blocks as
will do are computed again, which changes no bit. Of two that take as many operations the one in fewer parts is chosen, because it rounds
more like the plain run. Smaller moments change what is learned: they are offered, and never chosen here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..compile import Graph, place
from ..errors import ConfigError
from .config import GPTConfig
from .gpt import Layout
from .lora import LoRAConfig
from .program import by_kind, decoding, evaluation, initial_weights, kept_bytes, regions_of, rows_to_evaluate, step_graph, update_weights, with_slots
from .saving import PLAIN, Saving

RESERVE_BYTES = 8 << 20
"""Kept free beside the regions: tapes, and what an engine needs for itself."""
Fits = Callable[[Saving], bool]


@dataclass(frozen=True)
class Choice:
    """One Saving under a name: bytes of all regions together, what it costs (share of a plain step's operations), whether it fits."""

    name: str
    saving: Saving
    total_bytes: int
    extra_time: float
    fits: bool

    def to_dict(self) -> dict:
        """Plain JSON."""
        own = {"name": self.name, "saving": self.saving.to_dict(), "total_bytes": self.total_bytes}
        return own | {"extra_time": self.extra_time, "fits": self.fits}


@dataclass(frozen=True)
class Planned:
    """What a Program with this Saving holds: bytes by kind as Program.memory has them; operations of a step."""

    memory: dict[str, int]
    flops: int

    @property
    def total_bytes(self) -> int:
        """All regions together."""
        return self.memory["total_bytes"]


@lru_cache(maxsize=128)
def planned(config: GPTConfig, lora: LoRAConfig | None = None, saving: Saving = PLAIN, training: bool = True) -> Planned:
    """What a Program would say of itself, without its tapes."""
    saving.require_fit(config)
    if training and saving.moments != "f32":
        return _with_moments(config, lora, saving)
    if not training:
        return Planned(by_kind(with_slots(_forward_regions(config, lora, config.batch // saving.micro_batches), 1), 0), 0)
    step = step_graph(config, lora, saving)
    plan, parts = place(step.graph, step.rest["lend"]), saving.micro_batches
    most = plan.region_bytes["arena"]
    rows = rows_to_evaluate(config, saving, lambda rows: _evaluated(config, lora, rows)["arena"] <= most)
    need = _forward_regions(config, lora, rows)
    regions = plan.region_bytes | {"inputs": 2 * step.rest["targets"].offset_bytes}
    need = with_slots({region: max(nbytes, regions[region]) for region, nbytes in need.items()}, parts)
    return Planned(by_kind(need, kept_bytes(plan, step.forward)), step.flops())


def _with_moments(config: GPTConfig, lora: LoRAConfig | None, saving: Saving) -> Planned:
    """The plan of a Saving whose moments are smaller: all else is as with float32's."""
    whole, layout = planned(config, lora, replace(saving, moments="f32")), Layout.of(config, lora)
    updates = []
    for each in (saving, PLAIN):
        graph = Graph()
        update_weights(graph, layout, each)
        updates.append((place(graph).region_bytes, graph.flops()))
    (small, flops), (large, usual) = updates
    less = sum(large[region] - small[region] for region in ("m", "v"))
    kinds = {kind: whole.memory[kind] - less for kind in ("moments_bytes", "total_bytes")}
    return Planned(whole.memory | kinds, whole.flops + flops - usual)


@lru_cache(maxsize=128)
def _forward_regions(config: GPTConfig, lora: LoRAConfig | None, rows: int) -> dict[str, int]:
    """Bytes by region of evaluating so many rows, and of writing with a whole context."""
    need = regions_of([decoding(config, config.context, lora), initial_weights(config, False, lora)])
    return {region: max(nbytes, need[region]) for region, nbytes in _evaluated(config, lora, rows).items()}


@lru_cache(maxsize=128)
def _evaluated(config: GPTConfig, lora: LoRAConfig | None, rows: int) -> dict[str, int]:
    """Bytes by region of evaluating so many rows."""
    return evaluation(config, lora, rows=rows).plan.region_bytes


def within(config: GPTConfig, lora: LoRAConfig | None, limit_bytes: int | None) -> Fits:
    """Whether a Saving's plan fits a limit, reserve included."""
    return lambda saving: limit_bytes is None or planned(config, lora, saving).total_bytes + RESERVE_BYTES <= limit_bytes


def divisors(batch: int) -> list[int]:
    """In how many parts a batch may go through, in order."""
    return [parts for parts in range(1, batch + 1) if batch % parts == 0]


def cheapest(config: GPTConfig, fits: Fits, start: Saving = PLAIN, parts: Sequence[int] = (), blocks: int | None = None) -> Saving | None:
    """Of what fits, with the moments of `start`, the Saving of least operations, and of those the one in the fewest parts; None where
    nothing fits. `parts`: in how many a batch may go through, rising (default: any number that divides it); blocks: how many are
    computed again, where that is settled.

    What a block adds to a step is the same for each, and parts add none: the fewest blocks are the least operations. More blocks never
    need more memory, nor more parts, beyond the first two (a batch that goes through whole lends its gradients' memory), so both are
    found by halving: a dozen plans.
    """
    whole, *split = parts or divisors(config.batch)

    def least(micro_batches: int, bound: int) -> int | None:
        """The fewest blocks, up to a bound, with which these parts fit."""
        lowest = 0 if blocks is None else blocks
        return _first_of(range(lowest, (bound if blocks is None else blocks) + 1), lambda n: fits(replace(start, micro_batches=micro_batches, recompute=n)))

    found, micro_batches = least(whole, config.layers), whole
    if found != (blocks or 0) and split:
        fewer = least(split[-1], config.layers if found is None else found - 1)
        if fewer is not None:
            found, micro_batches = fewer, _first_of(split, lambda each: fits(replace(start, micro_batches=each, recompute=fewer)))
    return None if found is None else replace(start, micro_batches=micro_batches, recompute=found)


def _first_of(rising: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """The first that fits of numbers of which each later one fits too; None where the last one does not."""
    if not rising or fits(rising[0]):
        return rising[0] if rising else None
    if not fits(rising[-1]):
        return None
    low, high = 1, len(rising) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(rising[middle]):
            high = middle
        else:
            low = middle + 1
    return rising[low]


def choose_saving(
    config: GPTConfig,
    lora: LoRAConfig | None = None,
    limit_bytes: int | None = None,
    *,
    start: Saving = PLAIN,
    parts: Sequence[int] = (),
    blocks: int | None = None,
) -> Saving:
    """The Saving of least operations with which training fits limit_bytes, as `cheapest` chooses; moments stay as `start` has them, and what is
    given of `parts` and `blocks` (see cheapest) as it is.

    Raises ConfigError (E-CONFIG-PLAN), with what would fit, where none does.
    """
    for each in parts:
        Saving(each, blocks or 0).require_fit(config)
    found = cheapest(config, within(config, lora, limit_bytes), start, parts, blocks)
    if found is None:
        raise refusal(config, lora, replace(start, micro_batches=(parts or (1,))[0], recompute=blocks or 0), limit_bytes)
    return found


def choices(
    config: GPTConfig, lora: LoRAConfig | None = None, fits: Fits | None = None, held: Callable[[Saving], int] | None = None
) -> list[Choice]:
    """What can be chosen, by the time that it costs: "plain", "bf16", "8bit", "micro_batches", "recompute", "smallest".

    Of blocks and parts as few as fit, else as many as there are; "smallest" is all of it, with 8-bit moments. held: the bytes
    that the engine in use will hold (default: the plan's). What saves none of those is left out.
    """
    if held is None:
        held = lambda saving: planned(config, lora, saving).total_bytes  # noqa: E731 - it has no name of its own
    if fits is None or fits(PLAIN):  # what needs less than a plain step fits too
        fits = within(config, lora, None)
    some = cheapest(config, fits, parts=[1])
    some = some if some and some.recompute else Saving(recompute=config.layers)
    split = next((Saving(parts) for parts in divisors(config.batch)[1:] if fits(Saving(parts))), Saving(config.batch))
    named = {"plain": PLAIN, "bf16": Saving(moments="bf16"), "8bit": Saving(moments="8bit"), "micro_batches": split, "recompute": some}
    both = [Saving(parts, config.layers, "8bit") for parts in {1, config.batch}]  # parts add gradients up, which then lend nothing
    named["smallest"] = min(both, key=held)
    flops, most, found = planned(config, lora).flops, held(PLAIN), []
    for name, saving in named.items():
        total_bytes = held(saving)
        if total_bytes >= most and name != "plain":
            continue  # one row is not split, and on a CPU what gradients lend may hold all that blocks keep
        found.append(Choice(name, saving, total_bytes, planned(config, lora, saving).flops / flops - 1.0, fits(saving)))
    return sorted(found, key=lambda choice: choice.extra_time)


def refusal(config: GPTConfig, lora: LoRAConfig | None, saving: Saving, limit_bytes: int, scale: int = 1, training: bool = True) -> ConfigError:
    """The error for a plan that does not fit, naming what would. scale: bytes that a machine keeps for each planned one."""
    need = scale * (planned(config, lora, saving, training).total_bytes + RESERVE_BYTES)
    return ConfigError(
        "model",
        f"weights, gradients, moments and activations fit the {limit_bytes:,} bytes that can be had",
        f"{config.parameter_count():,} parameters with a batch of {config.batch} need {need:,}",
        what_fits(config, lora, saving, limit_bytes // scale, training),
        code="E-CONFIG-PLAN",
    )


def what_fits(config: GPTConfig, lora: LoRAConfig | None, saving: Saving, limit_bytes: int, training: bool = True) -> str:
    """In words: a Saving with which the same run fits, and else a batch, with as little as possible kept."""
    if training:
        fits = within(config, lora, limit_bytes)
        for moments in dict.fromkeys((saving.moments, "bf16", "8bit")):
            found = cheapest(config, fits, Saving(moments=moments))
            if found is not None and found != saving:
                return f"{in_words(found)} fits"
    batch = config.batch // 2
    while batch:
        smaller = config.with_batch(batch)
        tried = replace(saving, micro_batches=1) if training else PLAIN
        if planned(smaller, lora, tried, training).total_bytes + RESERVE_BYTES <= limit_bytes:
            return f"a batch of {batch} fits"
        batch //= 2
    return "choose fewer layers or channels, or a shorter context; no batch fits"


def in_words(saving: Saving) -> str:
    """A Saving as one would say it: "the batch in 4 parts, 6 blocks computed again"."""
    words = []
    if saving.micro_batches > 1:
        words.append(f"the batch in {saving.micro_batches} parts (micro_batches={saving.micro_batches})")
    if saving.recompute:
        blocks = f"{saving.recompute} block{'s' * (saving.recompute > 1)}"
        words.append(f"{blocks} computed again (recompute={saving.recompute})")
    if saving.moments != "f32":
        words.append(f"moments in {saving.moments}")
    return " with ".join(words) or "a plain step"
