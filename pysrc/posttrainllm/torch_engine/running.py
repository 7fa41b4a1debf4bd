"""`posttrainllm train --engine torch`: the same job, by this process or by all that torchrun started."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from ..cli_interrupt import Interrupt
from ..cli_job import Job
from ..cli_output import output_for, say
from ..cli_places import gone_unless_saved, writable
from ..cli_resume import corpus_of, hold_new, hold_saved, reach, to_resume
from ..cli_tokenize import refuse_another
from ..cli_train import Keeping, finish, planned
from ..errors import ConfigError, NonFiniteError, PostTrainError
from ..model.config import GPTConfig
from ..model.saving import PLAIN, Saving
from ..store.checkpoint import Checkpoint
from ..store.runs import Run
from ..train.checks import checked, require_same_text, run_state
from ..train.moments import in_full
from ..train.state import saved_saving, stand
from ..train.trainer import Trainer
from ..waiting import now
from .gathering import spread
from .model import PRECISIONS, TorchGPT
from .ranks import Pulse, Ranks, was_told

REPEATED_SECONDS = 10.0
"""torchrun passes on a signal that a terminal has sent to every process already: that is not a second one."""


def run(job: Job) -> int:
    """Do the job, and return the exit status as cli_train.run does: of what all processes know, in the one that prints. The others
    return 0 then, as torchrun ends all others at once where one returns another. Raises PostTrainError.
    """
    if job.isa is not None or job.precision == "f16":
        raise ConfigError("train", "--isa and --precision f16 are the native engine's", "they came with --engine torch", "leave them out")
    ranks = Ranks.open(job.device)
    try:
        with contextlib.ExitStack() as stack:
            status = _run(job, ranks, stack)
        return status if ranks.leads else 0
    except PostTrainError as error:
        if ranks.leads:
            raise
        if was_told(error) or isinstance(error, NonFiniteError):
            return 0
        say(f"process {ranks.rank}: {error}")
        return 1
    finally:
        ranks.close()


def _run(job: Job, ranks: Ranks, stack: contextlib.ExitStack) -> int:
    interrupt = stack.enter_context(Interrupt() if ranks.world == 1 else _Patient())
    if job.snapshots and ranks.world > 1:
        raise ConfigError("train", "--snapshots are kept by one process", f"{ranks.world} came", "leave it out")
    ranks.first(lambda: stack.enter_context(writable(None, job.export)))
    if ranks.leads:
        stack.enter_context(gone_unless_saved(job.out))
    if job.resume:
        held = ranks.first(lambda: stack.enter_context(hold_saved(job)))
        trainer = _resumed(job, ranks, held)
    else:
        # The others read the text for themselves, and meet no error that the first did not.
        plan = ranks.first(lambda: planned(job)) or planned(job)
        held = ranks.first(lambda: stack.enter_context(hold_new(job))) if job.out is not None else None
        model = _model(job, ranks, plan[0], job.precision, job.saving)
        model.tokenizer = plan[2].tokenizer
        model.initialise(plan[1]["seed"])
        trainer = Trainer(model, plan[2], plan[1])
    pulse = Pulse(ranks, interrupt)
    keeping = Keeping(job, held) if ranks.world == 1 else _KeepingTogether(job, held, ranks)
    return finish(job, trainer, keeping, interrupt, pulse.asked, pulse.clock, output_for if ranks.leads else _quiet)


def _model(job: Job, ranks: Ranks, config: GPTConfig, precision: str | None, saving: Saving) -> TorchGPT:
    ranks.first(lambda: ranks.require_fit(config, saving))
    return TorchGPT(config, ranks, saving, precision or "f32", job.parallel, job.threads)


def _going_on(job: Job, ranks: Ranks, config: GPTConfig, kept: Saving) -> Saving:
    """How a run that goes on saves memory: as asked for, or as it did, as far as its batch divides so over these processes."""
    if not job.asked.nothing:
        return job.saving
    if config.batch % (ranks.world * kept.micro_batches) == 0 or kept.micro_batches == 1:
        return replace(kept, moments="f32")
    if ranks.leads:
        say(f"The batch of {config.batch} went through in {kept.micro_batches} parts, which {ranks.world} processes cannot: it goes through whole.")
    return replace(kept, micro_batches=1, moments="f32")


def _resumed(job: Job, ranks: Ranks, held: Run | None) -> Trainer:
    """The run, wherever it was trained before. The leader reads; the others get all but the tensors at once, and those one by one."""
    checkpoint = ranks.first(lambda: _to_resume(job, held), lambda it: replace(it, weights={}, m={}, v={}, m_scale={}, v_scale={}))
    corpus = corpus_of(job, checkpoint)
    require_same_text(checkpoint, corpus)
    settings, cursor, standing = run_state(checkpoint, GPTConfig.from_dict(checkpoint.config))
    kept = checkpoint.schedule.get("precision", "f32")
    if job.precision is None and kept not in PRECISIONS and ranks.leads:
        say(f"The run was trained in half precision ({kept}), which the torch engine has not: it goes on in single precision (f32).")
    config, tokenizer = GPTConfig.from_dict(checkpoint.config), _tokenizer(checkpoint)
    saving = _going_on(job, ranks, config, saved_saving(checkpoint) or PLAIN)
    model = _model(job, ranks, config, job.precision or (kept if kept in PRECISIONS else "f32"), saving)
    model.tokenizer = tokenizer
    spread(ranks, model, {"params": checkpoint.weights, **in_full(checkpoint)})
    trainer = Trainer(model, corpus, settings, step=checkpoint.step, cursor=cursor)
    stand(trainer, checkpoint, standing)
    refuse_another(job.tokenizer, job.bpe, trainer.corpus)
    reach(job, trainer)
    return trainer


def _to_resume(job: Job, held: Run) -> Checkpoint:
    checkpoint = to_resume(job, held)
    if checkpoint.adapter:
        raise ConfigError("resume", "the torch engine trains whole models", "the run of an adapter came", "go on with --engine native")
    config, *_ = checked(checkpoint, True)
    run_state(checkpoint, config)
    require_same_text(checkpoint, corpus_of(job, checkpoint))
    return checkpoint


def _tokenizer(checkpoint: Checkpoint):
    from ..data.tokenizers import from_dict

    return from_dict(checkpoint.tokenizer)


class _KeepingTogether(Keeping):
    """Saves of several processes: the leader writes, while all put the tensors together that none has whole."""

    def __init__(self, job: Job, held: Run | None, ranks: Ranks) -> None:
        super().__init__(job, held)
        self._ranks = ranks

    def save(self, trainer: Trainer) -> tuple[str, int]:
        return self._together(trainer, super().save)

    def export(self, trainer: Trainer) -> None:
        self._together(trainer, super().export)

    def _together(self, trainer: Trainer, write):
        now(trainer.model.fetch())
        gathering = trainer.model.gathering

        def lead():
            try:
                return write(trainer)
            finally:
                gathering.finish()  # where it broke off, the others wait for the rest

        if not self._ranks.leads:
            gathering.finish()
        return self._ranks.first(lead, lambda result: result)


class _Patient(Interrupt):
    """Takes what comes within REPEATED_SECONDS for one signal."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0.0

    def _handle(self, number: int, frame: object) -> None:
        if self.number and time.monotonic() - self._at < REPEATED_SECONDS:
            return
        self._at = time.monotonic()
        super()._handle(number, frame)


@contextlib.contextmanager
def _quiet(trainer: Trainer, as_json: bool) -> Iterator[_Quiet]:
    yield _Quiet()


class _Quiet:
    """The output of processes that do not print."""

    def start(self, event: dict) -> None:
        pass

    def report(self, report) -> None:
        pass

    def done(self, event: dict) -> None:
        pass
