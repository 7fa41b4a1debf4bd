"""What runs were made with, in words, and where they differ: model, training, text, tokenizer, engine, saving, adapter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..data.tokenizers import facts
from ..store.checkpoint import Checkpoint
from .moments import kind_of

LABELS = {
    "layers": "Layers", "channels": "Width", "heads": "Heads", "context": "Context", "batch": "Batch", "hidden": "Hidden width",
    "steps": "Steps", "learning_rate": "Learning rate", "minimum_learning_rate_fraction": "Lowest rate, of the peak", "warmup_steps": "Warm-up steps",
    "decay_steps": "Decay steps", "beta1": "Beta 1", "beta2": "Beta 2", "eps": "Epsilon", "weight_decay": "Weight decay", "clip": "Gradient clip",
    "seed": "Seed", "validation_fraction": "Validation share", "evaluate_every_steps": "Steps between evaluations",
    "evaluation_tokens": "Tokens of an evaluation", "micro_batches": "Parts of a batch", "recompute": "Layers computed again", "moments": "AdamW's moments",
}  # fmt: skip
GROUPS = ("Model", "Training", "Text", "Tokenizer", "Engine", "Saving memory", "Adapter")
LONGEST, MOST = 120, 200


@dataclass(frozen=True)
class Setting:
    """One that differs: its group, its name in words, and each run's value as text ("" where the run does not say)."""

    group: str
    label: str
    values: list[str]


def differing(checkpoints: Sequence[Checkpoint]) -> list[Setting]:
    """The settings in which the runs are not all alike, in the order of GROUPS."""
    each = [settings_of(checkpoint) for checkpoint in checkpoints]
    keys = sorted(dict.fromkeys(key for settings in each for key in settings), key=lambda key: GROUPS.index(key[0]))
    found = [Setting(group, label, [settings.get((group, label), "") for settings in each]) for group, label in keys]
    return [setting for setting in found if len(set(setting.values)) > 1][:MOST]


def settings_of(checkpoint: Checkpoint) -> dict[tuple[str, str], str]:
    """(group, label) -> value of everything that a run was made with."""
    saving = checkpoint.schedule.get("saving")
    tokenizer, corpus, lora = facts(checkpoint.tokenizer), checkpoint.corpus, checkpoint.adapter.get("lora")
    groups = {
        "Model": {key: value for key, value in checkpoint.config.items() if key != "vocabulary"},
        "Training": checkpoint.training,
        "Text": {"Name": corpus.get("name"), "Bytes": corpus.get("bytes"), "Hash": _short(corpus.get("sha256"))},
        "Tokenizer": {"Kind": tokenizer.get("name"), "Tokens": tokenizer.get("vocabulary"), "Hash": _short(tokenizer.get("sha256"))},
        "Engine": {
            "Engine": {"cpu": "CPU", "webgpu": "GPU"}.get(str(checkpoint.schedule.get("engine")), checkpoint.schedule.get("engine")),
            "Precision": checkpoint.schedule.get("precision", "f32"),
            "Version": checkpoint.app_version,
        },
        "Saving memory": {"micro_batches": 1, "recompute": 0} | (saving if isinstance(saving, dict) else {}) | {"moments": kind_of(checkpoint)},
        "Adapter": lora if isinstance(lora, dict) else {},
    }
    return {
        (group, LABELS.get(key, key.replace("_", " ").capitalize()[:60])): _text(value)
        for group, values in groups.items()
        for key, value in values.items()
        if value not in (None, "")
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 1 << 63 else "a huge number"
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:LONGEST]


def _short(sha256: Any) -> str | None:
    return sha256[:12] if isinstance(sha256, str) else None
