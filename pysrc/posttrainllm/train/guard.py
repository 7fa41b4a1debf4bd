"""Trouble in a run, a number that is not finite or a loss that leaps up, and the way back to the last good state.

The rule for a leap: the mean of the last MEAN losses stands above the lowest such mean among the last WINDOW steps by more than
LEAST_NATS, and by more than SPREADS standard deviations of single losses there. Losses only: a large gradient norm is clipped and does no
harm by itself. A leap lasts for several steps; one odd batch moves a mean of ten little.

The good state is a copy of weights and moments, taken at evaluations that gave a finite loss while the losses were not on their way up, where it fits
MOST_COPY_BYTES. A run goes
back at most MOST_RETURNS times, each time with its learning rate times RATE_FACTOR; then, or without a copy, it stops. With the setting
on_trouble "stop" it goes back to the copy and stops there, so that what is saved is good.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import deque
from dataclasses import dataclass

from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT
from .reports import EvalReport, Report, RolledBackReport, StepReport

MEAN, WINDOW = 10, 200
LEAST_NATS, SPREADS = 1.0, 3.0
MOST_RETURNS, RATE_FACTOR = 3, 0.5
MOST_COPY_BYTES = (48 << 20) if sys.platform == "emscripten" else (512 << 20)
"""Of weights and moments together: medium has 10 MB of them, large 33 MB, gpt2 1.5 GB."""
COPY_STEPS = 500
"""Between two copies on an engine that is far away (a GPU): there they have to be fetched."""
ON_TROUBLE = ("roll_back", "stop")


@dataclass
class _Good:
    """A state to go back to."""

    step: int
    cursor: dict
    pieces: list[tuple[int, bytes]]
    history: int
    validation_loss_nats: float | None
    best_loss_nats: float


class Guard:
    """Watches a Trainer's reports; `trouble` is (reason, sentence) once something is wrong."""

    def __init__(self, trainer) -> None:
        self._trainer = trainer
        self._good: _Good | None = None
        self.returns = 0
        self.trouble: tuple[str, str] | None = None
        self._begin()

    def _begin(self) -> None:
        rows = [row["loss_nats"] for row in self._trainer.history[-WINDOW:] if row.get("loss_nats") is not None]
        self._losses = deque(rows, maxlen=WINDOW)
        self._floor = min(rows, default=math.inf)

    def look(self, reports: list[Report]) -> None:
        """Take note of what happened."""
        for report in reports:
            if isinstance(report, StepReport):
                loss = report.loss_nats
                self._losses.append(loss)
                if loss < self._floor + LEAST_NATS:  # nearly always, and at next to no cost: no mean leaps while its last loss is low
                    self._floor = min(self._floor, loss)
                elif self.trouble is None and (leap := self.leap()) is not None:
                    self.trouble = "spike", self._leapt(report, *leap)

    def _climbing(self) -> bool:
        """Whether the losses are on their way up already: such a state is none to go back to."""
        losses = list(self._losses)
        return len(losses) >= 2 * MEAN and sum(losses[-MEAN:]) / MEAN > _lowest(losses[:-MEAN])[0] + LEAST_NATS / 3

    def leap(self) -> tuple[float, float] | None:
        """(mean of the last losses, lowest mean before) where the rule at the top says that the loss leapt up; else None."""
        losses = list(self._losses)
        if len(losses) < 3 * MEAN:
            return None
        last = sum(losses[-MEAN:]) / MEAN
        before = losses[:-MEAN]
        lowest, at = _lowest(before)
        spread = statistics.pstdev(before[at : at + MEAN])
        return (last, lowest) if last - lowest > max(LEAST_NATS, SPREADS * spread) else None

    def _leapt(self, report: StepReport, last: float, lowest: float) -> str:
        return (
            f"step {report.step}: the loss leapt up: {last:.2f} nats over the last {MEAN} steps, after {lowest:.2f} before; "
            f"the learning rate was {report.learning_rate:.3g}"
        )

    # The good state

    async def keep(self, report: EvalReport) -> None:
        """Copy the state of this step, where its loss is finite and the copy has room."""
        trainer, model = self._trainer, self._trainer.model
        if not math.isfinite(report.validation_loss_nats) or self.trouble is not None or self._climbing():
            return
        if trainer.ahead and self._good is not None and trainer.step - self._good.step < COPY_STEPS:
            return
        places = _places(model)
        if places is None or sum(nbytes for _, nbytes in places) > MOST_COPY_BYTES:
            return
        pieces = [(place, bytes(await _download(model.machine, place, nbytes))) for place, nbytes in places]
        self._good = _Good(
            trainer.step, dict(trainer.batches.cursor), pieces, len(trainer.history), trainer.validation_loss_nats, trainer.best_loss_nats
        )  # fmt: skip

    async def go_back(self) -> RolledBackReport | None:
        """Put the last good state back and lower the rate where on_trouble says so; None where there is no such state."""
        trainer, (reason, what) = self._trainer, self.trouble
        again = trainer.settings["on_trouble"] == "roll_back" and self.returns < MOST_RETURNS
        good = self._good
        if good is None:
            return None
        for place, piece in good.pieces:
            trainer.model.machine.upload(place, piece)
        trainer.model.forget_cache()
        trainer.step, trainer.batches = good.step, trainer.batches_at(dict(good.cursor))
        trainer.history[:] = [row for row in trainer.history if row["step"] <= good.step]
        trainer.validation_loss_nats, trainer.best_loss_nats, trainer.broken = good.validation_loss_nats, good.best_loss_nats, False
        before = trainer.settings["learning_rate"]
        if again:
            self.returns += 1
            trainer.settings["learning_rate"] = before * RATE_FACTOR
        self.trouble = None
        self._begin()
        return RolledBackReport(good.step, reason, what, before, trainer.settings["learning_rate"], self.returns, again)

    async def resolve(self) -> tuple[str, RolledBackReport | None, str]:
        """(reason, report, message) after trouble: back to the last good state where one is kept. A message means that the run ends."""
        trainer, (reason, what) = self._trainer, self.trouble
        await trainer.settle()
        back = await self.go_back()
        if back is not None:
            trainer.begin_ahead()
        if back is not None and back.goes_on:
            return "", back, ""
        if back is None and reason == "nonfinite":  # the engine made no such step: the weights before it are there still
            return reason, None, what
        trainer.broken = trainer.broken or back is None
        return reason, back, self.sentence(back)

    def sentence(self, back: RolledBackReport | None) -> str:
        """Why the run stops, and what to do."""
        if back is None:
            _, what = self.trouble
            return f"{_ended(what)} No copy of an earlier state was kept: open the last save, and go on with a lower learning rate."
        tried = f" It was tried {self.returns} times with a lower rate." if self.returns else ""
        return f"{_ended(back.what)} The run is back at step {back.step:,}, where all was well, and stopped there.{tried} Go on with a lower learning rate, or look at the text."


def _lowest(losses: list[float]) -> tuple[float, int]:
    """The lowest mean of MEAN losses in a row, and where they begin."""
    means = [sum(losses[at : at + MEAN]) / MEAN for at in range(len(losses) - MEAN + 1)]
    lowest = min(means)
    return lowest, means.index(lowest)


def _ended(what: str) -> str:
    return what.rstrip(".;, ") + "."


def _places(model) -> list[tuple[int, int]] | None:
    """(address, bytes) of what a step changes: trained weights and moments. None for a model that is not on an engine of this package."""
    if not hasattr(model.program, "region_bytes"):  # torch_engine's: spread over processes, and kept by its saves
        return None
    layout, sizes = model.program.layout, model.program.region_bytes()
    found = []
    for region in ("params", "m", "v"):
        start = layout.frozen_bytes if region == "params" else 0
        if sizes.get(region, 0) > start:
            found.append((REGIONS.index(region) << REGION_SHIFT | start, sizes[region] - start))
    return found


async def _download(machine, place: int, nbytes: int) -> bytes:
    return await machine.download_async(place, nbytes) if hasattr(machine, "download_async") else machine.download(place, nbytes)
