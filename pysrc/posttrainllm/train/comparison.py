"""Runs side by side: their curves over steps, tokens or time, the same figures as a table, and the settings that differ.

    compared = compare_runs(["runs/a", "runs/b"])          # or compare([checkpoint, checkpoint])
    print(compared.table("loss", "tokens"))
    for setting in compared.settings:
        print(setting.label, setting.values)

The page and `posttrainllm runs compare` show what this gives. Nothing here trusts a file: what is no number is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.bits import bits_per_byte
from ..data.tokenizers import facts
from ..errors import ConfigError
from ..store.bits import bytes_per_token
from ..store.checkpoint import Checkpoint
from .settings_table import Setting, differing

MOST_RUNS, MOST_POINTS, TABLE_ROWS = 8, 600, 10
METRICS = {"loss": "loss_nats", "validation": "validation_loss_nats", "rate": "learning_rate"}
ALONG = ("step", "tokens", "seconds")
NATS, BITS = "nats per token", "bits per byte"


@dataclass(frozen=True)
class Curve:
    """One figure of one run: columns of equal length. `tokens` and `seconds` are empty where the run does not say them."""

    step: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def along(self, name: str) -> list:
        """The column that is the horizontal axis: "step", "tokens" or "seconds"."""
        return getattr(self, name)

    def at(self, name: str, place: float) -> float | None:
        """The value at or last before `place`; None before the first and after the last."""
        column = self.along(name)
        if not column or place > column[-1] or place < column[0]:
            return None
        return self.value[max(index for index, each in enumerate(column) if each <= place)]


@dataclass(frozen=True)
class Table:
    """`places` on the horizontal axis, and one row of values for each (one value a run, None where it has none there); `ends` are
    the runs' last values."""

    along: str
    places: list[float]
    rows: list[list[float | None]]
    ends: list[float | None]


@dataclass(frozen=True)
class Compared:
    """`names` of the runs, their `curves` by metric ("loss" is a running mean), `unit` of the losses, `settings` that differ, and
    `along`: the axes that every run has figures for. `notes` are sentences on what to mind."""

    names: list[str]
    steps: list[int]
    curves: dict[str, list[Curve]]
    unit: str
    settings: list[Setting]
    along: list[str]
    notes: list[str]

    def table(self, metric: str = "loss", along: str = "step") -> Table:
        """The figures of a chart at some ten places. ConfigError where there is no such metric, or not every run has that axis."""
        if metric not in METRICS:
            raise ConfigError("compare", f"the figure is one of {', '.join(METRICS)}", f"{metric!r} came")
        if along not in self.along:
            raise ConfigError("compare", f"these runs have {', '.join(self.along)} to go along", f"{along!r} came")
        curves = self.curves[metric]
        last = max((curve.along(along)[-1] for curve in curves if curve.along(along)), default=0)
        places = _places(last, along != "seconds")
        rows = [[curve.at(along, place) for curve in curves] for place in places]
        kept = [(place, row) for place, row in zip(places, rows, strict=True) if any(value is not None for value in row)]
        ends = [curve.value[-1] if curve.value else None for curve in curves]
        return Table(along, [place for place, _ in kept], [row for _, row in kept], ends)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with every table."""
        return {
            "names": self.names,
            "steps": self.steps,
            "curves": {metric: [vars(curve) for curve in curves] for metric, curves in self.curves.items()},
            "unit": self.unit,
            "settings": [vars(setting) for setting in self.settings],
            "along": self.along,
            "notes": self.notes,
            "tables": {metric: {along: vars(self.table(metric, along)) for along in self.along} for metric in METRICS},
        }


def compare_runs(paths: Iterable[str | Path]) -> Compared:
    """Compare runs' folders or exported files. ConfigError for fewer than 2 or more than 8; StoreError, FormatError as opening has them."""
    from .files import opened

    with ExitStack() as stack:
        return compare([stack.enter_context(opened(path)) for path in paths])


def compare(checkpoints: Sequence[Checkpoint]) -> Compared:
    """Compare 2 to 8 saved runs. ConfigError for another number."""
    if not 2 <= len(checkpoints) <= MOST_RUNS:
        raise ConfigError("compare", f"2 to {MOST_RUNS} runs are compared", f"{len(checkpoints)} came", "choose others")
    unit, notes = NATS, []
    if len({facts(each.tokenizer)["sha256"] for each in checkpoints}) > 1:
        if all(bytes_per_token(each, name) for each in checkpoints for name in ("bytes_per_token", "evaluated_bytes_per_token")):
            unit = BITS
            notes.append("These runs read their text in different tokens, so their losses are told in bits per byte, which compare.")
        else:
            notes.append("These runs read their text in different tokens: their losses per token do not compare.")
    if len({each.corpus.get("sha256") for each in checkpoints if isinstance(each.corpus.get("sha256"), str)}) > 1:
        notes.append("These runs learn different texts: a lower loss may only mean an easier text.")
    curves = {metric: [_curve(each, metric, unit) for each in checkpoints] for metric in METRICS}
    along = [name for name in ALONG if name == "step" or all(curve.along(name) for curve in curves["loss"] if curve.value)]
    empty = [each.name for each, curve in zip(checkpoints, curves["loss"], strict=True) if not curve.value]
    if empty:
        notes.append(f"Nothing to draw: {', '.join(empty)} has no history of steps.")
    return Compared([each.name for each in checkpoints], [each.step for each in checkpoints], curves, unit, differing(checkpoints), along, notes)


def _curve(checkpoint: Checkpoint, metric: str, unit: str) -> Curve:
    key, rows = METRICS[metric], []
    for row in checkpoint.history:
        step, value = row.get("step"), row.get(key)
        if type(step) is int and 0 <= step < 1 << 53 and _number(value) and (not rows or step > rows[-1][0]):
            rows.append((step, row.get("seconds"), float(value)))
    if metric != "rate" and unit == BITS:
        each = bytes_per_token(checkpoint, "evaluated_bytes_per_token" if metric == "validation" else "bytes_per_token")
        rows = [(step, seconds, bits_per_byte(value, each)) for step, seconds, value in rows]
    if metric == "loss":
        rows = list(_smooth(rows))
    rows = _thin(rows)
    batch, context = (checkpoint.config.get(name) for name in ("batch", "context"))
    each = batch * context if all(type(size) is int and 0 < size < 1 << 20 for size in (batch, context)) else 0
    known = bool(rows) and all(_number(seconds) for _, seconds, _ in rows) and all(a[1] <= b[1] for a, b in zip(rows, rows[1:], strict=False))
    return Curve(
        [step for step, _, _ in rows],
        [step * each for step, _, _ in rows] if each else [],
        [seconds for _, seconds, _ in rows] if known else [],
        [value for _, _, value in rows],
    )


def _smooth(rows: list[tuple]) -> Iterable[tuple]:
    """A running mean over about a fiftieth of the run; shorter at its steep beginning."""
    mean, window = None, max(3, len(rows) // 50)
    for index, (step, seconds, value) in enumerate(rows):
        mean = value if mean is None else mean + max(1 / window, 1 / (1 + index / 6)) * (value - mean)
        yield step, seconds, mean


def _thin(rows: list[tuple]) -> list[tuple]:
    """Some of the rows, evenly, the last one among them."""
    every = -(-len(rows) // MOST_POINTS) or 1
    return rows[::-1][::every][::-1]


def _places(last: float, whole: bool) -> list[float]:
    """About ten round places up to `last`, and `last` itself."""
    if last <= 0:
        return []
    rough = last / TABLE_ROWS
    power = 10.0 ** math.floor(math.log10(rough))
    every = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * 0.999)
    every = max(1, round(every)) if whole else every
    found = [every * at for at in range(1, TABLE_ROWS + 1) if every * at < last]
    return [*found, last]


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
