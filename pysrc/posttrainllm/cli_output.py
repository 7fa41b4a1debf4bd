"""What the commands print: JSON lines for programs, a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator

from .model.choosing import in_words
from .model.saving import PLAIN, Saving
from .train.reports import TROUBLES, EvalReport, Report, RolledBackReport, SampleReport, SavedReport, SaveFailedReport, StepReport, StoppedReport
from .train.trainer import Trainer


def plain(value):
    """A value as JSON can carry it: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def emit(event: dict) -> None:
    """One JSON object as one line of standard output, at once. Raises BrokenPipeError when the reader has gone."""
    sys.stdout.write(json.dumps(plain(event), allow_nan=False) + "\n")
    sys.stdout.flush()


def say(sentence: str) -> None:
    """A line for the person, beside what is printed as the result."""
    print(sentence, file=sys.stderr, flush=True)


def counted(number: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def trained(model) -> tuple[int, float]:
    """How many numbers of a model are trained, and their share of all, an adapter's among them."""
    count = sum(math.prod(parameter.shape) for parameter in model.program.layout.trainable)
    return count, count / (model.config.parameter_count() + (0 if model.lora is None else count))


def quiet_stdout() -> None:
    """After a broken pipe: nothing more can be printed, and Python must not complain at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class JsonOutput:
    """Every report as a line."""

    def start(self, event: dict) -> None:
        emit({"event": "start"} | event)

    def report(self, report: Report) -> None:
        emit(report.to_dict())

    def done(self, event: dict) -> None:
        emit({"event": "done"} | event)


class PlainOutput:
    """A line at each evaluation, sample and save that failed."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self._loss, self._rate = trainer, math.nan, 0.0

    def start(self, event: dict) -> None:
        corpus, saving = event["corpus"], Saving.from_dict(event["saving"])
        self.line(
            f"{event['parameters']:,} parameters on {event['engine']}; {event['memory']['total_bytes'] / 1e6:,.0f} MB."
        )
        if saving != PLAIN:
            self.line(f"To need less memory: {in_words(saving)}.")
        self.line(
            f"{corpus['name']}: {corpus['train_tokens']:,} tokens to train on, {corpus['validation_tokens']:,} to validate."
        )
        tokenizer = event["tokenizer"]
        if tokenizer["name"] != "bytes":
            self.line(
                f"Its tokens are {tokenizer['name']}'s, of {tokenizer['vocabulary']:,}: {tokenizer['bytes_per_token']:.2f} bytes each on average."
            )
        for sentence in event["warnings"]:
            self.line(sentence)
        if event["step"]:
            self.line(f"Going on from step {event['step']:,} to {event['steps']:,}.")

    def line(self, text: str) -> None:
        """Print one line."""
        print(text, flush=True)

    def report(self, report: Report) -> None:
        if isinstance(report, StepReport):
            self._loss = report.loss_nats
            now = report.tokens / max(report.seconds, 1e-9)
            self._rate = now if not self._rate else 0.95 * self._rate + 0.05 * now
            self.step(report)
        elif isinstance(report, EvalReport):
            self.line(self._evaluated(report))
        elif isinstance(report, SampleReport):
            self.line(f"--- step {report.step:,}\n{report.prompt}{report.text}\n---")
        elif isinstance(report, RolledBackReport):
            self.line(report.sentence())
        elif isinstance(report, SaveFailedReport):
            self.line(f"Not saved: {report.message}")
        elif isinstance(report, StoppedReport) and report.reason not in TROUBLES:  # that one ends as an error
            self.line(report.message)
        elif isinstance(report, SavedReport):
            self.saved(report)

    def _evaluated(self, report: EvalReport) -> str:
        trained = f"loss {self._loss:.4f}  " if math.isfinite(self._loss) else ""
        rate = f"  {self._rate:,.0f} tokens/s" if self._rate else ""
        measured = f"validation {report.validation_loss_nats:.4f}{' (best)' if report.best else ''}"
        return f"step {report.step:,}  {trained}{measured}  {report.bits_per_byte:.3f} bits/byte{rate}"

    def step(self, report: StepReport) -> None:
        """A step was done."""

    def saved(self, report: SavedReport) -> None:
        """A save was done."""

    def done(self, event: dict) -> None:
        self.line(f"step {event['step']:,}, weights {event['weights_sha256']}")


class TerminalOutput(PlainOutput):
    """The same with a progress bar: loss, validation loss, tokens/s, time left."""

    def __init__(self, trainer: Trainer, progress) -> None:
        super().__init__(trainer)
        self._progress = progress
        self._task = progress.add_task("train", total=trainer.until, completed=trainer.step, facts="")

    def line(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def step(self, report: StepReport) -> None:
        validation, bits = self._trainer.validation_loss_nats, self._trainer.validation_bits_per_byte
        measured = "" if validation is None else f"  validation {validation:.3f} ({bits:.3f} bits/byte)"
        facts = f"loss {report.loss_nats:.3f}{measured}  {self._rate:,.0f} tokens/s"
        self._progress.update(self._task, completed=report.step, total=self._trainer.until, facts=facts)


@contextlib.contextmanager
def output_for(trainer: Trainer, as_json: bool) -> Iterator[JsonOutput | PlainOutput]:
    """The output that suits: JSON where asked for, a bar where standard output is a terminal, else plain lines."""
    if as_json:
        yield JsonOutput()
        return
    if not sys.stdout.isatty():
        yield PlainOutput(trainer)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[facts]}"), TimeRemainingColumn())
    with Progress(*columns) as progress:
        yield TerminalOutput(trainer, progress)
