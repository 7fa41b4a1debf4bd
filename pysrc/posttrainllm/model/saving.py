"""Saving: what a run gives up in time, or in digits of AdamW's moments, to need less memory. Loss and gradients stay the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..errors import ConfigError
from .config import GPTConfig

MOMENTS = ("f32", "bf16", "8bit")
"""How AdamW's moments may be kept."""


@dataclass(frozen=True)
class Saving:
    """micro_batches K: a batch goes through in so many parts, whose gradients are added up (K divides the batch).

    recompute N: of the first N blocks only the input is kept; what their backward needs is computed again before it.
    moments: "f32", "bf16" or "8bit". Raises ConfigError.
    """

    micro_batches: int = 1
    recompute: int = 0
    moments: str = "f32"

    def __post_init__(self) -> None:
        for name, least in (("micro_batches", 1), ("recompute", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError("saving", f"{name} is a whole number from {least} on", f"{value!r} came", "change it")
        if self.moments not in MOMENTS:
            raise ConfigError("saving", f"moments are one of {', '.join(MOMENTS)}", f"{self.moments!r} came", "choose one of those")

    def require_fit(self, config: GPTConfig) -> None:
        """Raise ConfigError where a model has no such choice: parts that do not divide its batch, more blocks than it has."""
        if config.batch % self.micro_batches:
            rule = f"micro_batches divides the batch of {config.batch}"
            raise ConfigError("saving", rule, f"{self.micro_batches} came", f"use {_nearest(config.batch, self.micro_batches)}")
        if self.recompute > config.layers:
            raise ConfigError(
                "saving", f"recompute is at most the model's {config.layers} blocks", f"{self.recompute} came", f"use {config.layers}"
            )

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict) -> Saving:
        """From JSON; what is not named is as in a plain run. Raises ConfigError."""
        if not isinstance(settings, dict) or settings.keys() - cls.__dataclass_fields__.keys():
            known = ", ".join(cls.__dataclass_fields__)
            raise ConfigError("saving", f"it is a table of {known}", f"{settings!r} came", "correct the names")
        return cls(**settings)


def _nearest(batch: int, asked: int) -> int:
    """The divisor of `batch` that is next to what was asked for, the larger of two that are as near."""
    return min((each for each in range(1, batch + 1) if batch % each == 0), key=lambda each: (abs(each - asked), -each))


PLAIN = Saving()
"""Nothing is saved: what a run is where nobody asked."""
