"""The matrix product at the presets' shapes in its three layouts, on one thread, as a share of what multiply-adds allow."""

from __future__ import annotations

import statistics

LAYOUTS = ("NN", "NT", "TN")
ROWS = 2048
PRESETS = ("small", "medium", "large", "xl")
PEAK_SECONDS = 0.06


def shapes() -> list[dict]:
    """Every product of a training step at ROWS rows, each shape once: {"layout", "m", "n", "k", "of"}."""
    from posttrainllm.model.config import GPTConfig

    found: dict[tuple, str] = {}
    for preset in PRESETS:
        config = GPTConfig.preset(preset)
        c, f, v = config.channels, config.hidden, config.vocabulary
        for name, i, o in (("qkv", c, 3 * c), ("proj", c, c), ("fc", c, f), ("mlp proj", f, c)):
            found.setdefault(("NN", ROWS, o, i), f"{preset} {name}")
            found.setdefault(("NT", ROWS, i, o), f"{preset} {name}, dx")
            found.setdefault(("TN", i, o, ROWS), f"{preset} {name}, dw")
        found.setdefault(("NT", ROWS, v, c), f"{preset} unembed")
        found.setdefault(("NN", ROWS, c, v), f"{preset} unembed, dx")
        found.setdefault(("TN", v, c, ROWS), f"{preset} unembed, dw")
    return [dict(zip(("layout", "m", "n", "k"), key)) | {"of": of} for key, of in found.items()]


def measure(peak, gemm, rounds: int, chosen: list[dict] | None = None) -> dict:
    """peak(seconds) in GFLOP/s and gemm(layout number, m, n, k, repeats) in seconds, in turn for every shape and round.

    Both are the best that was seen, so that a share of two bests says what the code can do, not what else was running.
    """
    rows, peaks = [dict(shape, seconds=float("inf")) for shape in chosen or shapes()], []
    for _ in range(rounds):
        for row in rows:
            peaks.append(peak(PEAK_SECONDS))
            seconds = gemm(LAYOUTS.index(row["layout"]), row["m"], row["n"], row["k"], 4)
            row["seconds"] = min(row["seconds"], seconds)
    roof = max(peaks)
    for row in rows:
        row["gflops"] = round(2e-9 * row["m"] * row["n"] * row["k"] / row.pop("seconds"), 2)
        row["share"] = round(row["gflops"] / roof, 4)
    return {
        "peak_gflops": round(roof, 2),
        "peaks_gflops": [round(value, 1) for value in peaks],
        "share": {name: _over([row for row in rows if row["layout"] == name]) for name in LAYOUTS} | {"all": _over(rows)},
        "smallest": min(rows, key=lambda row: row["share"]),
        "median_share": statistics.median(row["share"] for row in rows),
        "shapes": rows,
    }


def _over(rows: list[dict]) -> float:
    """The share of all these products together: total FLOP by total time, by the roof."""
    flop = [row["m"] * row["n"] * row["k"] for row in rows]
    return round(sum(flop) / sum(f / row["share"] for f, row in zip(flop, rows)), 4)
