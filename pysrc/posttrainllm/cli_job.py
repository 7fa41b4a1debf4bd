"""What `posttrainllm train` was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .cli_memory import Asked
from .model.saving import Saving


@dataclass
class Job:
    """What was asked for. `settings` and `sizes` hold only what was given; None elsewhere means the default or the run's."""

    data: str | None = None
    preset: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    device: str = "auto"
    threads: int | None = None
    isa: str | None = None
    precision: str | None = None
    out: Path | None = None
    resume: bool = False
    export: Path | None = None
    name: str | None = None
    save_seconds: float = 60.0
    sample_seconds: float = 0.0
    sample_prompt: str = "\n"
    as_json: bool = False
    tokenizer: Path | None = None
    bpe: int | None = None
    snapshots: bool = False
    engine: str = "native"
    parallel: str = "ddp"
    asked: Asked = Asked()
    source: Path | None = None

    @property
    def saving(self) -> Saving:
        """For an engine that leaves nothing to choose. Raises ConfigError."""
        return self.asked.plainly()
