"""What trains in a Session, whatever it is: some steps a turn, pausing and stopping between steps, and saving.

`Training` is a run from its first step on, `Tuning` an adapter on a run. Both emit the same events, Tuning with `tune.` before each:
step (at most eight a second, with all rows since the last), eval, paused, resumed, stopped.
"""

from __future__ import annotations

import math
import time

from ..data.bits import bits_per_byte
from ..errors import DeviceError, StoreError
from ..train.history import newest_step
from ..train.reports import EvalReport, RolledBackReport, StepReport, StoppedReport
from ..train.trainer import Live, Trainer
from .host import PAUSE, STOP
from .live_sample import LiveSample
from .messages import finite

EVENTS_PER_SECOND = 8
SAVE_SHARE = 10
"""A save that took long comes again only after so many times as long: gigabytes are written in half a minute."""

CLOSING_SECONDS = 20.0
"""A run that was stopped is measured once more, unless its last evaluation took longer."""


class Job:
    """One that trains, if it is active; `trainer` stays after it ended. What differs: `prefix`, `_keep`, `_say_stopped`."""

    prefix = ""
    """Of its events' kinds."""

    def __init__(self, session) -> None:
        self._session = session
        self.trainer: Trainer | None = None
        self._reports = None
        self._stopping = self._pausing = self._paused = False
        self._request: int | None = None
        self._rows: list[list] = []
        self._sent = self._saved = self._save_seconds = self._evaluation_seconds = 0.0
        self._recent: list[tuple[float, int]] = []
        self._closing = False
        self.live_sample = LiveSample(session, self)
        self.save_every_seconds = 60.0

    @property
    def active(self) -> bool:
        """Whether it is in progress (paused or not)."""
        return self._reports is not None

    @property
    def save_pause_seconds(self) -> float:
        """From the end of a save to the next one."""
        return max(self.save_every_seconds, SAVE_SHARE * self._save_seconds)

    def _emit(self, kind: str, **fields) -> None:
        self._session.emit(self.prefix + kind, **fields)

    def _begin(self, identity, until: int) -> None:
        """Turn from now on, to step `until`."""
        trainer = self.trainer
        trainer.settings["steps"] = trainer.until = until  # what the list of runs says; the schedule has its own decay_steps
        self._request = identity
        self._stopping = self._pausing = self._paused = False
        self._rows, self._recent = [], []
        self._saved = self._sent = time.perf_counter()
        self._closing = False
        self.live_sample.begin()
        for part in (self._session.comparing, self._session.memorising):
            part.cancel()  # of a model that stands still
        self._evaluation_seconds = 0.0
        self._reports = trainer.blocks(until, Live(heard=self._heard))
        self._session.engines.recoveries = 0

    async def _keep(self) -> bool:
        """Write a save of it; False where there is no place to. Raises StoreError."""
        raise NotImplementedError

    def _say_stopped(self, reason: str, message: str, saved: bool) -> None:
        """The last event; `saved` is whether its last step is in the file system."""
        raise NotImplementedError

    async def _look_back(self) -> None:
        """Some steps were done: keep what it was at this one, where that is wanted."""

    async def _measured(self) -> None:
        """It has ended and stands still: measure what its last event tells."""

    def adopt(self, trainer: Trainer) -> None:
        """Go on with the same on another engine: `trainer` stands where that engine's model stands."""
        going = self.active
        until = self.trainer.until if going else trainer.settings["steps"]
        self.trainer, self._recent = trainer, []
        self.live_sample.drop()
        trainer.settings["steps"] = trainer.until = until
        self._rows = [row for row in self._rows if row[0] <= trainer.step]  # steps after it are trained again
        if going:
            self._reports = trainer.blocks(until, Live(heard=self._heard))

    def end(self) -> bool:
        """Forget what goes on, with no more word of it; whether anything went on."""
        was_active = self.active
        self._reports, self._closing = None, False
        self.live_sample.drop()
        return was_active

    # Turns

    async def turn(self) -> bool:
        """Train for a step or a few (or evaluate); False when there is nothing to do."""
        if not self.active:
            return self._closing and await self._close_with_a_sample()
        flag = self._session.host.flag()
        if self._stopping or flag == STOP:
            await self.finish("stopped")
            return True
        if self._pausing or flag == PAUSE:
            return await self._rest()
        if self._paused:
            self._paused = False
            self._emit("resumed", step=self.trainer.step)
        seconds = await self._take(await anext(self._reports))
        if self.active and seconds:
            await self.live_sample.after_steps(seconds)
            await self._look_back()
            if time.perf_counter() - self._saved >= self.save_pause_seconds:
                await self.save()
        return True

    def _heard(self) -> str:
        """ "stop" once one is asked for: what an evaluation hears, the next turn ends the run."""
        session = self._session
        return "stop" if self._stopping or session.host.flag() == STOP or session.waits((self.prefix or "train.") + "stop") else ""

    async def _close_with_a_sample(self) -> bool:
        """After the end, one sample of the finished model, a few tokens a turn; False when there is none to come."""
        going = self._session.model is not None and self.live_sample.every_seconds > 0
        self._closing = not await self.live_sample.at_the_end()
        return going

    async def _take(self, reports: list) -> float:
        """Tell what happened; returns the seconds that the steps among it took."""
        now, seconds = time.perf_counter(), 0.0
        for report in reports:
            if isinstance(report, StepReport):
                self._rows.append([report.step, report.loss_nats, report.gradient_norm, report.learning_rate])
                self._recent.append((now, report.tokens))
                seconds += report.seconds
            elif isinstance(report, EvalReport):
                self._evaluation_seconds = report.seconds
                loss = finite(report.validation_loss_nats)
                self._emit(
                    "eval", step=report.step, validation_loss_nats=loss, best=report.best, bits_per_byte=finite(report.bits_per_byte)
                )
            elif isinstance(report, RolledBackReport):
                self._rows = [row for row in self._rows if row[0] <= report.step]
                if report.goes_on:  # else `stopped` says it
                    self._emit("recovered", step=report.step, lost_steps=0, message=report.sentence(), learning_rate=report.lowered)
            elif isinstance(report, StoppedReport):
                await self.finish(report.reason, report.message)
        if seconds and self.active and now - self._sent >= 1 / EVENTS_PER_SECOND:
            self._step_event(now)
        return seconds

    async def settle(self) -> None:
        """Wait for the steps under way, so that weights, step and data belong together."""
        if self.active:
            await self._take(await self.trainer.settle())

    async def _rest(self) -> bool:
        """While paused nothing turns: the session sleeps until a request comes (the page sends one beside the flag)."""
        if not self._paused:
            self._paused = True
            await self.settle()
            self._step_event(time.perf_counter())
            await self.save()
            self._emit("paused", step=self.trainer.step)
        return False

    def _step_event(self, now: float) -> None:
        trainer, rows = self.trainer, self._rows
        last = newest_step(trainer.history)
        if last is None:
            return
        self._recent = [entry for entry in self._recent if now - entry[0] < 3.0][-400:]
        span = now - self._recent[0][0] if len(self._recent) > 1 else 0.0
        rate = sum(tokens for _, tokens in self._recent[1:]) / span if span > 0 else None
        left = (trainer.until - trainer.step) * trainer.tokens_per_step
        if rate:  # what coming plans are reckoned by
            self._session.rate_flops = self._session.flops_of_step() * rate / trainer.tokens_per_step
        self._emit(
            "step",
            step=trainer.step,
            steps=trainer.until,
            loss_nats=last["loss_nats"],
            perplexity=math.exp(min(last["loss_nats"], 700.0)),
            bits_per_byte=bits_per_byte(last["loss_nats"], trainer.bytes_per_token),
            gradient_norm=last["gradient_norm"],
            learning_rate=last["learning_rate"],
            tokens_per_second=rate,
            ms_per_step=rate and 1000 * trainer.tokens_per_step / rate,
            flops_per_second=rate and self._session.rate_flops,
            elapsed_seconds=trainer.seconds,
            eta_seconds=rate and left / rate,
            rows=rows,
            **{name: finite(last[name]) for name in ("margin", "accuracy") if name in last},
        )
        self._rows, self._sent = [], now

    # Ending and saving

    async def save(self) -> bool:
        """Save it where it is kept; whether that went well. A failure is told and training goes on."""
        await self.settle()
        self._saved = began = time.perf_counter()
        if self.trainer.broken:
            return False
        try:
            await self.trainer.model.fetch()
            return await self._keep()
        except StoreError as error:
            self._session.fail(error)
            return False
        finally:
            self._saved = time.perf_counter()
            self._save_seconds = self._saved - began

    async def finish(self, reason: str, message: str = "") -> None:
        """End what is in progress: measure, save, say `stopped`."""
        if not self.active:
            return
        trainer = self.trainer
        if reason == "stopped":
            await self.settle()
            message = message or f"Stopped after step {trainer.step:,}, as asked."
            unmeasured = trainer.history and trainer.history[-1]["validation_loss_nats"] is None
            if unmeasured and not trainer.cut_short and self._evaluation_seconds <= CLOSING_SECONDS:
                report = await trainer.evaluate_async()
                loss = finite(report.validation_loss_nats)
                self._emit(
                    "eval", step=report.step, validation_loss_nats=loss, best=report.best, bits_per_byte=finite(report.bits_per_byte)
                )
        self._step_event(time.perf_counter())
        saved = await self.save()
        self._reports, self._closing, fault = None, True, None
        try:
            await self._measured()
        except Exception as error:  # noqa: BLE001 - it has ended whatever that was, and `stopped` must come
            fault = error
        self.live_sample.drop()
        self._say_stopped(reason, message, saved)
        if isinstance(fault, DeviceError):
            raise fault  # the session looks for another engine
        if fault is not None:
            self._session.fail(fault, self._request)

    def abort(self, error: Exception) -> None:
        """An engine failed: end the run at once; the last save stays as it is."""
        was_active = self.end()
        self._session.writing.cancel()
        self._session.fail(error, self._request)
        if was_active:
            self._say_stopped("error", str(error), False)
        if isinstance(error, DeviceError):  # its numbers are not to be had any more: it is opened anew from the save
            self.trainer = None
            self._session.engines.drop_broken()
