"""What must hold of a saved run before anything of it is taken over: each check is a FormatError or DataError with its sentence."""

from __future__ import annotations

import math
from typing import NoReturn

from ..data.corpus import Corpus
from ..data.tokenizers import ByteTokenizer, from_dict
from ..errors import ConfigError, DataError, FormatError
from ..model.config import GPTConfig
from ..model.gpt import Layout
from ..model.lora import LoRAConfig
from ..model.moments import KINDS
from ..store.checkpoint import Checkpoint
from ..store.safetensors import DTYPE_BYTES
from ..store.strict_json import quote
from .moments import kind_of, require_scales
from .settings import training_settings

LOSS_SCALES = tuple(2.0**n for n in range(25))
"""Those that shaders/guard.wgsl reaches."""


def checked(checkpoint: Checkpoint, training: bool) -> tuple[GPTConfig, ByteTokenizer, LoRAConfig | None]:
    """Config, tokenizer and adapter settings, with every tensor seen to have the layout's name, dtype and shape. The run of an
    adapter holds the adapter's alone."""
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
    lora = _lora_of(checkpoint)
    shapes = {parameter.name: parameter.shape for parameter in Layout.of(config, lora).trainable}
    groups = {"": (checkpoint.weights, "F32")}
    if training:
        kind = KINDS[kind_of(checkpoint)]
        groups |= {"adamw.m.": (checkpoint.m, kind.dtypes["m"]), "adamw.v.": (checkpoint.v, kind.dtypes["v"])}
    for prefix, (group, dtype) in groups.items():
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
            if tensor.dtype != dtype or tuple(tensor.shape) != shape:
                _refuse(
                    f"{prefix}{name} is {dtype} {list(shape)}", f"it is {quote(tensor.dtype)} {quote(list(tensor.shape))}"
                )
            nbytes = DTYPE_BYTES[dtype] * math.prod(shape)
            if tensor.nbytes != nbytes:
                _refuse(f"{prefix}{name} has {nbytes:,} bytes", f"it has {tensor.nbytes:,}")
    if training:
        require_scales(checkpoint)
    return config, tokenizer, lora


def _lora_of(checkpoint: Checkpoint) -> LoRAConfig | None:
    """The settings of the adapter that a run is of; None for the run of a whole model."""
    about = checkpoint.adapter
    if not about:
        return None
    if about.keys() != {"name", "lora", "base_sha256"} or not all(isinstance(about[key], str) for key in ("name", "base_sha256")):
        _refuse_field("its field adapter has name, lora and base_sha256", f"{quote(about)} came")
    try:
        return LoRAConfig.from_dict(about["lora"])
    except ConfigError as error:
        _refuse_field("its adapter's settings are in range", str(error))


def run_state(checkpoint: Checkpoint, config: GPTConfig) -> tuple[dict, dict[str, int], dict[str, float | None]]:
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


def require_same_text(checkpoint: Checkpoint, corpus: Corpus) -> None:
    sha256 = checkpoint.corpus.get("sha256")
    if sha256 != corpus.sha256:
        name = checkpoint.corpus.get("name")
        raise DataError(
            "resume",
            f"a run goes on with the text it began with, {quote(name)} (sha256 {ascii(sha256)[:80]})",
            f"{corpus.name!r} (sha256 {corpus.sha256!r}) came",
            "choose that text, or start a new run with this one",
        )


def _refuse(rule: str, came: str, remedy: str = "choose a file that this program saved") -> NoReturn:
    raise FormatError("the run", rule, came, remedy, code="E-FORMAT-TENSOR")


def _refuse_field(rule: str, came: str) -> NoReturn:
    raise FormatError("the run", rule, came, "export the run again", code="E-FORMAT-METADATA")
