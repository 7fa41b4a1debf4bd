"""What a model holds on an engine: as it will be, before anything is made, and as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import ConfigError, DeviceLimitError
from .choosing import cheapest
from .config import GPTConfig
from .lora import LoRAConfig
from .memory import available_bytes
from .program import Program
from .saving import PLAIN, Saving
from .steps import row_bytes

Predictor = Callable[..., dict[str, int]]
"""A machine's (base.py): (tapes, region_bytes, row_bytes) to bytes by kind."""


def predicted(program: Program, predictor: Predictor) -> dict[str, int]:
    """Bytes by kind, and in all, that the engine will hold when the program's model trains (one for writing only: writes).

    Raises DeviceLimitError where a GPU cannot hold or bind something.
    """
    tapes = [each.tape for each in (program.initial, program.evaluation, program.step) if each is not None]
    return split(program, predictor(tapes, program.region_bytes(), row_bytes(program.step) if program.step else 0))


def split(program: Program, found: dict[str, int]) -> dict[str, int]:
    """Of an engine's activations by what they are: kept from a step's forward for its backward, or only passing through (scratch), in
    the shares that the plan has."""
    need, kept = program.region_bytes(), program.step.kept_bytes if program.step else 0
    passing = found["activations_bytes"] - need["cache"]
    passing -= passing * kept // max(1, need["arena"])
    changed = {"activations_bytes": found["activations_bytes"] - passing, "scratch_bytes": found["scratch_bytes"] + passing}
    return found | changed


def require_room(program: Program, machine) -> None:
    """Raise before anything is made where a GPU has not the room: DeviceLimitError for what must lie in one piece; ConfigError where a
    CPU plays the GPU, and its memory is too small (what a real one has nobody says)."""
    need, limit = predicted(program, machine.predictor)["total_bytes"], available_bytes()
    if machine.software and limit is not None and need > limit:
        config = program.config
        raise ConfigError(
            "model", f"weights, gradients, moments and activations fit the {limit:,} bytes that can be had",
            f"{config.parameter_count():,} parameters with a batch of {config.batch} need {need:,}",
            "choose a smaller model or batch, or memory_bytes, which chooses what saves memory", code="E-CONFIG-PLAN",
        )


def choose_on(
    machine, config: GPTConfig, lora: LoRAConfig | None, limit_bytes: int | None, start: Saving = PLAIN, parts: Sequence[int] = (), blocks: int | None = None
) -> Saving:
    """choosing.choose_saving by what this machine would hold (without a limit: can hold). Raises ConfigError where nothing fits; closes
    the machine then."""
    for each in parts:
        Saving(each, blocks or 0).require_fit(config)

    def fits(saving: Saving) -> bool:
        try:
            need = predicted(Program(config, True, lora, saving), machine.predictor)["total_bytes"]
        except DeviceLimitError:
            return False
        return limit_bytes is None or need <= limit_bytes

    found = cheapest(config, fits, start, parts, blocks)
    if found is None:
        machine.close()
        raise ConfigError(
            "model", "training fits this GPU" if limit_bytes is None else f"training takes no more than {limit_bytes:,} bytes of this GPU", "none of what saves memory is enough",
            "choose a smaller model, batch or context", code="E-CONFIG-PLAN",
        )
    return found
