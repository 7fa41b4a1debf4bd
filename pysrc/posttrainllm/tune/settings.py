"""Settings of a tuning run: configs/tuning.json, the rate for the model at hand, then what was asked for."""

from __future__ import annotations

from ..configs import load
from ..train.settings import RATE_CHANNELS


def tuning_settings(kind: str, model, changes: dict | None = None) -> dict:
    """Changes to training's settings for "sft" or "dpo", to be given to a Trainer, which checks them.

    An adapter, which starts as nothing, has a rate of its own. Where only `steps` is given the decay ends with them, and the
    warm-up is a tenth at most: short runs are the rule here.
    """
    table, changes = load("tuning"), dict(changes or {})
    settings = table[kind]
    settings["learning_rate"] *= min(1.0, RATE_CHANNELS / model.config.channels)
    if model.lora is not None:
        settings |= table["adapter"]
    steps = changes.get("steps")
    if type(steps) is int and steps > 0:
        settings["decay_steps"] = steps
        settings["warmup_steps"] = min(settings["warmup_steps"], steps // 10)
    return settings | changes
