"""Improving as a Session does it: a candidate learns from the corrections, the gate judges it, and it is put on or kept aside.

Events: improve.started, improve.curated, improve.phase, improve.step (as tune.step), improve.gate, improve.ended, improve.versions.
Whatever ends an improvement before the gate's verdict is written leaves on the model what was on it before.
"""

from __future__ import annotations

import math
import time

from ..errors import ConfigError, DeviceError, PostTrainError
from ..model.lora import LoRAConfig
from ..train.reports import StepReport
from ..train.trainer import Live
from ..tune.continual.improve import ImprovedReport, improve_async
from .corrections import Records
from .host import STOP
from .job import EVENTS_PER_SECOND
from .messages import finite
from .putting_on import put_on
from .versions import Versions

TURN_SECONDS = 0.03
APART = (
    "improve.", "corpus.", "tokens.", "plan", "settings", "adapters.list", "write.check", "write.stop", "compare.stop", "memorise.stop", "inside.stop",
    "lens.stop", "features.stop", "features.write_stop", "tune.plan", "tune.stop", "tune.save", "train.pause", "train.resume", "train.stop", "train.save",
    "runs.list", "runs.rename", "runs.mark", "runs.duplicate", "runs.compare", "runs.export", "runs.history", "cells.complete",
)  # fmt: skip
"""What may be asked while one goes on: all else needs the model, or another one."""


def stands_apart(kind: str) -> bool:
    """Whether a kind of request is one of those."""
    return kind.startswith(APART) and kind != "improve.use"


class Improving:
    """The improvement in progress, if any, and the versions."""

    def __init__(self, session) -> None:
        self._session = session
        self.records, self.versions = Records(session), Versions(session)
        self.idle = False
        self._by_itself = self._stopping = False
        self._reports = None
        self._request: int | None = None
        self._before: tuple = (None, 1.0)
        self._rows: list[list] = []
        self._sent, self._phase = 0.0, ("", 0, 0)
        self._recent: list[tuple[float, int]] = []

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return self.records.handlers() | {
            "improve.start": self._start,
            "improve.stop": self._stop,
            "improve.history": self.versions.tell,
            "improve.use": self.versions.use,
            "improve.idle": self._set_idle,
        }

    @property
    def active(self) -> bool:
        """Whether one goes on."""
        return self._reports is not None

    # One improvement

    def require_apart(self, kind: str) -> bool:
        """Before a request is handled: True where the improvement must give way to it first. Raises ConfigError where it goes on."""
        if not self.active or stands_apart(kind):
            return False
        if self._by_itself:
            return True
        raise ConfigError("improve", "a model that stands still", "an improvement is going", "stop it first; what was on before is then on again")

    async def give_way(self) -> None:
        """The person does something: an improvement that began by itself ends at once, and what was on is on again."""
        self._stopping = True
        while self.active:
            await self.turn()

    async def _set_idle(self, identity, on: bool) -> None:
        """improve.idle: whether one may begin by itself; the page knows when its person is away."""
        self.idle = on
        self._session.emit("improve.idle", reply_to=identity, on=on)

    async def _start(self, identity, settings: dict | None = None, by_itself: bool = False) -> None:
        """improve.start: settings as tune/continual/improve.py has them. by_itself: nobody asked just now."""
        session = self._session
        if self.active:
            raise ConfigError("improve", "one improvement at a time", "one is going", "stop it first")
        session.refuse_when_busy("improve")
        kept = self.records.kept
        if by_itself and (not self.idle or self.records.fresh() < 1):
            raise ConfigError("improve", "new corrections, and leave to begin by itself", "one of them is missing", "press Improve")
        in_use = kept.history.in_use
        if in_use is not None and in_use.base_sha256 != await session.adapters.base_sha256():
            kept.history.use(None)  # the run was trained on since: its versions are of other weights
        session.stop_writing()
        self._before = (session.adapters.chosen, session.adapters.strength)
        self._by_itself, self._stopping, self._request, self.versions.note = by_itself, False, identity, ""
        self._rows, self._recent, self._sent, self._phase = [], [], 0.0, ("", 0, 0)
        corpus = await session.tuning.base_text()
        live = Live(asked=self._asked)
        reports = improve_async(session.model, kept, corpus, live=live, attach=self._attach, **(settings or {}))
        try:
            first = await anext(reports)  # what is wrong, or too little, is told before anything changes
        except BaseException:
            await reports.aclose()
            raise
        self._reports = reports
        session.engines.recoveries = 0
        self._mark("improving")
        session.emit("improve.started", reply_to=identity, run_id=session.runs.held_id, by_itself=by_itself, version=None if in_use is None else in_use.number)
        self._take(first)

    async def _attach(self, what, training: bool = False, seed: int = 42, name: str = "adapter", any_base: bool = False):
        if not isinstance(what, LoRAConfig) and not any_base:
            what.require_fit(self._session.model.config, await self._session.model.base_sha256_async())
        await put_on(self._session, what, training=training, seed=seed, name=name)
        return self._session.model

    def _asked(self) -> str:
        session = self._session
        acts = self._by_itself and session.acts(stands_apart)
        return "stop" if self._stopping or acts or session.host.flag() == STOP or session.waits("improve.stop") else ""

    async def _stop(self, identity) -> None:
        """improve.stop: after the present step; what was on before is on again."""
        self._stopping = self.active

    async def turn(self) -> bool:
        """Some steps, or a part that cannot be divided; False when there is nothing to do."""
        if not self.active:
            return False
        began = time.perf_counter()
        try:
            while self.active and time.perf_counter() - began < TURN_SECONDS:
                report = await anext(self._reports, None)
                if report is None:
                    await self._end("error", "It ended without a verdict.")
                elif isinstance(report, ImprovedReport):
                    await self._improved(report)
                else:
                    self._take(report)
        except Exception as error:  # noqa: BLE001 - told to the person; the version in use stays
            await self._broken(error)
        return True

    def _take(self, report) -> None:
        if isinstance(report, StepReport):
            self._stepped(report)
        elif report.event == "phase":
            self._flush()
            self._phase = (report.phase, report.steps, report.step)
            self._session.emit("improve.phase", phase=report.phase, steps=report.steps, step=report.step)
        elif report.event in ("curated", "gate"):
            self._flush()
            told = report.to_dict()
            kind = told.pop("event")
            if kind == "gate" and told["figures"] is not None:
                told["figures"] = {name: value if isinstance(value, str) else finite(value) for name, value in told["figures"].items()}
            self._session.emit(f"improve.{kind}", **told)

    def _stepped(self, report: StepReport) -> None:
        now = time.perf_counter()
        self._rows.append([len(self._recent) + 1, finite(report.loss_nats), finite(report.gradient_norm), report.learning_rate])
        self._recent.append((now, report.tokens))
        if now - self._sent >= 1 / EVENTS_PER_SECOND:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        phase, steps, before = self._phase
        rows, self._rows, self._sent = self._rows, [], time.perf_counter()
        seconds = self._recent[-1][0] - self._recent[0][0]
        rate = sum(tokens for _, tokens in self._recent[1:]) / seconds if seconds > 0 else None
        step, loss = rows[-1][0] - before, rows[-1][1]
        left = (steps - step) * seconds / max(1, len(self._recent) - 1) if seconds > 0 else None
        self._session.emit(
            "improve.step", phase=phase, step=step, steps=steps, loss_nats=loss, perplexity=None if loss is None else math.exp(min(loss, 700.0)),
            tokens_per_second=rate, eta_seconds=left, rows=rows,
        )  # fmt: skip

    # Its end

    async def _improved(self, report: ImprovedReport) -> None:
        chosen = (self.versions.id_of(report.version), 1.0) if report.promoted else self._before
        stopped = report.version is None
        reason = ("gave_way" if self._by_itself else "stopped") if stopped else "finished"
        message = report.message
        if reason == "gave_way":
            message = "It gave way to you: what was in use is still in use, and your corrections are kept for the next time."
        await anext(self._reports, None)  # its end
        await self._end(reason, message, chosen, version=report.version, promoted=report.promoted, reasons=list(report.reasons), seconds=report.seconds)

    async def _broken(self, error: Exception) -> None:
        """A fault in its middle: the version in use stays. A device's is the session's to recover from."""
        reports = self._reports
        try:
            await reports.aclose()
        except Exception as another:  # noqa: BLE001 - the first one is told
            error = another if isinstance(another, DeviceError) else error
        if isinstance(error, DeviceError) or isinstance(error.__context__, DeviceError):
            await self._end("error", f"The engine failed ({error}). What was in use is still in use, and your corrections are kept: improve again.", tell=False)
            raise error if isinstance(error, DeviceError) else error.__context__
        self._session.fail(error, self._request)
        await self._end("error", str(error))

    async def _end(self, reason: str, message: str, chosen: tuple | None = None, tell: bool = True, **more) -> None:
        session = self._session
        self._flush()
        self._reports = None
        session.adapters.chosen, session.adapters.strength = chosen or self._before
        self._mark("improved")
        fields = {"version": None, "promoted": False, "reasons": [], "seconds": 0.0} | more
        session.emit("improve.ended", reply_to=self._request, reason=reason, message=message, by_itself=self._by_itself, **fields)
        if tell:
            await session.adapters.tell()
            await self.versions.tell()
            await self.records.tell()

    def _mark(self, kind: str) -> None:
        """A note in the journal that one began, or ended: a tab that is closed in between is told of at its next opening."""
        kept = self.records.kept
        try:
            kept.journal.append({"kind": kind, "created": self._session.host.store.clock()})
        except PostTrainError as error:
            self._session.fail(error)

    async def close(self) -> None:
        """The session ends: what was on is on again."""
        if self.active:
            await self.give_way()
