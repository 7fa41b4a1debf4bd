"""The sizes of a GPT, checked; and the presets."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from ..configs import load
from ..errors import ConfigError

LIMITS = {"layers": 256, "channels": 16384, "heads": 256, "context": 2048, "vocabulary": 1 << 20, "batch": 4096}


@dataclass(frozen=True)
class GPTConfig:
    """layers L, channels C, heads H (dividing C), context T in tokens, vocabulary V, batch B (rows of one step)."""

    layers: int
    channels: int
    heads: int
    context: int
    vocabulary: int = 256
    batch: int = 16

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
                raise ConfigError("model", f"{name} is a whole number from 1 to {limit:,}", f"{value!r} came", "change it")
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
    def hidden(self) -> int:
        """F, width of the MLP's inner layer: 4·C."""
        return 4 * self.channels

    def parameter_count(self) -> int:
        """V·d + T·d + L(12d² + 13d) + 2d."""
        d = self.channels
        return (self.vocabulary + self.context) * d + self.layers * (12 * d * d + 13 * d) + 2 * d

    def to_dict(self) -> dict[str, int]:
        """Plain JSON."""
        return asdict(self)

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
        unknown, missing = set(settings) - known, {"layers", "channels", "heads", "context"} - set(settings)
        if unknown or missing:
            what = ", ".join(sorted(unknown)) or "nothing unknown"
            raise ConfigError(
                "model", f"settings are {', '.join(sorted(known))}", f"{what} came and {len(missing)} are missing", "correct the names"
            )
        return cls(**settings)

    def with_batch(self, batch: int) -> GPTConfig:
        """The same model with another batch."""
        return replace(self, batch=batch)
