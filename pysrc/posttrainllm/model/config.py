"""The sizes of a GPT, checked; and the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from ..configs import load
from ..errors import ConfigError

LIMITS = {"layers": 256, "channels": 16384, "heads": 256, "context": 2048, "vocabulary": 1 << 20, "batch": 4096, "hidden": 65536}
ACTIVATIONS = {"gelu_new": "gelu", "gelu": "gelu_erf"}
"""The MLP's nonlinearity, under Hugging Face's names (tanh form, exact form), and the op that does it."""


@dataclass(frozen=True)
class GPTConfig:
    """layers L, channels C, heads H (dividing C), context T in tokens, vocabulary V, batch B (rows of one step).

    tied: the head is the token embedding; else it is a weight of its own, lm_head.weight. activation: of ACTIVATIONS. hidden F: width
    of the MLP's inner layer, 4·C where none is given.
    """

    layers: int
    channels: int
    heads: int
    context: int
    vocabulary: int = 256
    batch: int = 16
    tied: bool = True
    activation: str = "gelu_new"
    hidden: int | None = None

    def __post_init__(self) -> None:
        if self.hidden is None and type(self.channels) is int:
            object.__setattr__(self, "hidden", 4 * self.channels)
        for name, limit in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
                raise ConfigError("model", f"{name} is a whole number from 1 to {limit:,}", f"{value!r} came", "change it")
        if not isinstance(self.tied, bool):
            raise ConfigError("model", "tied is true or false", f"{self.tied!r} came", "change it")
        if self.activation not in list(ACTIVATIONS):
            raise ConfigError("model", f"activation is one of {', '.join(ACTIVATIONS)}", f"{self.activation!r} came", "change it")
        if self.channels % self.heads:
            near = self.channels // self.heads * self.heads or self.heads
            raise ConfigError(
                "model",
                "heads divide channels evenly",
                f"{self.channels} channels over {self.heads} heads came",
                f"use {near} channels, or a number of heads that divides {self.channels}",
            )

    @property
    def head_width(self) -> int:
        """D, channels per head."""
        return self.channels // self.heads

    @property
    def head(self) -> str:
        """The address of the weight [V,C] that the head multiplies by."""
        return "wte.weight" if self.tied else "lm_head.weight"

    def parameter_count(self) -> int:
        """V·d + T·d + L(4d² + 2dF + 9d + F) + 2d, which for F = 4d is V·d + T·d + L(12d² + 13d) + 2d; V·d more for a head of its own."""
        d, f = self.channels, self.hidden
        tables = (self.vocabulary * (1 if self.tied else 2) + self.context) * d
        return tables + self.layers * (4 * d * d + 2 * d * f + 9 * d + f) + 2 * d

    def to_dict(self) -> dict:
        """Plain JSON. What GPT-2 itself has (a tied head, its activation, F = 4·C) is left out, as it always was."""
        usual = {"tied": True, "activation": "gelu_new", "hidden": 4 * self.channels}
        return {name: value for name, value in asdict(self).items() if name not in usual or value != usual[name]}

    @classmethod
    def preset(cls, name: str, **changes: int) -> GPTConfig:
        """A preset by name, with changes. Raises ConfigError for an unknown name."""
        presets = load("presets")
        if name not in presets:
            raise ConfigError("preset", f"one of {', '.join(presets)}", f"{name!r} came", "choose one of those")
        return cls(**presets[name] | changes)

    @classmethod
    def from_dict(cls, settings: dict) -> GPTConfig:
        """From JSON; unknown or missing names are a ConfigError."""
        known = set(cls.__dataclass_fields__)
        if not isinstance(settings, dict):
            raise ConfigError("model", f"settings are {', '.join(sorted(known))}", f"a {type(settings).__name__} came", "give them by name")
        unknown, missing = set(settings) - known, {"layers", "channels", "heads", "context"} - set(settings)
        if unknown or missing:
            what = ", ".join(str(name)[:40] for name in sorted(unknown)[:8]) or "nothing unknown"
            raise ConfigError(
                "model", f"settings are {', '.join(sorted(known))}", f"{what} came and {len(missing)} are missing", "correct the names"
            )
        return cls(**settings)

    def with_batch(self, batch: int) -> GPTConfig:
        """The same model with another batch."""
        return replace(self, batch=batch)
