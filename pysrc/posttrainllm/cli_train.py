"""`posttrainllm train`: begin or resume a run, train, save each minute and at the end, stop when asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

from .cli_interrupt import Interrupt, until_broken
from .cli_job import Job
from .cli_output import output_for, trained
from .cli_places import gone_unless_saved, writable
from .cli_resume import hold_new, hold_saved, resumed
from .cli_tokenize import asked_for, fewer_than_asked
from .data.corpus import Corpus
from .errors import ConfigError, DeviceUnavailableError, NonFiniteError, PostTrainError
from .model.config import GPTConfig
from .model.held import predicted
from .model.live import GPT
from .model.program import Program
from .store.runs import Run
from .train.files import write_checkpoint
from .train.history import newest_step
from .train.reports import TROUBLES, Report, SaveFailedReport, SnapshotReport, StepReport, StoppedReport
from .train.settings import training_settings
from .train.snapshots import Kept
from .train.state import checkpoint_of
from .train.trainer import Live, Trainer


def run(job: Job) -> int:
    """Do the job and return the exit status: 0 at the step asked for, 128 + the signal's number when it was stopped.

    Raises PostTrainError: what cannot be begun, a number that was not finite, a last save or an export that failed.
    """
    if job.source is not None and not job.resume:
        raise ConfigError("train", "--from FILE is an exported run that goes on in --out DIR", "it came without --resume", "add it")
    if job.engine == "torch":
        return _in_torch()(job)
    if job.device == "cuda" or job.precision == "bf16":
        raise ConfigError("train", "--device cuda and --precision bf16 are the torch engine's", "they came without it", "add --engine torch")
    if job.parallel != "ddp":
        raise ConfigError("train", "--parallel is the torch engine's", f"{job.parallel} came without it", "add --engine torch, or leave it out")
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        stack.enter_context(writable(None, job.export))
        stack.enter_context(gone_unless_saved(job.out))
        if job.resume:
            held = stack.enter_context(hold_saved(job))
            trainer = resumed(job, held)
        else:
            plan = planned(job)
            held = stack.enter_context(hold_new(job)) if job.out is not None else None
            trainer = _begun(job, *plan)
        stack.callback(trainer.model.close)
        return finish(job, trainer, Keeping(job, held), interrupt)


def _in_torch() -> Callable[[Job], int]:
    try:
        import torch  # noqa: F401 - not needed by the others, and not installed with them
    except ImportError as error:
        remedy = "pip install 'posttrainllm[torch]'"
        raise DeviceUnavailableError("train", "--engine torch needs PyTorch", f"it is not installed ({error})", remedy) from error
    from .torch_engine.running import run as run_in_torch

    return run_in_torch


def planned(job: Job) -> tuple[GPTConfig, dict, Corpus]:
    """Sizes, settings and text, checked before anything is made."""
    config = GPTConfig.preset(job.preset or "medium", **job.sizes)
    settings = training_settings(job.settings, config.channels)
    corpus = Corpus.named(job.data or "shakespeare").split_at(settings["validation_fraction"])
    tokenizer = asked_for(job.tokenizer, job.bpe, corpus)
    if tokenizer is not None:
        config, corpus = replace(config, vocabulary=tokenizer.vocabulary), corpus.tokens(tokenizer)
    corpus.check(config)
    return config, settings, corpus


def _begun(job: Job, config: GPTConfig, settings: dict, corpus: Corpus) -> Trainer:
    how = {"device": job.device, "threads": job.threads, "isa": job.isa, "precision": job.precision}
    model = GPT.on(Program(config, saving=job.asked.saving(config, how=how)), job.device, job.threads, job.isa, job.precision or "f32")
    try:
        model.tokenizer = corpus.tokenizer
        model.initialise(settings["seed"])
        return Trainer(model, corpus, settings)
    except BaseException:
        model.close()
        raise


class Keeping:
    """Where a run's saves go: its open folder, where it has one, and the file of --export."""

    def __init__(self, job: Job, held: Run | None) -> None:
        self._job, self._held = job, held
        self.name = held.name if held is not None else job.name or ""

    def save(self, trainer: Trainer) -> tuple[str, int]:
        """Save the run in its folder: (where, bytes). Raises StoreError."""
        return str(self._job.out), self._held.save(checkpoint_of(trainer, self.name, self._held.created or None))

    def export(self, trainer: Trainer) -> None:
        """Write the run as one file. Raises StoreError."""
        write_checkpoint(checkpoint_of(trainer, self.name or trainer.corpus.name), self._job.export)

    def snapshots(self) -> Kept | None:
        """What keeps the weights of a few steps, where that was asked for."""
        return Kept(self._held.snapshots) if self._held and self._job.snapshots else None


def finish(
    job: Job, trainer: Trainer, keeping: Keeping, interrupt: Interrupt, asked=None, clock=time.perf_counter, output=output_for
) -> int:
    """Train to the end, show it, save it; the exit status. asked, clock and output as Live and cli_output have them."""
    live = Live(
        job.sample_seconds,
        job.sample_prompt,
        save_seconds=job.save_seconds,
        save=keeping.save if job.out else None,
        snapshots=keeping.snapshots(),
        asked=asked or interrupt.asked,
        heard=None if asked else interrupt.asked,  # several processes agree between steps alone
        clock=clock,
    )
    tokens = seconds = 0.0
    last: Report | None = None
    if job.out and not job.resume:
        keeping.save(trainer)  # a full disk is found now, and a kill before the first minute leaves something to resume
    with output(trainer, job.as_json) as output:
        show = until_broken(interrupt)
        show(output.start, _facts(job, trainer))
        for report in trainer.run(trainer.settings["steps"], live):
            show(output.report, report)
            if isinstance(report, StepReport):
                tokens, seconds = tokens + report.tokens, seconds + report.seconds
            if not isinstance(report, (StoppedReport, SnapshotReport)):
                last = report
        stopped = report
        if job.export is not None:
            keeping.export(trainer)
        if stopped.reason in TROUBLES:
            raise NonFiniteError(stopped.message)
        if isinstance(last, SaveFailedReport):
            raise PostTrainError(last.message, code=last.code)
        newest = newest_step(trainer.history) or {}
        show(
            output.done,
            {
                "step": trainer.step,
                "train_loss_nats": newest.get("loss_nats"),
                "val_loss_nats": trainer.validation_loss_nats,
                "val_bits_per_byte": trainer.validation_bits_per_byte,
                "tokens_per_second": tokens / seconds if seconds else None,
                "weights_sha256": trainer.model.weights_sha256(),
            }
            | _peak(trainer),
        )
    return 128 + interrupt.number if stopped.reason == "stopped" else 0


def _peak(trainer: Trainer) -> dict:
    """The most memory that was in use, where the engine counts it."""
    peak = getattr(trainer.model, "peak_memory_bytes", lambda: None)()
    return {} if peak is None else {"peak_memory_bytes": peak}


def _advice(trainer: Trainer) -> list[str]:
    """What a person should read before: with an adapter the text is small or not for the adapter's numbers, which alone are trained."""
    model, corpus = trainer.model, trainer.corpus
    if model.lora is None:
        return corpus.advice(model.config)
    count, _ = trained(model)
    return corpus.advice(SimpleNamespace(parameter_count=lambda: count, batch=model.config.batch, context=model.config.context))


def _memory(model: GPT) -> dict[str, int]:
    """Bytes by kind: the plan's, and of a GPU what it will hold of that."""
    return predicted(model.program, model.machine.predictor) if model.machine.name == "webgpu" else model.program.memory()


def _facts(job: Job, trainer: Trainer) -> dict:
    model, corpus = trainer.model, trainer.corpus
    return {
        "name": job.name or (job.out.name if job.out else corpus.name),
        "step": trainer.step,
        "steps": trainer.settings["steps"],
        "parameters": model.config.parameter_count(),
        "config": model.config.to_dict(),
        "training": trainer.settings,
        "corpus": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "bytes": len(corpus.data),
            "train_tokens": len(corpus.train),
            "validation_tokens": len(corpus.validation),
        },
        "tokenizer": {
            "name": corpus.tokenizer.name,
            "vocabulary": corpus.tokenizer.vocabulary,
            "bytes_per_token": trainer.bytes_per_token,
            "evaluated_bytes_per_token": trainer.evaluated_bytes_per_token,
        },
        "device": model.machine.name,
        "engine": model.machine.description,
        "threads": getattr(model.machine, "threads", 1),
        "memory": _memory(model),
        "saving": model.program.saving.to_dict(),
        "warnings": _advice(trainer) + fewer_than_asked(job.bpe, corpus.tokenizer),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
