"""Putting an adapter on the live model: in place, so that the base's weights are in memory once."""

from __future__ import annotations

from ..errors import ConfigError, DeviceOutOfMemoryError
from ..model.live import RESERVE_BYTES
from ..model.lora import Adapter, LoRAConfig
from ..model.program import Program
from ..train.state import model_of


async def put_on(session, what: Adapter | LoRAConfig, training: bool = False, seed: int = 42, name: str = "adapter") -> None:
    """Put an Adapter, or a new one of a LoRAConfig, on the live model in place; where the engine's memory is too small for that,
    the base is opened anew from its save. The trainer of the base is gone then: its run goes on from the save."""
    trainer = session.training.trainer
    if trainer is not None:
        if trainer.model is session.model:
            session.adapters.base_step = trainer.step
        session.training.end()
        session.training.trainer = None
    model, any_base = session.model, {"any_base": True} if isinstance(what, Adapter) else {}
    try:
        if isinstance(what, Adapter) and not training and model.lora is not None and model.lora.shape == what.config.shape:
            await model.swap_async(what, any_base=True)
            model.strength = 1.0
        else:
            await model.attach_async(what, training=training, seed=seed, name=name, **any_base)
    except DeviceOutOfMemoryError:
        await _reopen(session, what, training, seed)
    await session.prepare(session.model)


async def _reopen(session, what: Adapter | LoRAConfig, training: bool, seed: int) -> None:
    """The base from its save, on a machine with the room that it needs with the adapter."""
    checkpoint = session.runs.last_save()
    if checkpoint is None:
        raise ConfigError("adapter", "room for it beside the model", "there is none", "save and reload the page, then open the run again")
    saving = session.model.program.saving
    program = Program(session.model.config, training, what.config if isinstance(what, Adapter) else what, saving)
    session.require_fit("adapter", program)
    tokenizer = session.model.tokenizer
    session.drop_model()
    machine = await session.host.open_machine(sum(program.region_bytes().values()) + RESERVE_BYTES)
    try:
        model = model_of(checkpoint, training, machine=machine, lora=what, seed=None, any_base=True, saving=saving)
        model.tokenizer = tokenizer
        await session.prepare(model)
        if not isinstance(what, Adapter):
            model.initialise(seed)
    except BaseException:
        machine.close()
        raise
    session.model, session.engine = model, session.engines.describe(machine)
