"""Small pictures in plain text: heat maps, bars and tables."""

from __future__ import annotations

from ..compile.explain import Table, text
from ..ops.lazy import np

SHADES = " ·░▒▓█"
VISIBLE = {ord("\n"): "⏎", ord("\t"): "⇥", ord(" "): "␣"}


def table(columns: tuple[str, ...], rows: list[tuple], title: str = "") -> str:
    """Aligned columns under their names."""
    made = text(Table(title, columns, tuple(rows)))
    return (made if title else made.split("\n", 2)[2]).rstrip("\n")


def label(token: str, most: int = 12) -> str:
    """A token's text on one line, no longer than `most`."""
    plain = "".join(each if each.isprintable() else repr(each)[1:-1] for each in token.translate(VISIBLE))
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def shade(value: float, least: float, most: float) -> str:
    """A character as dark as `value` lies between the two."""
    if not np.isfinite(value):
        return "?"
    part = (value - least) / (most - least) if most > least else 0.0
    return SHADES[int(round(min(1.0, max(0.0, part)) * (len(SHADES) - 1)))]


def heat(values, rows: list[str], most: float | None = None, wide: int = 1) -> list[str]:
    """Lines of a heat map of values [rows, columns]: blank for 0 or less, full for `most` (default the largest)."""
    top = float(np.nanmax(values)) if most is None else most
    width = max(map(len, rows), default=0)
    return [
        f"{name.rjust(width)} │{''.join(shade(float(each), 0.0, top) * wide for each in line)}│"
        for name, line in zip(rows, values, strict=True)
    ]


def bars(names: list[str], values, notes: list[str] | None = None, wide: int = 30) -> list[str]:
    """A bar a line, from 0 to the largest."""
    top = max((abs(float(each)) for each in values), default=0.0) or 1.0
    width = max(map(len, names), default=0)
    lines = []
    for at, (name, value) in enumerate(zip(names, values, strict=True)):
        bar = "█" * int(round(abs(float(value)) / top * wide))
        note = notes[at] if notes else f"{float(value):.3g}"
        lines.append(f"{name.ljust(width)} {bar} {note}")
    return lines
