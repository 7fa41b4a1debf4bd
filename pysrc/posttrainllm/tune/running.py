"""What every tuning run does around a Trainer's loop: begin with moments of zero, and measure what is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT
from ..data.corpus import Corpus
from ..train.reports import Report, StoppedReport
from ..train.trainer import Live, Trainer
from ..waiting import each_now
from .forgetting import Forgetting, TextLoss

ZEROS = bytes(1 << 20)


def begin(model) -> None:
    """AdamW's moments of a run before (or none, in a model loaded for writing) say nothing about this one: they become zero, as its first step's correction expects."""
    model.make_trainable()
    for region in ("m", "v"):
        start, left = REGIONS.index(region) << REGION_SHIFT, model.program.region_bytes().get(region, 0)
        while left:
            piece = min(left, len(ZEROS))
            model.machine.upload(start, ZEROS[:piece])
            start, left = start + piece, left - piece


async def blocks(
    trainer: Trainer,
    base: Corpus | None = None,
    live: Live | None = None,
    until: int | None = None,
    before: TextLoss | None = None,
) -> AsyncIterator[list[Report]]:
    """The trainer's reports in lists, as its own `blocks`. With `base`, a text that the model knew, a ForgettingReport comes first and
    another just before the last report; `before` is what the text cost at step 0, for a run that goes on."""
    if not trainer.step:
        begin(trainer.model)
    forgetting = None
    if base is not None:
        await trainer.model.prepare()
        forgetting = await Forgetting.begin(trainer.model, base, before)
        yield [forgetting.first(trainer.step)]
    async for reports in trainer.blocks(until, live):
        if forgetting is not None and reports and isinstance(reports[-1], StoppedReport) and not trainer.broken:
            reports = [*reports[:-1], await forgetting.report(trainer.step), reports[-1]]
        yield reports


def each(lists: AsyncIterator[list[Report]]) -> Iterator[Report]:
    """Reports one by one, from plain code."""
    for reports in each_now(lists):
        yield from reports
