"""Training settings: the one table of defaults (configs/training.json) with changes, checked."""

from __future__ import annotations

from ..configs import load
from ..errors import ConfigError
from .guard import ON_TROUBLE

_RANGES = {
    "steps": (int, 1, 10_000_000),
    "learning_rate": (float, 0.0, 1.0),
    "minimum_learning_rate_fraction": (float, 0.0, 1.0),
    "warmup_steps": (int, 0, 1_000_000),
    "decay_steps": (int, 1, 10_000_000),
    "beta1": (float, 0.0, 0.9999999),
    "beta2": (float, 0.0, 0.9999999),
    "eps": (float, 1e-30, 1.0),
    "weight_decay": (float, 0.0, 10.0),
    "clip": (float, 0.0, 1e9),
    "seed": (int, 0, 2**63 - 1),
    "validation_fraction": (float, 0.0, 0.5),
    "evaluate_every_steps": (int, 1, 1_000_000),
    "evaluation_tokens": (int, 1, 1 << 30),
}


_CHOICES = {"on_trouble": ON_TROUBLE}

RATE_CHANNELS = 128
"""The width for which the default learning rate was found (docs/log.md, Recipe)."""


def default_learning_rate(channels: int, adapter: bool = False) -> float:
    """The default rate at a width: configs/training.json's up to 128 channels, above it in proportion to 1/channels, as
    maximal update parametrisation has it for AdamW (arXiv 2203.03466). At GPT-2's 768 channels: 5.8e-4.

    With `adapter` that of configs/lora.json in the same way, 1.7e-3 at 768 channels."""
    settings = load("lora")["training"] if adapter else load("training")
    return settings["learning_rate"] * min(1.0, RATE_CHANNELS / channels)


def training_settings(changes: dict | None = None, channels: int | None = None, adapter: bool = False) -> dict:
    """All settings: defaults from configs/training.json, the rate for a model of so many channels, then `changes`.

    With `adapter` the defaults of configs/lora.json come first: what is trained starts as nothing, on a model that is good.
    Raises ConfigError for an unknown name or a value out of range.
    """
    settings = load("training") | (load("lora")["training"] if adapter else {})
    if channels is not None:
        settings["learning_rate"] = default_learning_rate(channels, adapter)
    for name, value in (changes or {}).items():
        if name not in _RANGES and name not in _CHOICES:
            raise ConfigError(
                "training", f"a setting is one of {', '.join((*_RANGES, *_CHOICES))}", f"{name!r} came", "correct the name"
            )
        settings[name] = value
    for name, (kind, low, high) in _RANGES.items():
        value = settings[name]
        right = isinstance(value, int) if kind is int else isinstance(value, (int, float))
        if isinstance(value, bool) or not right or not low <= value <= high:
            raise ConfigError(
                "training",
                f"{name} is a {'whole ' if kind is int else ''}number from {_plain(low)} to {_plain(high)}",
                f"{value!r} came",
                "change it",
            )
    for name, choices in _CHOICES.items():
        if settings[name] not in choices:
            raise ConfigError("training", f"{name} is one of {', '.join(choices)}", f"{settings[name]!r} came", "choose one of those")
    if settings["warmup_steps"] >= settings["decay_steps"]:
        raise ConfigError(
            "training",
            "warmup_steps is smaller than decay_steps",
            f"{settings['warmup_steps']} and {settings['decay_steps']} came",
            "shorten the warm-up",
        )
    return settings


def _plain(bound: float) -> str:
    """10,000,000 rather than 1e+07."""
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
