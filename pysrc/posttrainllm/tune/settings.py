"""Settings of a tuning run: configs/tuning.json, the rate for the model at hand, then what was asked for."""

from __future__ import annotations

from ..configs import load
from ..errors import ConfigError
from ..train.settings import RATE_CHANNELS


def tuning_settings(kind: str, model, changes: dict | None = None) -> dict:
    """Changes to training's settings for "sft" or "dpo", to be given to a Trainer, which checks them.

    An adapter, which starts as nothing, has rates of its own. Where only `steps` is given the decay ends with them, and the
    warm-up is a tenth at most: short runs are the rule here.
    """
    table, changes = load("tuning"), dict(changes or {})
    settings = table[kind]
    settings["learning_rate"] *= min(1.0, RATE_CHANNELS / model.config.channels)
    if model.lora is not None:
        settings |= table["adapter"][kind]
    steps = changes.get("steps")
    if type(steps) is int and steps > 0:
        settings["decay_steps"] = steps
        settings["warmup_steps"] = min(settings["warmup_steps"], steps // 10)
    return settings | changes


def require(kind: str, rows, wanted: type, what: str) -> None:
    """Raise ConfigError where `rows` are not of the kind that this tuning learns from: the others would teach something else, or nothing."""
    if not isinstance(rows, wanted):
        raise ConfigError(
            kind, f"it learns from pt.{wanted.__name__}: {what}", f"{type(rows).__name__} came",
            {"sft": "give pt.dpo the preferences, or make pt.Pairs of the answers to learn", "dpo": "give pt.sft the pairs, or make pt.Preferences"}[kind],
        )  # fmt: skip
