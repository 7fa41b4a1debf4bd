"""The live model as it stands, to be put on another machine: a run, or a base with an adapter, tuned further or at rest."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DeviceError
from ..model.lora import Adapter
from ..store.checkpoint import Checkpoint
from ..train.merging import base_checkpoint
from ..train.state import adapter_of, checkpoint_of, model_of, trainer_of, weights_checkpoint
from ..train.trainer import Trainer


@dataclass(frozen=True)
class Standing:
    """checkpoint: of the run, or under an adapter of its base. trainer: what goes on, None at rest. tune: a tune's own checkpoint."""

    checkpoint: Checkpoint
    trainer: Trainer | None = None
    adapter: Adapter | None = None
    strength: float = 1.0
    tune: Checkpoint | None = None

    @property
    def step(self) -> int:
        """Where what goes on stands."""
        return (self.tune or self.checkpoint).step


async def now(session) -> Standing:
    """As it stands now; its tensors are windows on the live model. Where the device does not answer any more, as it was last saved."""
    model, tuning = session.model, session.tuning
    try:
        await session.job.settle()
        await model.fetch(("params", "m", "v"))
        if tuning.active:
            return Standing(base_checkpoint(model, "moving"), tuning.trainer, tune=tuning.checkpoint())
        if model.lora is not None:
            return Standing(base_checkpoint(model, "moving"), adapter=await model.adapter_async(), strength=model.strength)
        trainer = trainer_on(session)
        return Standing(checkpoint_of(trainer, "moving") if trainer else weights_checkpoint(model, "moving"), trainer)
    except DeviceError:  # its device went away, perhaps long ago, while the run was paused
        found = await saved(session)
        if found is None:
            raise
        return found


async def saved(session) -> Standing | None:
    """As it was last saved; None where something of it never was."""
    checkpoint, tuning, adapters = session.runs.last_save(), session.tuning, session.adapters
    if checkpoint is None:
        return None
    if tuning.active:
        tune = tuning.last_save()
        return tune and Standing(checkpoint, tuning.trainer, tune=tune)
    if session.model.lora is not None and adapters.chosen is not None:
        return Standing(checkpoint, adapter=await adapters.load(adapters.chosen), strength=adapters.strength)
    return Standing(checkpoint, trainer_on(session))


def trainer_on(session) -> Trainer | None:
    """The trainer of the live model's run, going or at rest."""
    trainer = session.training.trainer
    return trainer if trainer is not None and trainer.model is session.model else None


async def settle_on(session, machine, standing: Standing) -> None:
    """Make it the live model on `machine`, and go on with its run or tune."""
    checkpoint, trainer = standing.checkpoint, standing.trainer
    saving = trainer.model.program.saving if trainer is not None else None
    if standing.tune is not None:
        model = model_of(checkpoint, True, machine=machine, lora=adapter_of(standing.tune), seed=None, any_base=True, saving=saving)
        model.tokenizer = trainer.model.tokenizer
        await session.prepare(model)
        session.tuning.adopt(session.tuning.resumed(standing.tune, model))
        session.model = model
    elif standing.adapter is not None:
        model = model_of(checkpoint, machine=machine, lora=standing.adapter, seed=None, any_base=True)
        model.strength = standing.strength
        await session.prepare(model)
        session.model = model
    elif trainer is not None:
        made = trainer_of(checkpoint, trainer.corpus, machine=machine, saving=saving)
        await session.prepare(made.model)
        made.until = trainer.until
        session.training.adopt(made)
        session.model = made.model
    else:
        session.model = model_of(checkpoint, machine=machine)
    session.stop_writing()
    session.engine = session.engines.describe(machine)
