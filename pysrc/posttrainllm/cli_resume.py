"""`posttrainllm train --resume`: which run goes on, with what text, and what may not change."""

from __future__ import annotations

import contextlib

from .cli_job import Job
from .cli_output import say
from .cli_tokenize import refuse_another
from .data.corpus import Corpus
from .errors import ConfigError, DeviceUnavailableError, StoreMissingError
from .model.config import GPTConfig
from .store.checkpoint import Checkpoint
from .store.runs import Run
from .train.files import hold_run, read_checkpoint
from .train.moments import kind_of
from .train.settings import training_settings
from .train.state import saved_precision, saved_saving, trainer_of
from .train.trainer import Trainer


def hold_new(job: Job, name: str | None = None) -> Run:
    """The folder of a new run, called as asked for, or else `name`, or as its folder. Raises ConfigError where one is saved there."""
    held = hold_run(job.out, create=job.name or name or job.out.name)
    try:
        with contextlib.suppress(StoreMissingError):
            held.payload()
            raise ConfigError(
                "train",
                f"{job.out} is a new run's folder",
                "a run is saved there",
                "choose another" if job.resume else "add --resume to go on with it, or choose another",
            )
        if job.name:
            held.rename(job.name)
    except BaseException:
        held.close()
        raise
    return held


def hold_saved(job: Job) -> Run:
    """The run in --out; with --from first made there of an exported one. Raises ConfigError, DataError, FormatError, StoreError."""
    if job.out is None:
        raise ConfigError("train", "--resume goes on with the run in --out DIR", "no --out came", "name the run's folder")
    if job.source is None:
        return hold_run(job.out)
    checkpoint = read_checkpoint(job.source)
    held = hold_new(job, checkpoint.name)
    try:
        held.save(checkpoint)
    except BaseException:
        held.close()
        raise
    return held


def resumed(job: Job, held: Run) -> Trainer:
    """The run in a held folder, ready for its next step on the engine asked for."""
    checkpoint = to_resume(job, held)
    trainer = going_on(job, checkpoint)
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
    if not checkpoint.resumable:
        came = "it holds weights only, as what was imported or exported does"
        raise ConfigError("resume", "a run that goes on holds AdamW's moments", came, "tune it with `lora --from` or `sft --from`, or write with it")
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


def going_on(job: Job, checkpoint: Checkpoint) -> Trainer:
    """The run on its engine, in the precision it was trained in unless another is asked for; in single precision, with a
    sentence, where the engine has no other."""
    corpus, kept = corpus_of(job, checkpoint), saved_precision(checkpoint)
    engine = {"device": job.device, "threads": job.threads, "isa": job.isa, "precision": job.precision or kept}
    saving = job.asked.saving(GPTConfig.from_dict(checkpoint.config), moments=kind_of(checkpoint), how=engine, was=saved_saving(checkpoint))

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
    """The text of a run: as given, or the bundled one where it is that. Raises ConfigError, DataError."""
    if job.data is not None:
        return Corpus.named(job.data)
    name, bundled = checkpoint.corpus.get("name"), Corpus.shakespeare()
    if checkpoint.corpus.get("sha256") == bundled.sha256:
        return bundled
    raise ConfigError(
        "resume", "the text is given again", f"the run was trained on {name!r}, and no --data came", "add --data FILE"
    )
