"""The record as a readable table, and its figures beside their targets. Nothing is asserted: a miss is a line that says so."""

from __future__ import annotations

from bench.steps import NAMES

SAME_LOSS_NATS = 1e-3
"""Losses at equal steps that are further apart than this mean that the contestants did not train the same model."""

# name, where in the record's parts, target, aim, whether more is better
TARGETS = [
    ("medium, native, tokens/s by PyTorch's", "steps.medium.ratios.native_by_torch", 1.5, 2.0, True),
    ("medium, Chromium, tokens/s by PyTorch's", "steps.medium.ratios.tab_by_torch", 0.6, 0.8, True),
    ("medium, Chromium, tokens/s by jax-js's", "steps.medium.ratios.tab_by_jax_js", 2.5, 3.2, True),
    ("medium, engine memory in WASM, MB", "memory.medium.memory_mb", 130, None, False),
    ("huge, engine memory in WASM, MB", "memory.huge.memory_mb", 1073, None, False),
    ("GEMM in WASM, share of peak, all shapes", "gemm.wasm.share.all", 0.85, None, True),
    ("GEMM in WASM, share of peak, smallest", "gemm.wasm.smallest.share", 0.85, None, True),
    ("Python's share of a step in the tab", "python.share", 0.02, None, False),
    ("page usable, cold, s", "page.usable_cold_ms.seconds", 1.0, None, False),
    ("trainer ready, cold, s", "page.ready_cold_ms.seconds", 4.0, None, False),
    ("trainer ready, cached, s", "page.ready_cached_ms.seconds", 2.0, None, False),
    ("validation loss after 3 minutes in the tab, nats", "recipe.validation_loss_nats", 1.88, None, False),
]


def at(parts: dict, path: str):
    """The value at a dotted path, None where the run has no such part."""
    value = parts
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return value


def targets(parts: dict, noisy: bool) -> list[dict]:
    """Each target whose figure was measured: {"name", "value", "target", "aim", "met"}; met is None for a time from a noisy run."""
    rows = []
    for name, path, target, aim, more in TARGETS:
        value = at(parts, path)
        if value is not None:
            met = None if noisy and not path.startswith("memory") else value >= target if more else value <= target
            rows.append({"name": name, "value": value, "target": target, "aim": aim, "met": met, "sign": "≥" if more else "≤"})
    return rows


def text(record: dict) -> str:
    """The whole record for a reader."""
    parts, lines = record["parts"], []
    host, versions = record["host"], record["versions"]
    lines.append(f"{record['date']}, {host['cpu']}, {host['cores']} cores, {host['os']}; commit {versions['commit']}")
    lines.append(
        f"Python {versions['python']}, PyTorch {versions['torch']}, Chromium {versions['chromium']}, jax-js {versions['jax_js']}, {versions['emscripten']}"
    )
    if record["noisy"]:
        busy = ", ".join(f"{name} {cores:g}" for name, cores in record["busy_cores"].items())
        lines.append(f"NOT A QUIET MACHINE: cores that other work kept busy before each part: {busy}. PyTorch's threads spin while they")
        lines.append("wait, so it loses most when they have to share cores: figures of such a run are no comparison.")
    for preset, part in parts.get("steps", {}).items():
        lines += ["", f"Training step of {preset} ({part['tokens_per_step']:,} tokens)".ljust(46) + "median ms   tokens/s"]
        for name, row in part["contestants"].items():
            lines.append(f"  {NAMES[name]:<44}{row['median_ms']:>9.1f}{row['tokens_per_second']:>11,}")
        lines.append("  " + ", ".join(f"{name} {value:.2f}" for name, value in part["ratios"].items()))
        lines.append("  largest loss differences at equal steps: " + ", ".join(
            f"{name} {value:g}" for name, value in part["largest_loss_difference"].items() if name in ("torch", "tab", "jax_js")
        ) + f"; jax-js memory {part['memory']['jax_js_bytes'] / 1e6:,.0f} MB")
        if max(part["largest_loss_difference"].values()) > SAME_LOSS_NATS:
            lines.append("  THE LOSSES DIFFER: these contestants did not train the same model, so their speeds are no comparison.")
    for where, part in parts.get("gemm", {}).items():
        lines += ["", f"GEMM, {where}, one thread: peak {part['peak_gflops']:.1f} GFLOP/s; share " + ", ".join(
            f"{name} {share:.1%}" for name, share in part["share"].items()
        )]
        low = part["smallest"]
        lines.append(f"  smallest {low['share']:.1%}: {low['of']} ({low['layout']} {low['m']}×{low['n']}×{low['k']})")
    lines += ["", "Against the targets".ljust(56) + "value    target   aim"]
    said = {True: "", False: "MISSED", None: "noisy, not judged"}
    for row in record["targets"]:
        aim = "" if row["aim"] is None else f"{row['sign']} {row['aim']:g}"
        lines.append(f"  {row['name']:<50}{row['value']:>9.3g}  {row['sign']} {row['target']:<6g} {aim:<7}{said[row['met']]}")
    return "\n".join(lines)
