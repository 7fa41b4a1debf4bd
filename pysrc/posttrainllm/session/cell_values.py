"""What a cell's last expression is, as the page shows it: a text, a table, or a picture of an array of two dimensions."""

from __future__ import annotations

import base64
import math

MOST_ROWS, MOST_COLUMNS = 200, 24
MOST_TEXT = 20_000
MOST_SIDE = 256
MOST_PLAIN = 1 << 20


def shown(value) -> dict | None:
    """{"text"} always, and "table" {columns, rows, more} or "picture" {rows, columns, pixels, least, most}; None for None. A str also has "plain", itself.

    pixels is base64 of one byte a cell, 0 for the least finite value and 254 for the most; 255 where it is not finite.
    """
    if value is None:
        return None
    found = {"text": _clipped(repr(value))}
    if isinstance(value, str):
        found["plain"] = value if len(value) <= MOST_PLAIN else ""
    table = _table(value)
    if table is not None:
        return found | {"table": table}
    picture = _picture(value)
    return found if picture is None else found | {"picture": picture}


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + f"\n… {len(text) - MOST_TEXT:,} more characters"


def _table(value) -> dict | None:
    """A list of dicts that share their keys, or a dict of plain values, as columns and rows of texts."""
    if isinstance(value, dict) and value and all(_plain(each) for each in value.values()):
        columns, rows = ["name", "value"], [[name, each] for name, each in value.items()]
    elif isinstance(value, (list, tuple)) and value and all(isinstance(row, dict) and row for row in value):
        columns = [str(name) for name in value[0]][:MOST_COLUMNS]
        if any(not _plain(each) for row in value[:MOST_ROWS] for each in row.values()):
            return None
        rows = [[row.get(name, "") for name in list(value[0])[:MOST_COLUMNS]] for row in value]
    else:
        return None
    told = [[_cell(each) for each in row] for row in rows[:MOST_ROWS]]
    return {"columns": columns, "rows": told, "more": max(0, len(rows) - MOST_ROWS)}


def _plain(value) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))


def _cell(value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _clipped(str(value))[:200]


def _picture(value) -> dict | None:
    """An array [rows, columns] of numbers, at most MOST_SIDE a side, as pixels."""
    shape, kind = getattr(value, "shape", None), getattr(getattr(value, "dtype", None), "kind", "")
    if shape is None or len(shape) != 2 or kind not in "fiub" or not all(2 <= side <= MOST_SIDE for side in shape):
        return None
    numbers = [float(each) for each in value.ravel()]
    finite = [each for each in numbers if math.isfinite(each)]
    if not finite:
        return None
    least, most = min(finite), max(finite)
    scale = 254 / (most - least) if most > least else 0.0
    pixels = bytes(round((each - least) * scale) if math.isfinite(each) else 255 for each in numbers)
    return {"rows": shape[0], "columns": shape[1], "pixels": base64.b64encode(pixels).decode(), "least": least, "most": most}
