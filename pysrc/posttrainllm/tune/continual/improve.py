"""Improve: learn from corrections, measure, and promote what came of it or keep it aside.

The base's weights are never touched: what is learnt is an adapter. It starts anew from the base each time, from all records there are, so
that what a version knows is what its records say and nothing of a record that was deleted since ("start": "version" goes on from the version
in use instead). A version becomes the one in use by one record of the journal, written whole or not at all, after it passed the gate;
whatever ends an improvement before that leaves the version before in use, and the model as it was.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace

from ...configs import load
from ...data.corpus import Corpus
from ...data.pairs import Template
from ...errors import ConfigError, DataError
from ...model.lora import Adapter, LoRAConfig
from ...train.reports import TROUBLES, Report, StoppedReport
from ...train.settings import RATE_CHANNELS
from ...train.trainer import Live
from ...waiting import now
from ..dpo import dpo_trainer
from ..running import blocks
from ..sft import sft_trainer
from .curate import Curated, CuratedReport, curate
from .gate import Figures, GateReport, judge
from .history import Version
from .measure import Known, Yardstick, gains, mean_nats, nats_per_byte, preference_nats, row_losses
from .records import Correction, Corrections, as_corrections
from .replay import Replayed
from .settings import divided, part_settings

Attach = Callable[..., Awaitable]


@dataclass(frozen=True)
class PhaseReport(Report):
    """What begins now: "measure", "sft", "dpo" or "gate"; steps of it, 0 where it has none."""

    phase: str
    steps: int = 0


@dataclass(frozen=True)
class ImprovedReport(Report):
    """The last report. version: the number that the result was kept under, None where it was stopped before the gate; promoted: it is in use
    and on the model now. message is a sentence; seconds those of the whole."""

    version: int | None
    promoted: bool
    reasons: tuple[str, ...]
    message: str
    adapter_sha256: str = ""
    seconds: float = 0.0


class _Stopped(Exception):
    """A stop was asked for."""


def improve(
    model, corrections: Corrections | Iterable[Correction | dict], corpus: Corpus | None, *, live: Live | None = None,
    template: Template | None = None, **settings,
) -> Iterator[Report]:  # fmt: skip
    """Learn from corrections in place on `model`, a GPT: a promoted version is on it at the end, else what was on it before.

    corpus is the text that the model was trained on, split as it was: it is replayed, and what is forgotten of it is measured. Settings
    as in configs/continual.json: those of "improve" by name (sft_steps=200, replay_share=0.25, start="base" …), the others as dicts
    (gate={"base_rise_nats": 0.1}, curate=…, measure=…, adapter={"rank": 4}). Yields a CuratedReport, PhaseReports, the reports of sft and
    dpo, a GateReport, and last an ImprovedReport. Raises DataError where too few corrections are left, or the corpus is missing or too
    short; ConfigError; StoreError: whatever is raised, the version in use stays in use.
    """
    reports = improve_async(model, corrections, corpus, live=live, template=template, **settings)
    try:
        while True:
            try:
                yield now(anext(reports))
            except StopAsyncIteration:
                return
    finally:
        now(reports.aclose())


async def improve_async(
    model, corrections: Corrections | Iterable[Correction | dict], corpus: Corpus | None, *, live: Live | None = None,
    template: Template | None = None, attach: Attach | None = None, **settings,
) -> AsyncIterator[Report]:  # fmt: skip
    """`improve` for code that awaits. attach(what, training=, seed=, name=, any_base=) puts an Adapter or a new one of a LoRAConfig on the
    model, where model.attach_async alone will not do; it returns the model to go on with where that is another one."""
    job = _Improvement(model, as_corrections(corrections), corpus, live or Live(), template or Template(), attach or model.attach_async, settings)
    try:
        async for report in job.run():
            yield report
    finally:
        await job.restore()


class _Improvement:
    """One improvement of one model."""

    def __init__(self, model, corrections: Corrections, corpus: Corpus | None, live: Live, template: Template, attach: Attach, changes: dict):
        parts = divided(changes)
        self.settings = part_settings("improve", parts["improve"])
        if "sft_learning_rate" not in parts["improve"]:
            self.settings["sft_learning_rate"] *= min(1.0, RATE_CHANNELS / model.config.channels)  # as training's own rate
        self.bounds, self.measure = part_settings("gate", parts["gate"]), part_settings("measure", parts["measure"])
        if parts["adapter"] and self.settings["start"] == "version":
            raise ConfigError("improve", "a start from a version brings its adapter's settings", "adapter settings came with it", "leave them out")
        self.lora = LoRAConfig.from_dict(load("continual")["adapter"] | parts["adapter"])
        self.model, self.corrections, self.live, self.template, self.attach = model, corrections, live, template, attach
        self.history, self.parent = corrections.history, corrections.history.in_use
        self.adapter = None if self.parent is None else self.history.adapter(self.parent.number)
        if corpus is None:
            raise DataError(
                "improve", "the text that the model was trained on is there, to replay and to measure what is forgotten", "none came",
                "give it: a file, or the bundled one", code="E-DATA-EMPTY",
            )  # fmt: skip
        config = model.config
        self.curated: Curated = curate(
            corrections, tokenizer=model.tokenizer, context=config.context, template=template, in_use=self.parent, settings=parts["curate"]
        )
        self.curating = part_settings("curate", parts["curate"])
        answers = [answer for _, answer in self.curated.sft.rows]
        self.yardstick = Yardstick(corpus, config, model.tokenizer, answers, self.measure)
        self.corpus = self.yardstick.corpus
        self.began = time.perf_counter()
        self.before: tuple | None = None  # (adapter or None, strength, whether it could be trained), once the model was changed
        self.step = 0

    async def run(self) -> AsyncIterator[Report]:
        """All of it."""
        yield CuratedReport.of(self.curated)
        model = self.model
        if self.adapter is not None:
            self.adapter.require_fit(model.config, await model.base_sha256_async())
        self.before = (await model.adapter_async(), model.strength if model.lora is not None else 1.0, model.program.step is not None)
        reason = ""
        try:
            yield PhaseReport(self.step, "measure")
            base, standing = await self._standing()
            async for report in self._trained():
                if isinstance(report, StoppedReport):
                    if report.reason == "stopped":
                        raise _Stopped
                    reason = report.message if report.reason in TROUBLES else reason
                else:
                    yield report
            yield PhaseReport(self.step, "gate")
            verdict = await self._gate(base, standing, reason)
        except _Stopped:
            await self.restore()
            yield ImprovedReport(self.step, None, False, (), "Stopped, as asked: the version in use stays in use.", seconds=self._seconds())
            return
        yield verdict
        version = await self._keep(verdict)
        if version.promoted:
            await self._put(self.history.adapter(version.number), training=False, any_base=True)
            self.before = None
            message = f"Version {version.number} passed the gate and is in use."
        else:
            await self.restore()
            message = f"Version {version.number} was kept aside: {' '.join(verdict.reasons)}"
        yield ImprovedReport(self.step, version.number, version.promoted, verdict.reasons, message, version.adapter_sha256, self._seconds())

    async def restore(self) -> None:
        """Put on the model what was on it before."""
        if self.before is None:
            return
        (adapter, strength, training), self.before = self.before, None
        if adapter is not None:
            await self._put(adapter, training=training, any_base=True)
            self.model.strength = strength
        elif self.model.lora is not None:
            await self.model.detach_async(training=training)

    async def _put(self, what: Adapter | LoRAConfig, training: bool, any_base: bool = False) -> None:
        name = what.name if isinstance(what, Adapter) else "candidate"
        self.model = await self.attach(what, training=training, seed=self.settings["seed"], name=name, any_base=any_base) or self.model

    # Its parts

    async def _standing(self) -> tuple[Known, dict]:
        """The base beside its own text, and base and version in use on the held-out corrections; then what is to be trained is on."""
        found = {}
        on = self.settings["start"] == "version" and self.adapter is not None
        if self.adapter is not None:
            await self._put(self.adapter, training=on)
            found["before"] = await self._on_held_out()
        if not on:
            await self._put(self.lora, training=True)
        self._heard()
        self.model.strength = 0.0  # the base's very logits
        base = await self.yardstick.known(self.model)
        found["base"] = await self._on_held_out()
        self.model.strength = 1.0
        self._heard()
        return base, {"before": found["base"]} | found

    async def _on_held_out(self) -> tuple[list, list]:
        liked = self.curated.held_out_dpo
        return await row_losses(self.model, self.curated.held_out), ([] if liked is None else await preference_nats(self.model, liked))

    async def _trained(self) -> AsyncIterator[Report]:
        """Supervised on the answers, with replay; then on the preferences where there are some."""
        s, model, liked = self.settings, self.model, self.curated.dpo
        rows = Replayed(self.curated.sft, self.corpus, s["replay_share"])
        stages = [("sft", s["sft_steps"], lambda given: sft_trainer(model, rows, given))]
        if liked is not None and s["dpo_steps"]:
            stages.append(("dpo", s["dpo_steps"], lambda given: dpo_trainer(model, liked, given, s["beta"])))
        for phase, steps, make in stages:
            yield PhaseReport(self.step, phase, steps)
            given = {"steps": steps, "seed": s["seed"], "validation_fraction": 0.0, "evaluate_every_steps": steps}
            if s[f"{phase}_learning_rate"] is not None:
                given["learning_rate"] = s[f"{phase}_learning_rate"]
            last = None
            async for reports in blocks(make(given), live=Live(asked=self.live.asked, heard=self.live.heard, clock=self.live.clock)):
                for report in reports:
                    self.step += report.event == "step"
                    last = report
                    yield report
            if isinstance(last, StoppedReport) and last.reason != "finished":
                return

    async def _gate(self, base: Known, standing: dict, reason: str) -> GateReport:
        """The candidate, which is on the model, beside base and version in use."""
        if reason:
            return GateReport(self.step, None, self.bounds, False, (f"Training broke off: {reason}",))
        after, liked = await self._on_held_out()
        self._heard()
        known = await self.yardstick.known(self.model)
        self._heard()
        before, liked_before = standing["before"]
        judged = bool(liked) and len(liked) >= self.curating["least_preferences"]
        rises = [b - a for a, b in zip(base.passages_nats, known.passages_nats, strict=True)]
        passages = len(rises)
        figures = Figures(
            held_out_rows=len(after),
            held_out_base_nats=mean_nats(standing["base"][0]),
            held_out_before_nats=mean_nats(before),
            held_out_after_nats=mean_nats(after),
            held_out_after_nats_per_byte=nats_per_byte(after),
            held_out_wins=sum(b.nats < a.nats for a, b in zip(before, after, strict=True)) / len(after),
            base_before_nats=base.base_nats,
            base_after_nats=known.base_nats,
            base_nats_per_byte=base.base_nats_per_byte,
            probe_before_nats=sum(base.passages_nats) / passages,
            probe_after_nats=sum(known.passages_nats) / passages,
            probe_worst_rise_nats=max(rises),
            probe_sha256=self.yardstick.sha256,
            preferences=len(liked),
            preference_accuracy=gains(liked_before, liked) if judged else None,
            recital_before=base.recital,
            recital_after=known.recital,
            copied_before_bytes=base.copied_bytes,
            copied_after_bytes=known.copied_bytes,
            answers_before_bytes=base.answers_bytes,
            answers_after_bytes=known.answers_bytes,
        )
        reasons = judge(figures, self.bounds)
        notes = (self.yardstick.note,) if self.yardstick.note else ()
        return GateReport(self.step, figures, self.bounds, not reasons, reasons, notes)

    async def _keep(self, verdict: GateReport) -> Version:
        """Write the version into the journal: promoted, it is in use from here on."""
        adapter: Adapter = await self.model.adapter_async()
        onward = self.parent if self.settings["start"] == "version" else None
        return self.history.add(
            replace(adapter, base_sha256=await self.model.base_sha256_async()),
            promoted=verdict.passed,
            reasons=verdict.reasons,
            figures={} if verdict.figures is None else verdict.figures.to_dict(),
            learned=(onward.learned if onward else {}) | self.curated.learned,
            held_out=self.curated.held_out_ids,
            texts_sha256=self.curated.texts_sha256,
            parent=None if self.parent is None else self.parent.number,
            settings=self.settings | {"adapter": adapter.config.to_dict(), "gate": self.bounds, "curate": self.curating, "measure": self.measure},
            dropped=tuple((each.id, each.why) for each in self.curated.dropped),
            corpus={"name": self.corpus.name, "sha256": self.corpus.sha256},
            template=asdict(self.template),
        )

    def _heard(self) -> None:
        if "stop" in (self.live.asked(), self.live.heard() if self.live.heard else ""):
            raise _Stopped

    def _seconds(self) -> float:
        return time.perf_counter() - self.began
