"""Preference tuning (DPO, Rafailov et al., arXiv 2305.18290): a model comes to hold chosen answers likelier, and rejected ones less
likely, than it did before its first step.

The reference is the model as it is before that step: with a fresh adapter the frozen base, and after supervised tuning the tuned one.
Its log-probabilities of all answers are computed once and kept with the run, so that no second model is needed, also where all
weights are tuned, and a run goes on exactly.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..compile.tape import address
from ..configs import load
from ..data.corpus import Corpus
from ..data.pair_rows import Part, evaluation_places, in_batches, join
from ..data.pairs import Preferences
from ..errors import ConfigError, FormatError
from ..model.preference import BETA, metric_bytes, preference_step, reference_slot, unpack_margins
from ..model.slots import unpack_metrics
from ..store.checkpoint import Checkpoint
from ..train.reports import EvalReport, Report, StepReport
from ..train.state import trainer_of
from ..train.trainer import Live, Trainer
from .running import blocks, each
from .settings import require, tuning_settings


@dataclass(frozen=True)
class PreferenceStepReport(StepReport):
    """A step: loss is DPO's (ln 2 where nothing is preferred yet); margin is the batch's mean of beta·(what the chosen answer gained
    over the reference, in nats, less what the rejected one gained); accuracy the share of its pairs with a margin above 0."""

    margin: float
    accuracy: float

    @property
    def event(self) -> str:
        """ "step", as any."""
        return "step"


@dataclass(frozen=True)
class PreferenceEvalReport(EvalReport):
    """The same three on the held-out pairs."""

    margin: float
    accuracy: float

    @property
    def event(self) -> str:
        """ "eval", as any."""
        return "eval"


def softplus(x: float) -> float:
    """log(1 + e^x) for any x."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def require_beta(beta: float) -> None:
    """Raise ConfigError for a beta that is none."""
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 1e-6 <= beta <= 1e3:
        raise ConfigError("dpo", "beta is a number from 0.000001 to 1,000", f"{beta!r} came", "use 0.1, or 0.01 to 0.5")


class PreferenceTrainer(Trainer):
    """A Trainer whose steps are DPO's. A batch is half as many pairs as the model's batch has rows (at least one).

    reference_nats holds (log p of the chosen answer, of the rejected one) of every row of the preferences under the reference; it is
    computed before the first step where it is not given. Raises ConfigError, DataError.
    """

    def __init__(
        self,
        model,
        preferences: Preferences,
        settings: dict | None = None,
        *,
        beta: float | None = None,
        reference_nats: list[tuple[float, float]] | None = None,
        step: int = 0,
        cursor: dict | None = None,
    ):
        require("dpo", preferences, Preferences, "a chosen and a rejected answer to each prompt")
        super().__init__(model, preferences, settings, step=step, cursor=cursor)
        self.beta = load("tuning")["beta"] if beta is None else beta
        require_beta(self.beta)
        self.reference_nats = reference_nats
        self.margin = self.accuracy = math.nan  # of the last step; the held-out ones in validation_…
        self.validation_margin: float | None = None
        self.validation_accuracy: float | None = None
        self.pairs = self.batches.rows
        self._step = preference_step(model.config, self.pairs, model.lora, model.program.saving)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one batch: 2·S·T."""
        return 2 * self.pairs * self.model.config.context

    async def queue_async(self) -> None:
        """Each step is waited for: its margins are part of its report."""
        await self.reference_async()
        self.model.make_room(self._step)

    async def reference_async(self) -> None:
        """Compute the reference's log-probabilities, once. Raises ConfigError where a run that goes on came without its own."""
        if self.reference_nats is not None:
            return
        if self.step:
            raise ConfigError(
                "dpo", "a run that goes on brings its reference", "none came", "open it with tune.dpo.resume, or begin a new run"
            )
        found: dict[int, tuple[float, float]] = {}
        for part in self.corpus.parts(self.model.config.context):
            places = [place for place, index in enumerate(part.indices) if index not in found]
            gained = await self._log_probabilities(part, places)
            found.update((part.indices[place], both) for place, both in zip(places, gained))
        self.reference_nats = [found.get(index, (0.0, 0.0)) for index in range(len(self.corpus))]  # of rows left out: never asked for

    async def _log_probabilities(self, part: Part, places: list[int]) -> list[tuple[float, float]]:
        """(log p of the chosen, of the rejected answer) in nats of some rows, under the model as it is."""
        context, sums = self.model.config.context, []
        for tokens, targets in in_batches(part, places, context, self.model.config.batch):
            losses = await self.model.losses_async(tokens, targets)
            sums += [-math.fsum(losses[at : at + context]) for at in range(0, len(losses), context)]
        return list(zip(sums[0 : 2 * len(places) : 2], sums[1 : 2 * len(places) : 2]))

    def more_to_keep(self) -> dict:
        """beta, and the reference in one list: chosen, rejected, chosen, … (none before the first step)."""
        flat = None if self.reference_nats is None else [value for both in self.reference_nats for value in both]
        return {"beta": self.beta, "reference_nats": flat}

    async def replay_async(self, values: tuple[float, ...]) -> tuple[float, float]:
        """One step of DPO."""
        batches, machine = self.batches, self.model.machine
        places = batches.take()
        reference = [self.reference_nats[batches.part.indices[place]] for place in places]
        packed = struct.pack(f"<{2 * self.pairs}f", *(both[0] for both in reference), *(both[1] for both in reference))
        machine.upload(address(BETA), struct.pack("<f", self.beta))
        machine.upload(address(reference_slot(self.pairs)), packed)
        batch = join(batches.part, places, self.model.config.context)
        metrics = await self.model.replay_step_async(self._step, *batch, values, metric_bytes(self.pairs))
        self.margin, self.accuracy = summary(unpack_margins(metrics, self.pairs))
        return unpack_metrics(metrics)

    def record(self, loss: float, norm: float, rate: float, seconds: float) -> PreferenceStepReport:
        """One step is done."""
        super().record(loss, norm, rate, seconds)
        tokens = self.tokens_per_step
        return PreferenceStepReport(self.step, loss, norm, rate, tokens, seconds, None, self.margin, self.accuracy)

    def _row(self, loss: float | None, norm: float | None, rate: float | None) -> dict:
        skipped = loss is None
        margins = {"margin": None if skipped else self.margin, "accuracy": None if skipped else self.accuracy}
        return super()._row(loss, norm, rate) | margins

    async def measure_async(self) -> float:
        """DPO's loss on the held-out pairs."""
        await self.reference_async()
        part, context = self.corpus.parts(self.model.config.context)[1], self.model.config.context
        places = evaluation_places(part, context, self.settings["evaluation_tokens"])
        margins = []
        for place, (chosen, rejected) in zip(places, await self._log_probabilities(part, places)):
            reference = self.reference_nats[part.indices[place]]
            margins.append(self.beta * ((chosen - reference[0]) - (rejected - reference[1])))
        self.validation_margin, self.validation_accuracy = summary(margins)
        return math.fsum(softplus(-margin) for margin in margins) / len(margins)

    async def evaluate_async(self) -> PreferenceEvalReport:
        """Measure on the held-out pairs and keep the loss in the history."""
        began = time.perf_counter()
        report = await super().evaluate_async()
        seconds, margin, accuracy = time.perf_counter() - began, self.validation_margin, self.validation_accuracy
        return PreferenceEvalReport(self.step, report.validation_loss_nats, report.best, seconds, None, margin, accuracy)

    @property
    def validation_bits_per_byte(self) -> None:
        """A preference has no bits per byte."""
        return None


def summary(margins) -> tuple[float, float]:
    """(mean margin, share above 0)."""
    margins = list(margins)
    return math.fsum(margins) / len(margins), sum(margin > 0 for margin in margins) / len(margins)


def dpo_trainer(model, preferences: Preferences, settings: dict | None = None, beta: float | None = None) -> PreferenceTrainer:
    """A PreferenceTrainer with configs/tuning.json's settings and changes, which begins a run from the model as it is."""
    return PreferenceTrainer(model, preferences, tuning_settings("dpo", model, settings), beta=beta)


def resume(checkpoint: Checkpoint, preferences: Preferences, **how) -> PreferenceTrainer:
    """The run of a save, ready for its next step; `how` is trainer_of's (device, model, base, …). Give it to tune.running.blocks.

    Raises FormatError where the save is not one of preference tuning, else as trainer_of.
    """
    beta, flat = checkpoint.schedule.get("beta"), checkpoint.schedule.get("reference_nats")
    sound = type(beta) in (int, float) and (
        (flat is None and not checkpoint.step)
        or (type(flat) is list and len(flat) == 2 * len(preferences) and all(type(value) in (int, float) for value in flat))
    )
    if not sound:
        raise FormatError(
            f"run {checkpoint.name}",
            f"it holds beta and the reference of {len(preferences):,} preferences",
            "another came",
            "choose a run of preference tuning, and its preferences",
            code="E-FORMAT-METADATA",
        )
    pairs = None if flat is None else list(zip(flat[0::2], flat[1::2]))

    def make(model, corpus, settings, **where) -> PreferenceTrainer:
        return PreferenceTrainer(model, corpus, settings, beta=beta, reference_nats=pairs, **where)

    return trainer_of(checkpoint, preferences, make=make, **how)


def dpo(
    model, preferences: Preferences, beta: float | None = None, *, base: Corpus | None = None, live: Live | None = None, **settings
) -> Iterator[Report]:
    """Tune `model` on chosen and rejected answers; beta (0.1) is how dearly straying from the reference is paid for: smaller strays
    further. Settings as in configs/tuning.json (steps=100, learning_rate=…). Yields reports as `sft`, with margin and accuracy.

    With an adapter (pt.lora) that alone changes, else all weights. Raises ConfigError, DataError.
    """
    return each(blocks(dpo_trainer(model, preferences, settings, beta), base, live))
