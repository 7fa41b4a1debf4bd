"""Settings of an improvement: configs/continual.json with changes, checked. Every bound and its reason is in docs/corrections.md."""

from __future__ import annotations

from ...configs import load
from ...errors import ConfigError

_RANGES = {
    "curate": {
        "held_out_fraction": (float, 0.05, 0.5), "least_learned": (int, 1, 100_000), "least_held_out": (int, 1, 100_000),
        "least_preferences": (int, 1, 100_000), "near_duplicate": (float, 0.3, 1.0), "seed": (int, 0, 2**63 - 1),
    },
    "improve": {
        "start": (str, ("base", "version"), None), "replay_share": (float, 0.0, 0.9), "sft_steps": (int, 1, 1_000_000),
        "sft_learning_rate": (float, 1e-9, 1.0), "dpo_steps": (int, 0, 1_000_000), "dpo_learning_rate": (None, 1e-9, 1.0),
        "beta": (float, 1e-6, 1e3), "seed": (int, 0, 2**63 - 1),
    },
    "gate": {
        "held_out_margin_nats": (float, 0.0, 100.0), "held_out_wins": (float, 0.0, 1.0),
        "held_out_above_base_nats_per_byte": (float, 0.0, 100.0), "preference_accuracy": (float, 0.0, 1.0), "base_rise_nats": (float, 0.0, 100.0),
        "probe_rise_nats": (float, 0.0, 100.0), "probe_worst_rise_nats": (float, 0.0, 100.0), "recital_rise": (float, 0.0, 1.0),
        "copied_rise_bytes": (float, 0.0, 4096.0), "answers_rise_bytes": (float, 0.0, 4096.0),
    },
    "measure": {
        "base_tokens": (int, 64, 1 << 30), "probe_passages": (int, 1, 4096), "memorise_prefixes": (int, 8, 1000),
        "memorise_bytes": (int, 1024, 1 << 30),
    },
}  # fmt: skip
PARTS = (*_RANGES, "adapter")


def part_settings(part: str, changes: dict | None = None) -> dict:
    """One part of configs/continual.json ("curate", "improve", "gate" or "measure") with changes. Raises ConfigError."""
    settings, ranges = load("continual")[part], _RANGES[part]
    for name, value in (changes or {}).items():
        if name not in ranges:
            raise ConfigError(f"improve, {part}", f"a setting is one of {', '.join(ranges)}", f"{name!r} came", "correct the name")
        settings[name] = value
    for name, (kind, low, high) in ranges.items():
        value = settings[name]
        if kind is str:
            if value not in low:
                raise ConfigError(f"improve, {part}", f"{name} is {' or '.join(low)}", f"{value!r} came", "choose one of them")
            continue
        if kind is None and value is None:
            continue
        right = isinstance(value, int) if kind is int else isinstance(value, (int, float))
        if isinstance(value, bool) or not right or not low <= value <= high:
            raise ConfigError(f"improve, {part}", f"{name} is a {'whole ' if kind is int else ''}number from {low:g} to {high:g}", f"{value!r} came", "change it")
    return settings


def divided(changes: dict) -> dict[str, dict]:
    """Changes by their part: names of "improve" as they are, a dict under "curate", "gate", "measure" or "adapter". Raises ConfigError."""
    found = {part: {} for part in PARTS}
    for name, value in changes.items():
        if name in PARTS and name != "improve":
            if not isinstance(value, dict):
                raise ConfigError("improve", f"{name} holds settings by name", f"{value!r} came", "give a dict")
            found[name] = dict(value)
        else:
            found["improve"][name] = value
    return found
