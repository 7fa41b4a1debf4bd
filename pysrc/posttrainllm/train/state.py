"""A run as a Checkpoint and back: 100 steps = 50 + save + load + 50, bit for bit on the CPU engine.

Everything in a checkpoint is checked against the model's own layout before a single weight of a live model changes. The run of an
adapter holds the adapter alone, and the hash of the base that it needs beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from .. import __version__
from ..backends.base import Machine
from ..data.corpus import Corpus
from ..errors import ConfigError, FormatError
from ..model.adapted import lora as adapted
from ..model.config import GPTConfig
from ..model.live import GPT
from ..model.lora import Adapter, LoRAConfig, sizes_of
from ..model.program import Program
from ..model.saving import PLAIN, Saving
from ..store.buffers import Tensor
from ..store.checkpoint import Checkpoint, weights_sha256
from . import moments
from .checks import checked, require_same_text, run_state
from .filling import fill, python_pieces, upload
from .trainer import Trainer


def checkpoint_of(trainer: Trainer, name: str, created: str | None = None) -> Checkpoint:
    """Everything the run is, now. `created` is ISO 8601 in UTC, default this second.

    The tensors are windows on the live model, not copies: save the checkpoint before the next step.
    """
    model, now = trainer.model, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Checkpoint(
        name=name,
        config=model.config.to_dict(),
        adapter=_about_adapter(model, name),
        step=trainer.step,
        tokenizer=model.tokenizer.to_dict(),
        weights=tensors_of(model),
        **moments.tensors_of(model),
        training=dict(trainer.settings),
        schedule={
            "seconds": trainer.seconds,
            "best_loss_nats": trainer.best_loss_nats,
            "validation_loss_nats": trainer.validation_loss_nats,
        }
        | {"engine": str(getattr(model.machine, "name", ""))}
        | _precision_of(model.machine)
        | _saving_of(model.program.saving)
        | trainer.more_to_keep(),
        cursor=trainer.batches.cursor,
        rng={"seed": trainer.settings["seed"]},
        corpus={
            "name": trainer.corpus.name,
            "sha256": trainer.corpus.sha256,
            "bytes": len(trainer.corpus.data),
            "bytes_per_token": trainer.bytes_per_token,
            "evaluated_bytes_per_token": trainer.evaluated_bytes_per_token,
        },
        history=list(trainer.history),
        created=created or now,
        updated=now,
        app_version=__version__,
    )


def _about_adapter(model: GPT, name: str) -> dict:
    """What the run of an adapter says about it; nothing in the run of a whole model."""
    if model.lora is None:
        return {}
    return {"name": name, "lora": model.lora.to_dict(), "base_sha256": model.base_sha256()}


def adapter_of(checkpoint: Checkpoint) -> Adapter | None:
    """The adapter that a run trained, as it stood at the save; None where the run is of a whole model. Raises FormatError."""
    config, _, lora = checked(checkpoint, False)
    if lora is None:
        return None
    sizes, about = sizes_of(config), checkpoint.adapter
    weights = {name: b"".join(map(bytes, python_pieces(each.data, bytearray(each.nbytes)))) for name, each in checkpoint.weights.items()}
    return Adapter(about["name"], lora, sizes, about["base_sha256"], weights)


def _precision_of(machine: Machine) -> dict:
    """What less than single precision adds to a run's schedule: that it is, and of f16 its loss scale."""
    precision = getattr(machine, "precision", "f32")
    if precision != "f16":
        return {} if precision == "f32" else {"precision": precision}
    scale, good_steps = machine.loss_scale()
    return {"precision": "f16", "loss_scale": scale, "good_steps": good_steps}


def saved_saving(checkpoint: Checkpoint) -> Saving | None:
    """How a run was trained in less memory; None where nothing says so (a plain run, or an older save), or where it is nothing known."""
    kept = checkpoint.schedule.get("saving")
    try:
        found = replace(Saving.from_dict(kept), moments=moments.kind_of(checkpoint))
        found.require_fit(GPTConfig.from_dict(checkpoint.config))
    except ConfigError:
        return None
    return found


def _saving_of(saving: Saving) -> dict:
    """What a run's schedule says of it: its moments are told by its tensors."""
    kept = {"micro_batches": saving.micro_batches, "recompute": saving.recompute}
    return {} if kept == {"micro_batches": 1, "recompute": 0} else {"saving": kept}


def saved_precision(checkpoint: Checkpoint) -> str:
    """The precision that a run was trained in: "f32" or "f16"."""
    return "f16" if checkpoint.schedule.get("precision") == "f16" else "f32"


def weights_checkpoint(model: GPT, name: str) -> Checkpoint:
    """A model without a run: weights, config and tokenizer. One can write with it, not continue its training."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Checkpoint(
        name=name,
        config=model.config.to_dict(),
        step=0,
        tokenizer=model.tokenizer.to_dict(),
        weights=tensors_of(model),
        created=now,
        updated=now,
        app_version=__version__,
    )


def tensors_of(model: GPT) -> dict[str, Tensor]:
    """Weights by the name of what is trained, as windows on the engine's memory."""
    shapes = {parameter.name: parameter.shape for parameter in model.program.layout.trainable}
    return {name: Tensor("F32", shape, model.weight_view(name)) for name, shape in shapes.items()}


def model_of(
    checkpoint: Checkpoint,
    training: bool = False,
    *,
    device: str = "auto",
    threads: int | None = None,
    isa: str | None = None,
    precision: str = "f32",
    machine: Machine | None = None,
    lora: LoRAConfig | Adapter | None = None,
    seed: int | None = 42,
    base: GPT | Checkpoint | None = None,
    any_base: bool = False,
    saving: Saving | None = None,
) -> GPT:
    """The checkpoint's model, on `machine` or on a new one. `training=True` brings AdamW's moments too: without `saving` kept as the
    run kept them, else as it says, each number then the nearest that there is.

    With `lora` the model gets an adapter: that one, or a new one from `seed`. (A browser's GPU must be prepared first: give seed=None,
    and call `initialise` after `prepare`.) The run of an adapter needs its `base`, as a live model or as its checkpoint.

    Raises FormatError when config or tensors are not a model's, DataError for an unknown tokenizer, ConfigError where an adapter does
    not belong to the base (any_base: or does not fit it), DeviceError.
    """
    config, tokenizer, own = checked(checkpoint, training and lora is None)
    how = {"device": device, "threads": threads, "isa": isa, "precision": precision, "machine": machine}
    if own is not None:
        return _adapted(checkpoint, training, base, how, any_base, saving)
    settings, known = lora.config if isinstance(lora, Adapter) else lora, ""
    if settings is not None:
        known = weights_sha256(checkpoint.weights)
    if isinstance(lora, Adapter):
        lora.require_fit(config, "" if any_base else known)
    saving = saving or (_as_saved(checkpoint) if training and lora is None else PLAIN)
    program = Program(config, training, settings, saving)
    model = GPT.on(program, device, threads, isa, precision) if machine is None else GPT(config, machine, program)
    try:
        model.tokenizer = tokenizer
        fill(model, checkpoint, training and lora is None)
        if lora is not None:
            model.begin_adapter(lora, seed, known)
    except BaseException:
        if machine is None:
            model.close()
        raise
    return model


def _as_saved(checkpoint: Checkpoint, saving: Saving = PLAIN) -> Saving:
    """The Saving that a run kept, or else `saving`, with moments as a run kept them."""
    return replace((saving is PLAIN and saved_saving(checkpoint)) or saving, moments=moments.kind_of(checkpoint))


def _adapted(
    checkpoint: Checkpoint, training: bool, base: GPT | Checkpoint | None, how: dict, any_base: bool, saving: Saving | None
) -> GPT:
    """The model of an adapter's run, on its base."""
    adapter = adapter_of(checkpoint)
    if base is None:
        raise ConfigError(
            f"run {checkpoint.name}",
            "the run of an adapter comes with the model it changes",
            "it came alone",
            f"give the base, whose weights have sha256 {adapter.base_sha256[:16]}…",
        )
    own = base.program.saving if isinstance(base, GPT) else PLAIN
    saving = saving or (_as_saved(checkpoint, own) if training else own)
    if isinstance(base, GPT):
        model = adapted(base, adapter=adapter, training=training, any_base=any_base, saving=saving, **how)
    else:
        model = model_of(base, training, lora=adapter, any_base=any_base, saving=saving, **how)
    try:
        fill(model, checkpoint, training)
    except BaseException:
        if how["machine"] is None:
            model.close()
        raise
    return model


def trainer_of(
    checkpoint: Checkpoint,
    corpus: Corpus,
    *,
    device: str = "auto",
    threads: int | None = None,
    isa: str | None = None,
    precision: str | None = None,
    machine: Machine | None = None,
    model: GPT | None = None,
    base: GPT | Checkpoint | None = None,
    make: Callable[..., Trainer] = Trainer,
    saving: Saving | None = None,
) -> Trainer:
    """The run, ready for its next step, on `model` (a live one of the same sizes), on `machine`, or on a new one.

    Without `saving` the run saves memory, and keeps AdamW's moments, as it did, so that it goes on bit for bit; a `model` has its own way.

    The run of an adapter needs its `base` (a live model, which is untouched, or its checkpoint), or a live `model` that is this base
    with an adapter of the same shape. Without a precision a GPU goes on in the run's own. Where that is half precision, so does its loss
    scale. `make` makes the Trainer, where it is of another kind (tune/running.py).

    Raises DataError when `corpus` is not the text it was trained on, FormatError when the checkpoint is not a whole run, ConfigError
    where the base is another; a live `model` is then unchanged.
    """
    config, tokenizer, lora = checked(checkpoint, True)
    settings, cursor, standing = run_state(checkpoint, config)
    require_same_text(checkpoint, corpus)
    corpus.split_at(settings["validation_fraction"]).check(config)
    if model is None:
        precision = precision or (saved_precision(checkpoint) if device == "webgpu" else "f32")
        model = model_of(
            checkpoint, True, device=device, threads=threads, isa=isa, precision=precision, machine=machine, base=base,
            saving=saving,
        )  # fmt: skip
    elif model.config != config or model.program.step is None or (model.lora and model.lora.shape) != (lora and lora.shape):
        raise ConfigError(
            "resume",
            f"the live model has the run's sizes, {config.to_dict()}{f' and an adapter of {lora.to_dict()}' if lora else ''}, and room to train",
            f"{model.config.to_dict()}{f' and {model.lora.to_dict()}' if model.lora else ''} came",
            "make another model",
        )
    else:
        if lora is not None:
            model.swap(adapter_of(checkpoint))
            model.strength = 1.0
        model.tokenizer = tokenizer
        fill(model, checkpoint, True)
    trainer = make(model, corpus, settings, step=checkpoint.step, cursor=cursor)
    stand(trainer, checkpoint, standing)
    if standing["loss_scale"] and trainer.may_skip:
        model.machine.set_loss_scale(standing["loss_scale"], standing["good_steps"] or 0.0)
    return trainer


def stand(trainer: Trainer, checkpoint: Checkpoint, standing: dict[str, float | None]) -> None:
    """Give a Trainer its run's history and what `run_state` said of it."""
    trainer.history = [dict(row) for row in checkpoint.history]
    trainer.seconds = standing["seconds"] or 0.0
    trainer.validation_loss_nats = standing["validation_loss_nats"]
    best = standing["best_loss_nats"]
    trainer.best_loss_nats = math.inf if best is None else best


def check_run(checkpoint: Checkpoint, corpus: Corpus | None) -> None:
    """All that `trainer_of` (with a corpus, for a run that can go on) or `model_of` will ask, before anything is made for it."""
    going_on = corpus is not None and checkpoint.resumable
    config, *_ = checked(checkpoint, going_on)
    if going_on:
        run_state(checkpoint, config)
        require_same_text(checkpoint, corpus)
        corpus.check(config)


def set_weights(model: GPT, weights: dict[str, Tensor]) -> None:
    """Give a live model other weights of its own names and shapes. Raises FormatError, with the model unchanged."""
    wanted = {parameter.name: tuple(parameter.shape) for parameter in model.program.layout.trainable}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise FormatError("weights", "they have the model's names and shapes", "others came", "use those of the same run")
    model.forget_cache()
    upload(model, {"params": weights})
