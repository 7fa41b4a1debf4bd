"""Training as a Session does it: one step a turn, pausing and stopping between steps, saving, and a live sample.

Events: started, step (at most eight a second, with all rows since the last), eval, sample, saved, paused, resumed, stopped.
"""

from __future__ import annotations

import math
import time

from ..data.bits import bits_per_byte
from ..errors import ConfigError, DeviceError, PostTrainError, StoreError
from ..train.reports import EvalReport, StepReport, StoppedReport
from ..train.settings import training_settings
from ..train.trainer import Trainer
from .host import PAUSE, STOP
from .live_sample import LiveSample
from .messages import finite
from .tokens import facts_of

EVENTS_PER_SECOND = 8


class Training:
    """The run in progress, if any; `trainer` stays after it ended, so that it can be extended."""

    def __init__(self, session) -> None:
        self._session = session
        self.trainer: Trainer | None = None
        self._reports = None
        self._stopping = self._pausing = self._paused = False
        self._request: int | None = None
        self._rows: list[list] = []
        self._sent = self._saved = 0.0
        self._recent: list[tuple[float, int]] = []
        self._closing = False
        self.live_sample = LiveSample(session)
        self.save_every_seconds = 60.0

    @property
    def active(self) -> bool:
        """Whether a run is in progress (paused or not)."""
        return self._reports is not None

    # Requests

    async def start(self, identity, preset=None, config=None, training=None, name=None) -> None:
        """train.start: a new model from the settings, on the present corpus."""
        self._refuse_when_active()
        session = self._session
        chosen = session.config_of(preset, config)
        settings = training_settings(training, chosen.channels)
        if session.corpus is None:
            session.corpus = await session.host.bundled_corpus()
        corpus, tokenizer = session.tokens.text(), session.tokens.tokenizer
        corpus.check(chosen)
        session.runs.let_go()
        self.trainer = None
        model = await session.make_model(chosen)
        model.tokenizer = tokenizer
        model.initialise(settings["seed"])
        self.trainer = Trainer(model, corpus, settings)
        label = name or f"{session.corpus.name}, {preset or 'custom'}"
        await session.runs.hold_new(label, identity)
        await self._keep_text()
        await self.launch(identity, settings["steps"])

    async def _keep_text(self) -> None:
        try:
            await self._session.host.keep_text(self._session.corpus)
        except StoreError as error:
            self._session.fail(error)

    async def launch(self, identity, until: int) -> None:
        """Begin turning: announce the run and train to step `until`."""
        session, trainer = self._session, self.trainer
        trainer.settings["steps"] = trainer.until = until  # what the list of runs says; the schedule has its own decay_steps
        self._request = identity
        self._stopping = self._pausing = self._paused = False
        self._rows, self._recent = [], []
        self._saved = self._sent = time.perf_counter()
        self._closing = False
        self.live_sample.begin()
        self._reports = trainer.blocks(until)
        session.engines.recoveries = 0
        session.emit(
            "started",
            reply_to=identity,
            run_id=session.runs.held_id,
            name=session.runs.held_name,
            config=trainer.model.config.to_dict(),
            training=trainer.settings,
            parameters=trainer.model.config.parameter_count(),
            tokenizer=facts_of(trainer.model.tokenizer),
            bytes_per_token=trainer.bytes_per_token,
            evaluated_bytes_per_token=trainer.evaluated_bytes_per_token,
            step=trainer.step,
            steps=until,
            engine=session.engine | {"description": trainer.model.machine.description},
            memory=trainer.model.memory(),
        )
        if trainer.step == 0:
            await self.save()  # a run that is cut off in its first minute can be opened too

    async def pause(self, identity) -> None:
        """train.pause."""
        self._pausing = self.active

    async def resume(self, identity) -> None:
        """train.resume."""
        self._pausing = False
        if self.active and self._paused:
            self._paused = False
            self._recent = []
            self._session.emit("resumed", reply_to=identity, step=self.trainer.step)

    async def stop(self, identity) -> None:
        """train.stop: after the present step, with a save. Where nothing is going, `stopped` says so at once."""
        self._stopping = self.active
        if not self.active:
            self._say_stopped("stopped", "No run was going.", True)

    async def save_now(self, identity) -> None:
        """train.save: the page is about to be hidden, and may not come back."""
        if self.active:
            await self.save()

    async def extend(self, identity, steps: int) -> None:
        """train.extend: so many steps more, in the run in progress or the one that ended last."""
        if steps < 1 or steps > 10_000_000:
            raise ConfigError("add steps", "a whole number from 1 to 10,000,000", f"{steps} came", "change it")
        if self.active:
            self.trainer.until += steps
            self.trainer.settings["steps"] = self.trainer.until
            self._step_event(time.perf_counter())
        elif self.trainer is not None and self._session.model is self.trainer.model:
            await self.launch(identity, self.trainer.step + steps)
        else:
            raise ConfigError("add steps", "a run that was just trained or opened", "there is none", "press Train, or open a run")

    async def settings(self, identity, sample_prompt=None, sample_every_seconds=None, save_every_seconds=None) -> None:
        """settings: what the live sample begins with, and how often to sample and save."""
        if sample_prompt:
            self.live_sample.prompt = sample_prompt
            self.live_sample.drop()
        if sample_every_seconds is not None:
            self.live_sample.every_seconds = max(0.0, sample_every_seconds)
        if save_every_seconds is not None:
            self.save_every_seconds = max(1.0, save_every_seconds)

    def _refuse_when_active(self) -> None:
        if self.active:
            raise ConfigError("train", "one run at a time", "a run is going", "stop it first; it is saved when it stops")

    def adopt(self, trainer: Trainer) -> None:
        """Go on with the same run on another engine: `trainer` stands where that engine's model stands."""
        going = self.active
        until = self.trainer.until if going else trainer.settings["steps"]
        self.trainer, self._recent = trainer, []
        self.live_sample.drop()
        trainer.settings["steps"] = trainer.until = until
        self._rows = [row for row in self._rows if row[0] <= trainer.step]  # steps after it are trained again
        if going:
            self._reports = trainer.blocks(until)

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
            self._session.emit("resumed", step=self.trainer.step)
        seconds = await self._take(await anext(self._reports))
        if self.active and seconds:
            await self.live_sample.after_steps(seconds)
            if time.perf_counter() - self._saved >= self.save_every_seconds:
                await self.save()
        return True

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
                loss = finite(report.validation_loss_nats)
                self._session.emit(
                    "eval", step=report.step, validation_loss_nats=loss, best=report.best, bits_per_byte=finite(report.bits_per_byte)
                )
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
            self._session.emit("paused", step=self.trainer.step)
        return False

    def _step_event(self, now: float) -> None:
        trainer, rows = self.trainer, self._rows
        if not trainer.history:
            return
        last = trainer.history[-1]
        self._recent = [entry for entry in self._recent if now - entry[0] < 3.0][-400:]
        span = now - self._recent[0][0] if len(self._recent) > 1 else 0.0
        rate = sum(tokens for _, tokens in self._recent[1:]) / span if span > 0 else None
        left = (trainer.until - trainer.step) * trainer.tokens_per_step
        if rate:  # what coming plans are reckoned by
            self._session.rate_flops = self._session.flops_of_step() * rate / trainer.tokens_per_step
        self._session.emit(
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
        )
        self._rows, self._sent = [], now

    # Ending and saving

    async def save(self) -> bool:
        """Save the run where it is kept; whether that went well. A failure is told and training goes on."""
        await self.settle()
        self._saved = time.perf_counter()
        if self.trainer.broken:
            return False
        try:
            await self.trainer.model.fetch()
            return self._session.runs.save(self.trainer)
        except StoreError as error:
            self._session.fail(error)
            return False

    async def finish(self, reason: str, message: str = "") -> None:
        """End the run in progress: measure, save, say `stopped`."""
        if not self.active:
            return
        trainer = self.trainer
        if reason == "stopped":
            await self.settle()
            message = message or f"Stopped after step {trainer.step:,}, as asked."
            if trainer.history and trainer.history[-1]["validation_loss_nats"] is None:
                report = await trainer.evaluate_async()
                loss = finite(report.validation_loss_nats)
                self._session.emit(
                    "eval", step=report.step, validation_loss_nats=loss, best=report.best, bits_per_byte=finite(report.bits_per_byte)
                )
        self._step_event(time.perf_counter())
        saved = await self.save()
        self._reports, self._closing = None, True
        self.live_sample.drop()
        self._say_stopped(reason, message, saved)

    def _say_stopped(self, reason: str, message: str, saved: bool) -> None:
        """The last event of a run; `saved` is whether its last step is in the file system."""
        trainer = self.trainer
        self._session.emit(
            "stopped",
            step=trainer.step if trainer else 0,
            reason=reason,
            message=message,
            saved=saved,
            run_id=self._session.runs.held_id,
            validation_loss_nats=finite(trainer.validation_loss_nats) if trainer else None,
        )

    def abort(self, error: Exception) -> None:
        """An engine failed: end the run at once; the last save stays as it is."""
        was_active = self.active
        self._reports, self._closing = None, False
        self.live_sample.drop()
        self._session.writing.cancel()
        self._session.fail(error, self._request)
        if was_active:
            self._say_stopped("error", str(error), False)
        if isinstance(error, DeviceError):  # its numbers are not to be had any more: the run is opened anew from the save
            self.trainer = None
            self._session.engines.drop_broken()
