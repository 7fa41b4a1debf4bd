"""`posttrainllm train`: begin or resume a run, train, save each minute and at the end, stop when asked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from .cli_interrupt import Interrupt, until_broken
from .cli_memory import Asked
from .cli_output import output_for, say, trained
from .cli_places import writable
from .cli_tokenize import asked_for, fewer_than_asked, refuse_another
from .data.corpus import Corpus
from .errors import ConfigError, DeviceUnavailableError, NonFiniteError, PostTrainError, StoreMissingError
from .model.config import GPTConfig
from .model.live import GPT
from .model.program import Program
from .model.saving import Saving
from .store.checkpoint import Checkpoint
from .store.runs import Run
from .train.files import hold_run, write_checkpoint
from .train.history import newest_step
from .train.moments import kind_of
from .train.reports import Report, SaveFailedReport, SnapshotReport, StepReport, StoppedReport
from .train.settings import training_settings
from .train.snapshots import Kept
from .train.state import checkpoint_of, saved_precision, trainer_of
from .train.trainer import Live, Trainer


@dataclass
class Job:
    """What was asked for. `settings` and `sizes` hold only what was given; None elsewhere means the default or the run's."""

    data: str | None = None
    preset: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    device: str = "auto"
    threads: int | None = None
    isa: str | None = None
    precision: str | None = None
    out: Path | None = None
    resume: bool = False
    export: Path | None = None
    name: str | None = None
    save_seconds: float = 60.0
    sample_seconds: float = 0.0
    sample_prompt: str = "\n"
    as_json: bool = False
    tokenizer: Path | None = None
    bpe: int | None = None
    snapshots: bool = False
    engine: str = "native"
    parallel: str = "ddp"
    asked: Asked = Asked()

    @property
    def saving(self) -> Saving:
        """For an engine that leaves nothing to choose. Raises ConfigError."""
        return self.asked.plainly()


def run(job: Job) -> int:
    """Do the job and return the exit status: 0 at the step asked for, 128 + the signal's number when it was stopped.

    Raises PostTrainError: what cannot be begun, a number that was not finite, a last save or an export that failed.
    """
    if job.engine == "torch":
        return _in_torch()(job)
    if job.device == "cuda" or job.precision == "bf16":
        raise ConfigError("train", "--device cuda and --precision bf16 are the torch engine's", "they came without it", "add --engine torch")
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        stack.enter_context(writable(None, job.export))
        if job.resume:
            held = stack.enter_context(hold_saved(job))
            trainer = _resumed(job, held)
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
    model = GPT.on(Program(config, saving=job.asked.saving(config)), job.device, job.threads, job.isa, job.precision or "f32")
    try:
        model.tokenizer = corpus.tokenizer
        model.initialise(settings["seed"])
        return Trainer(model, corpus, settings)
    except BaseException:
        model.close()
        raise


def hold_new(job: Job) -> Run:
    held = hold_run(job.out, create=job.name or job.out.name)
    try:
        with contextlib.suppress(StoreMissingError):
            held.payload()
            raise ConfigError(
                "train",
                f"{job.out} is a new run's folder",
                "a run is saved there",
                "add --resume to go on with it, or choose another",
            )
        if job.name:
            held.rename(job.name)
    except BaseException:
        held.close()
        raise
    return held


def hold_saved(job: Job) -> Run:
    if job.out is None:
        raise ConfigError(
            "train", "--resume goes on with the run in --out DIR", "no --out came", "name the run's folder"
        )
    return hold_run(job.out)


def _resumed(job: Job, held: Run) -> Trainer:
    checkpoint = to_resume(job, held)
    trainer = _going_on(job, checkpoint)
    try:
        refuse_another(job.tokenizer, job.bpe, trainer.corpus)
    except BaseException:
        trainer.model.close()
        raise
    reach(job, trainer)
    return trainer


def to_resume(job: Job, held: Run) -> Checkpoint:
    """The run's last save, seen to agree with what was asked for. Raises ConfigError, StoreError, FormatError."""
    checkpoint = held.load()
    if held.recovered:
        say(held.recovered)
    _refuse_contradictions(job, checkpoint)
    steps = job.settings.get("steps")
    if steps is not None and steps < checkpoint.step:
        raise ConfigError(
            "resume",
            f"--steps is the step to reach, and the run is at step {checkpoint.step:,}",
            f"{steps:,} came",
            "name a later one",
        )
    return checkpoint


def reach(job: Job, trainer: Trainer) -> None:
    """Let a run that goes on reach the step asked for."""
    if "steps" in job.settings:
        trainer.settings = training_settings(trainer.settings | {"steps": job.settings["steps"]})
        trainer.until = job.settings["steps"]


def _going_on(job: Job, checkpoint: Checkpoint) -> Trainer:
    """The run on its engine, in the precision it was trained in unless another is asked for; in single precision, with a
    sentence, where the engine has no other."""
    corpus, kept, saving = corpus_of(job, checkpoint), saved_precision(checkpoint), None
    if not job.asked.nothing:
        saving = job.asked.saving(GPTConfig.from_dict(checkpoint.config), moments=kind_of(checkpoint))

    def on(precision: str | None) -> Trainer:
        how = {"device": job.device, "threads": job.threads, "isa": job.isa}
        return trainer_of(checkpoint, corpus, precision=precision, saving=saving, **how)

    try:
        trainer = on(job.precision)
    except DeviceUnavailableError:
        if job.precision or kept == "f32":
            raise
        trainer = on("f32")  # raises again where it is no matter of precision
    if job.precision is None and kept != getattr(trainer.model.machine, "precision", "f32"):
        say(f"The run was trained in half precision (f16), which {trainer.model.machine.description} has not: it goes on in single precision (f32).")
    return trainer


def _refuse_contradictions(job: Job, checkpoint: Checkpoint) -> None:
    """A run that goes on keeps its settings; an option that says otherwise is a mistake worth a sentence."""
    given = job.settings | job.sizes
    if job.preset is not None:
        given = GPTConfig.preset(job.preset, **job.sizes).to_dict() | given
        del given["vocabulary"]  # a preset's is that of bytes; the tokenizer is judged by itself
    saved = checkpoint.training | checkpoint.config
    for name, value in given.items():
        if name != "steps" and value != saved.get(name):
            raise ConfigError(
                "resume",
                f"a run goes on with its own settings, {name} {saved.get(name)}",
                f"{_option(job, name)} {value} came",
                "leave that option out, or start a new run in another --out",
            )


def _option(job: Job, name: str) -> str:
    given = job.settings | job.sizes
    return f"--{name.replace('_', '-')}" if name in given else f"--preset {job.preset} with {name}"


def corpus_of(job: Job, checkpoint: Checkpoint) -> Corpus:
    if job.data is not None:
        return Corpus.named(job.data)
    name, bundled = checkpoint.corpus.get("name"), Corpus.shakespeare()
    if checkpoint.corpus.get("sha256") == bundled.sha256:
        return bundled
    raise ConfigError(
        "resume", "the text is given again", f"the run was trained on {name!r}, and no --data came", "add --data FILE"
    )


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
        if stopped.reason == "nonfinite":
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
        "memory": model.program.memory(),
        "saving": model.program.saving.to_dict(),
        "warnings": _advice(trainer) + fewer_than_asked(job.bpe, corpus.tokenizer),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
