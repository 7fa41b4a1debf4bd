"""A run as a Checkpoint and back: 100 steps = 50 + save + load + 50, bit for bit on the CPU engine.

Everything in a checkpoint is checked against the model's own layout before a single weight of a live model changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from .. import __version__
from ..backends.base import Machine
from ..data.corpus import Corpus
from ..data.tokenizers import ByteTokenizer, from_dict
from ..errors import ConfigError, DataError, FormatError
from ..model.config import GPTConfig
from ..model.gpt import Layout
from ..model.live import GPT
from ..model.program import Program
from ..store.buffers import CHUNK_BYTES, Tensor, in_python, nbytes, pieces
from ..store.checkpoint import Checkpoint
from ..store.strict_json import quote
from .settings import training_settings
from .trainer import Trainer

MOMENTS = ("m", "v")
LOSS_SCALES = tuple(2.0**n for n in range(25))
"""Those that shaders/guard.wgsl reaches."""


def checkpoint_of(trainer: Trainer, name: str, created: str | None = None) -> Checkpoint:
    """Everything the run is, now. `created` is ISO 8601 in UTC, default this second.

    The tensors are windows on the live model, not copies: save the checkpoint before the next step.
    """
    model, now = trainer.model, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Checkpoint(
        name=name,
        config=model.config.to_dict(),
        step=trainer.step,
        tokenizer=model.tokenizer.to_dict(),
        weights=tensors_of(model, "params"),
        m=tensors_of(model, "m"),
        v=tensors_of(model, "v"),
        training=dict(trainer.settings),
        schedule={
            "seconds": trainer.seconds,
            "best_loss_nats": trainer.best_loss_nats,
            "validation_loss_nats": trainer.validation_loss_nats,
        }
        | _precision_of(model.machine),
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


def _precision_of(machine: Machine) -> dict:
    """What half precision adds to a run's schedule: that it is, and its loss scale. Nothing in single precision."""
    if getattr(machine, "precision", "f32") != "f16":
        return {}
    scale, good_steps = machine.loss_scale()
    return {"precision": "f16", "loss_scale": scale, "good_steps": good_steps}


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
        weights=tensors_of(model, "params"),
        created=now,
        updated=now,
        app_version=__version__,
    )


def tensors_of(model: GPT, region: str) -> dict[str, Tensor]:
    """A region's arrays by weight name ("params", "m" or "v"), as windows on the engine's memory."""
    shapes = {parameter.name: parameter.shape for parameter in model.program.layout.parameters}
    return {name: Tensor("F32", shape, model.weight_view(name, region)) for name, shape in shapes.items()}


def model_of(
    checkpoint: Checkpoint,
    training: bool = False,
    *,
    device: str = "auto",
    threads: int | None = None,
    isa: str | None = None,
    precision: str = "f32",
    machine: Machine | None = None,
) -> GPT:
    """The checkpoint's model, on `machine` or on a new one. `training=True` brings AdamW's moments too.

    Raises FormatError when config or tensors are not a model's, DataError for an unknown tokenizer, DeviceError.
    """
    config, tokenizer = _checked(checkpoint, training)
    program = Program(config, training)
    model = GPT.on(program, device, threads, isa, precision) if machine is None else GPT(config, machine, program)
    try:
        model.tokenizer = tokenizer
        _fill(model, checkpoint, training)
    except BaseException:
        if machine is None:
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
) -> Trainer:
    """The run, ready for its next step, on `model` (a live one of the same sizes), on `machine`, or on a new one.

    Without a precision a GPU goes on in the run's own. Where that is half precision, so does its loss scale.

    Raises DataError when `corpus` is not the text it was trained on, FormatError when the checkpoint is not a whole run;
    a live `model` is then unchanged.
    """
    config, tokenizer = _checked(checkpoint, True)
    settings, cursor, standing = _run_state(checkpoint, config)
    _require_same_text(checkpoint, corpus)
    corpus.split_at(settings["validation_fraction"]).check(config)
    if model is None:
        precision = precision or (saved_precision(checkpoint) if device == "webgpu" else "f32")
        model = model_of(
            checkpoint, True, device=device, threads=threads, isa=isa, precision=precision, machine=machine
        )
    elif model.config != config or model.program.step is None:
        raise ConfigError(
            "resume",
            f"the live model has the run's sizes, {config.to_dict()}, and room to train",
            f"{model.config.to_dict()} came",
            "make another model",
        )
    else:
        model.tokenizer = tokenizer
        _fill(model, checkpoint, True)
    trainer = Trainer(model, corpus, settings, step=checkpoint.step, cursor=cursor)
    trainer.history = [dict(row) for row in checkpoint.history]
    if standing["loss_scale"] and trainer.may_skip:
        model.machine.set_loss_scale(standing["loss_scale"], standing["good_steps"] or 0.0)
    trainer.seconds = standing["seconds"] or 0.0
    trainer.validation_loss_nats = standing["validation_loss_nats"]
    best = standing["best_loss_nats"]
    trainer.best_loss_nats = math.inf if best is None else best
    return trainer


def check_run(checkpoint: Checkpoint, corpus: Corpus | None) -> None:
    """All that `trainer_of` (with a corpus, for a run that can go on) or `model_of` will ask, before anything is made for it."""
    going_on = corpus is not None and checkpoint.resumable
    config, _ = _checked(checkpoint, going_on)
    if going_on:
        _run_state(checkpoint, config)
        _require_same_text(checkpoint, corpus)
        corpus.check(config)


def _checked(checkpoint: Checkpoint, training: bool) -> tuple[GPTConfig, ByteTokenizer]:
    """Config and tokenizer, with every tensor seen to have the layout's name, dtype and shape."""
    try:
        config = GPTConfig.from_dict(checkpoint.config)
    except ConfigError as error:
        raise FormatError(
            f"run {quote(checkpoint.name)}",
            "its config is a model's",
            str(error),
            "export the run again",
            code="E-FORMAT-METADATA",
        ) from error
    tokenizer = from_dict(checkpoint.tokenizer)
    if tokenizer.vocabulary > config.vocabulary:
        _refuse(
            "its tokenizer has at most the model's vocabulary", f"{tokenizer.vocabulary} against {config.vocabulary}"
        )
    shapes = {parameter.name: parameter.shape for parameter in Layout.of(config).parameters}
    groups = {"": checkpoint.weights}
    if training:
        groups |= {"adamw.m.": checkpoint.m, "adamw.v.": checkpoint.v}
    for prefix, group in groups.items():
        if prefix and not group:
            _refuse(
                "a run that goes on holds AdamW's moments", "it holds weights only", "write with it, or start a new run"
            )
        for name in shapes.keys() - group.keys():
            _refuse(f"it holds {prefix}{name}", "it is missing")
        for name in group.keys() - shapes.keys():
            _refuse("it holds no tensor that the model has not", f"{quote(prefix + name)} came")
        for name, shape in shapes.items():
            tensor = group[name]
            if tensor.dtype != "F32" or tuple(tensor.shape) != shape:
                _refuse(
                    f"{prefix}{name} is F32 {list(shape)}", f"it is {quote(tensor.dtype)} {quote(list(tensor.shape))}"
                )
            if tensor.nbytes != 4 * math.prod(shape):
                _refuse(f"{prefix}{name} has {4 * math.prod(shape):,} bytes", f"it has {tensor.nbytes:,}")
    return config, tokenizer


def _run_state(checkpoint: Checkpoint, config: GPTConfig) -> tuple[dict, dict[str, int], dict[str, float | None]]:
    """Settings, cursor and standing (seconds, losses) out of the metadata, or FormatError."""
    try:
        settings = training_settings(checkpoint.training)
    except ConfigError as error:
        _refuse_field("its training settings are in range", str(error))
    missing = settings.keys() - checkpoint.training.keys()
    if missing:  # a default may have changed since; the run must not
        _refuse_field(f"its training settings name {', '.join(settings)}", f"{', '.join(sorted(missing))} missing")
    cursor = checkpoint.cursor
    if cursor.keys() != {"epoch", "window"} or not all(type(n) is int and 0 <= n < 1 << 53 for n in cursor.values()):
        _refuse_field("its cursor has an epoch and a window, from 0 up", f"{quote(cursor)} came")
    standing = {}
    scale = checkpoint.schedule.get("loss_scale")
    if scale is not None and scale not in LOSS_SCALES:
        _refuse_field("its loss scale is a power of two from 1 to 2^24", f"{quote(scale)} came")
    for name in ("seconds", "best_loss_nats", "validation_loss_nats", "loss_scale", "good_steps"):
        value = checkpoint.schedule.get(name)
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
            _refuse_field(f"its {name} is a number", f"{quote(value)} came")
        standing[name] = value
    for row in checkpoint.history:
        step = row.get("step")
        if type(step) is not int or not 0 <= step <= checkpoint.step:
            _refuse_field(f"its history tells of steps 0 to {checkpoint.step:,}", f"step {quote(step)} came")
        if not all(value is None or type(value) in (int, float) for value in row.values()):
            _refuse_field("its history holds numbers", f"{quote(row)} came")
    return settings, dict(cursor), standing


def _require_same_text(checkpoint: Checkpoint, corpus: Corpus) -> None:
    sha256 = checkpoint.corpus.get("sha256")
    if sha256 != corpus.sha256:
        name = checkpoint.corpus.get("name")
        raise DataError(
            "resume",
            f"a run goes on with the text it began with, {quote(name)} (sha256 {ascii(sha256)[:80]})",
            f"{corpus.name!r} (sha256 {corpus.sha256!r}) came",
            "choose that text, or start a new run with this one",
        )


def _fill(model: GPT, checkpoint: Checkpoint, training: bool) -> None:
    """Copy the tensors into the engine, at most CHUNK_BYTES at a time: Python never holds a second copy of a model."""
    model.forget_cache()
    groups = {"params": checkpoint.weights}
    if training:
        groups |= {"m": checkpoint.m, "v": checkpoint.v}
    scratch = bytearray(min(CHUNK_BYTES, max(tensor.nbytes for tensor in checkpoint.weights.values())))
    for region, group in groups.items():
        for name in model.weight_names():
            start, _ = model.weight_address(name, region)
            for piece in _python_pieces(group[name].data, scratch):
                model.machine.upload(start, piece)
                start += piece.nbytes


def _python_pieces(data: Any, scratch: bytearray) -> Iterator[memoryview]:
    for piece in pieces(data):
        yield in_python(piece, scratch if nbytes(piece) <= len(scratch) else bytearray(nbytes(piece)))


def _refuse(rule: str, came: str, remedy: str = "choose a file that this program saved") -> NoReturn:
    raise FormatError("the run", rule, came, remedy, code="E-FORMAT-TENSOR")


def _refuse_field(rule: str, came: str) -> NoReturn:
    raise FormatError("the run", rule, came, "export the run again", code="E-FORMAT-METADATA")
