"""The training loop, as a generator of reports. It never prints or draws: whoever consumes it does.

`run` is for plain code; `blocks` is the same loop for code that awaits, and gives the reports of several steps at once where an
engine takes them so (ahead.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from ..data.bits import bits_per_byte
from ..data.corpus import Corpus
from ..errors import ConfigError, NonFiniteError
from ..model.live import GPT
from ..model.steps import StepQueue
from ..waiting import each_now, now
from .ahead import MOST_SKIPPED, Ahead
from .guard import Guard
from .hearing import CutShort, hearing
from .history import append
from .keeping import Keeping
from .reports import EvalReport, Report, SkippedReport, StepReport, StoppedReport
from .schedule import recipe
from .settings import training_settings
from .snapshots import Kept


@dataclass
class Live:
    """What may happen beside the steps. Times are in seconds; 0 is never.

    save(trainer) writes a checkpoint and returns (place, bytes); a StoreError there is reported, and training goes on.
    snapshots keeps the weights of a few steps (snapshots.py); a StoreError there is reported once, and no more are taken.
    asked() gives "stop" when a person asked to stop; heard(), where there is one, is asked the same between an evaluation's batches. clock() is the time that the others are measured by; processes that train
    together share one.
    """

    sample_seconds: float = 0.0
    sample_prompt: str = "\n"
    sample_tokens: int = 120
    save_seconds: float = 0.0
    save: Callable[[Trainer], tuple[str, int]] | None = None
    snapshots: Kept | None = None
    asked: Callable[[], str] = lambda: ""
    heard: Callable[[], str] | None = None
    clock: Callable[[], float] = time.perf_counter


class Trainer(Keeping):
    """A model, a corpus, settings, and where the run stands: step, data cursor, history.

    history holds one dict a step (thinner in a long run, see history.py): step, loss_nats, gradient_norm,
    learning_rate, seconds of training so far, and validation_loss_nats where it was measured (a step that half precision skipped
    has a row only then, without the others). `until` is the step that
    `run` goes to; it may be changed while it runs. A step's loss becomes bits per byte by bytes_per_token (of the training part), an
    evaluation's by evaluated_bytes_per_token (of the tokens measured). Raises ConfigError for a setting, DataError where the text is
    too short for the model.
    """

    def __init__(
        self, model: GPT, corpus: Corpus, settings: dict | None = None, *, step: int = 0, cursor: dict | None = None
    ):
        self.settings = training_settings(
            {"validation_fraction": corpus.validation_fraction} | (settings or {}), model.config.channels, model.lora is not None
        )
        self.model, self.corpus = model, _as_tokens(corpus.split_at(self.settings["validation_fraction"]), model.tokenizer)
        config = model.config
        if model.tokenizer.vocabulary > config.vocabulary:
            raise ConfigError(
                "train",
                f"the model's vocabulary holds the tokenizer's {model.tokenizer.vocabulary} tokens",
                f"{config.vocabulary} came",
                f"use a vocabulary of {model.tokenizer.vocabulary}",
            )
        self.corpus.check(config)
        self.bytes_per_token = self.corpus.bytes_per_token()
        self.evaluated_bytes_per_token = self.corpus.evaluated_bytes_per_token(config.context, self.settings["evaluation_tokens"])
        self.step, self.until, self.history = step, self.settings["steps"], []
        self.validation_loss_nats: float | None = None
        self.broken = False  # the weights themselves give no finite loss: they must not replace a good save
        self.best_loss_nats = math.inf
        self.seconds = 0.0
        self.batches = self.batches_at(cursor)
        self._ahead: Ahead | None = None
        self._queue: StepQueue | None = None
        self._heard: Callable[[], str] | None = None
        self.cut_short = False  # a stop ended the last evaluation

    def more_to_keep(self) -> dict:
        """What a save of the run holds besides, as JSON; other kinds of Trainer give theirs."""
        return {}

    def batches_at(self, cursor: dict | None):
        """The run's batches from a cursor on."""
        config = self.model.config
        return self.corpus.batches(config.context, config.batch, self.settings["seed"], cursor)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one batch: B·T."""
        return self.model.config.batch * self.model.config.context

    async def train_step_async(self) -> StepReport:
        """One step; in half precision the first that was not skipped. Raises NonFiniteError, with the weights as they were."""
        skipped = 0
        while True:
            began, cursor = time.perf_counter(), self.batches.cursor
            values = recipe(self.step + 1, self.settings)
            loss, norm = await self.replay_async(values)
            if math.isfinite(loss) and math.isfinite(norm):
                return self.record(loss, norm, values[0], time.perf_counter() - began)
            if not self.may_skip or skipped >= MOST_SKIPPED:
                self.batches = self.batches_at(cursor)
                raise self.non_finite(loss, norm)
            skipped += 1
            self.skip()

    async def replay_async(self, values: tuple[float, ...]) -> tuple[float, float]:
        """Give the next batch to the engine: (loss, gradient norm). Other objectives than the next token's replace this."""
        return await self.model.step_async(*self.batches.next(), values)

    async def queue_async(self) -> StepQueue | None:
        """Where many steps may be under way at once; None where each is waited for."""
        return await self.model.steps()

    async def measure_async(self) -> float:
        """What an evaluation is about: the mean loss in nats on what is held out."""
        config = self.model.config
        batches = self.corpus.evaluation(config.context, config.batch, self.settings["evaluation_tokens"])
        return await self.model.evaluate_batches_async(hearing(batches, self._heard) if self._heard else batches)

    @property
    def may_skip(self) -> bool:
        """Whether a gradient that is not finite only means that the loss scale was too large."""
        return getattr(self.model.machine, "precision", "f32") == "f16"

    def skip(self) -> SkippedReport:
        """A step changed nothing: count it, so that data, schedule and number of steps stay together."""
        self.step += 1
        return SkippedReport(self.step)

    def train_step(self) -> StepReport:
        """`train_step_async`, from plain code."""
        return now(self.train_step_async())

    def non_finite(self, loss: float, norm: float) -> NonFiniteError:
        """What to raise when the next step's numbers are not finite."""
        return NonFiniteError(
            f"step {self.step + 1}",
            "loss and gradient norm are finite",
            f"loss {loss} and norm {norm} came",
            f"the weights of step {self.step} are kept; start again with a lower learning rate",
        )

    def record(self, loss: float, norm: float, rate: float, seconds: float) -> StepReport:
        """One step is done: count it, keep its row, report it."""
        self.step += 1
        self.seconds += seconds
        append(self.history, self._row(loss, norm, rate))
        bits = bits_per_byte(loss, self.bytes_per_token)
        return StepReport(self.step, loss, norm, rate, self.tokens_per_step, seconds, bits)

    def _row(self, loss: float | None, norm: float | None, rate: float | None) -> dict:
        row = {"step": self.step, "loss_nats": loss, "gradient_norm": norm, "learning_rate": rate}
        return row | {"seconds": self.seconds, "validation_loss_nats": None}

    async def evaluate_async(self) -> EvalReport:
        """Measure the validation loss now and keep it in the history."""
        began = time.perf_counter()
        loss = await self.measure_async()
        self.broken, self.cut_short = not math.isfinite(loss), False
        best = loss < self.best_loss_nats
        self.best_loss_nats = loss if best else self.best_loss_nats
        self.validation_loss_nats = loss
        if self.history and self.history[-1]["step"] == self.step:
            self.history[-1]["validation_loss_nats"] = loss
        elif self.step:  # half precision skipped this step: it has no row of its own
            append(self.history, self._row(None, None, None) | {"validation_loss_nats": loss})
        return EvalReport(self.step, loss, best, time.perf_counter() - began, self.validation_bits_per_byte)

    async def _evaluated(self, live: Live, guard: Guard) -> list[Report]:
        """An evaluation's report; none where a stop cut it short."""
        self._heard = live.heard
        try:
            report = await self.evaluate_async()
            await guard.keep(report)
            return [report]
        except CutShort:
            self.cut_short = True
            return []
        finally:
            self._heard = None

    @property
    def validation_bits_per_byte(self) -> float | None:
        """The last evaluation as bits per byte; None before the first."""
        loss = self.validation_loss_nats
        return None if loss is None else bits_per_byte(loss, self.evaluated_bytes_per_token)

    def evaluate(self) -> EvalReport:
        """`evaluate_async`, from plain code."""
        return now(self.evaluate_async())

    @property
    def ahead(self) -> bool:
        """Whether this engine takes many steps at once, so that some may be under way."""
        return self._ahead is not None

    async def settle(self) -> list[Report]:
        """Wait for the steps that are under way; afterwards weights, step and cursor belong together. Their reports.

        A number that is not finite among them is raised by the next step that is asked for.
        """
        return await self._ahead.settle() if self._ahead else []

    def begin_ahead(self) -> None:
        """Send steps anew, from where the run stands; nothing may be under way."""
        self._ahead = Ahead(self, self._queue) if self._queue else None

    async def _advance(self, stop: int) -> list[Report]:
        """Some steps towards step `stop`; perhaps none yet where many are under way."""
        return await self._ahead.advance(stop) if self._ahead else [await self.train_step_async()]

    def run(self, until: int | None = None, live: Live | None = None) -> Iterator[Report]:
        """Train up to step `until` (default settings["steps"]); ends with a StoppedReport.

        Evaluates at the start, every evaluate_every_steps and at the end; samples and saves as `live` says, and saves
        at the end, also where it was asked to stop or a number was not finite (the weights before it are kept).
        """
        for reports in each_now(self.blocks(until, live)):
            yield from reports

    async def blocks(self, until: int | None = None, live: Live | None = None) -> AsyncIterator[list[Report]]:
        """`run` for code that awaits: lists of reports, empty ones where nothing is back yet."""
        live = live or Live()
        self.until = self.settings["steps"] if until is None else until
        sampled = saved = live.clock()
        await self.model.prepare()
        self._queue = await self.queue_async()
        self.begin_ahead()
        guard, reason, message = Guard(self), "", ""
        if not self.history:
            yield await self._evaluated(live, guard)
        every = self.settings["evaluate_every_steps"]
        while self.step < self.until:
            if live.asked() == "stop":
                yield await self.settle()
                reason, message = "stopped", f"Stopped after step {self.step:,}, as asked."
                break
            if live.snapshots and live.snapshots.due(self.step):
                yield [*await self.settle(), await self.snapshot(live.snapshots)]
                continue  # steps that were under way may have reached the end
            stop = min(self.until, (self.step // every + 1) * every)
            try:
                reports = await self._advance(stop)
                guard.look(reports)
                yield reports
            except NonFiniteError as error:
                guard.trouble = "nonfinite", str(error)
            if self.step == stop and not guard.trouble:
                yield await self._evaluated(live, guard)
                if self.cut_short:
                    continue  # to the stop
                if self.broken:
                    guard.trouble = "nonfinite", self._broken_sentence()
            if guard.trouble:
                reason, back, message = await guard.resolve()
                if back is not None:
                    yield [back]
                if message:
                    break
                continue
            at = live.clock()
            if live.sample_seconds and at - sampled >= live.sample_seconds:
                yield [*await self.settle(), await self.sample(live)]
                sampled = live.clock()
            if live.save and live.save_seconds and at - saved >= live.save_seconds and self.step < self.until:
                yield [*await self.settle(), await self.saved(live)]
                saved = live.clock()
        if not reason and self._ahead and self._ahead.stuck:
            reason, message = "nonfinite", str(self.non_finite(math.inf, math.inf))
        if live.save and not self.broken:
            yield [await self.saved(live)]
        yield [StoppedReport(self.step, reason or "finished", message or f"Finished: {self.step:,} steps are done.")]


def _as_tokens(corpus: Corpus, tokenizer) -> Corpus:
    """The corpus as the model reads it: a run that goes on is given its text, whatever tokenizer it was trained with."""
    return corpus if getattr(corpus, "tokenizer", None) is tokenizer else corpus.tokens(tokenizer)


def train(model: GPT, corpus: Corpus, **settings) -> Iterator[Report]:
    """Train `model` on `corpus`; settings as in configs/training.json (steps=1000, learning_rate=…). Yields reports."""
    return Trainer(model, corpus, settings).run()
