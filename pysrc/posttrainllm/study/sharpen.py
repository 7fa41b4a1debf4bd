"""How the logit lens sharpens over training: the same text through the snapshots that a run kept (store/snapshots.py)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, DataError, StoreCorruptError
from ..model.memory import RESERVE_BYTES
from ..model.program import Program
from ..ops.lazy import np
from ..store.buffers import Tensor
from ..store.runs import Run
from ..train.files import hold_run
from ..train.state import model_of, set_weights
from ..waiting import now
from .lens import MOST_LENS_BYTES, _one, _residuals, logit_lens_async
from .passes import build, padded
from .picture import table


@dataclass(frozen=True)
class Sharpening:
    """Steps S by layers (the embedding, then each block). loss_nats [S,L+1]: mean -ln of the probability that the lens gives the tokens
    that came; probability [S,L+1]: its mean. damaged: steps whose snapshot fails its checksum, left out."""

    steps: list[int]
    layers: list[str]
    loss_nats: object
    probability: object
    damaged: list[int]

    def __str__(self) -> str:
        rows = [(name, *(f"{float(each):.2f}" for each in self.loss_nats[:, at])) for at, name in enumerate(self.layers)]
        return table(("loss, nats", *(f"step {step:,}" for step in self.steps)), rows)

    def to_dict(self) -> dict:
        """{"steps", "layers", "damaged", "arrays": {"loss_nats", "probability"}}."""
        arrays = {name: getattr(self, name).astype(np.float32) for name in ("loss_nats", "probability")}
        return {"steps": self.steps, "layers": self.layers, "damaged": self.damaged, "arrays": arrays}


async def over_async(model, states: Iterable, text) -> Sharpening:
    """The lens over (step, weights()) in turn, on a model for nothing else: its weights are overwritten. Weights of a snapshot that
    fails its checksum are left out. Raises DataError, where the text has no token that came next, FormatError."""
    tokens = _one(model, text)
    require_next(tokens)
    steps, losses, shares, layers, damaged = [], [], [], [], []
    for step, weights in states:
        try:
            set_weights(model, weights())
        except StoreCorruptError:
            damaged.append(step)
            continue
        found = await logit_lens_async(model, tokens, 1)
        steps.append(step)
        losses.append(found.loss_nats)
        shares.append(found.probability[:, :-1].mean(1))
        layers = found.layers
    shape = (len(steps), len(layers))
    return Sharpening(steps, layers, np.array(losses).reshape(shape), np.array(shares).reshape(shape), damaged)


def require_next(tokens) -> None:
    """Raise DataError for tokens of which none came after another."""
    if len(tokens) < 2:
        raise DataError("study", "a text of two tokens or more, so that one came next", f"{len(tokens)} came", "lengthen it")


def states_of(run: Run, before: int) -> list:
    """(step, weights()) of the snapshots of an open run that were taken before a step; later ones are of steps not done again yet."""
    return [(step, lambda step=step: run.snapshots.load(step)) for step in run.snapshots.steps() if step < before]


def need_bytes(config, time: int) -> int:
    """What a machine for `over_async` holds, for a text of `time` tokens."""
    program, wide = Program(config, False), padded(time, config.context)
    rows = tuple(value for _, value in _residuals(config, False))
    most = max(1, MOST_LENS_BYTES // (4 * wide * config.vocabulary))
    sizes = dict(program.region_bytes())
    for first in range(0, len(rows), most):
        for region, size in build(program, 1, wide, frozenset(), frozenset(), rows[first : first + most]).each.plan.region_bytes.items():
            sizes[region] = max(size, sizes.get(region, 0))
    return sum(sizes.values()) + RESERVE_BYTES


async def sharpening_async(run, text, device: str = "auto") -> Sharpening:
    """`sharpening`, for code that awaits."""
    if not isinstance(run, (Run, str, Path)):
        raise ConfigError("study", "a run's folder, or an open Run", f"{type(run).__name__} came", "give one of those")
    with nullcontext(run) if isinstance(run, Run) else hold_run(Path(run)) as held:
        checkpoint = held.load()
        model = model_of(checkpoint, device=device)
        try:
            last: dict[str, Tensor] = checkpoint.weights
            return await over_async(model, [*states_of(held, checkpoint.step), (checkpoint.step, lambda: last)], text)
        finally:
            model.close()


def sharpening(run, text, device: str = "auto") -> Sharpening:
    """How well the lens knew the tokens of a text at each layer of a run, at its snapshots and at its last save.

    `run` is a run's folder (trained with `--snapshots`, or Live(snapshots=…)) or an open Run. Raises DataError, StoreError, and
    ConfigError for the run of an adapter.
    """
    return now(sharpening_async(run, text, device))
