"""The GPU record as a table, and its figures beside the targets. Nothing is asserted: a miss is a line that says so."""

from __future__ import annotations

from bench import gpu_tensor

F32_MATMUL, TENSOR_MATMUL, BEHEMOTH_B8, HALF_BY_SINGLE, HOST_SHARE = 42.0, 120.0, 42.0, 2.0, 0.05
"""TFLOP/s at 4096³ f32 and by matrix units; TFLOP/s of behemoth at batch 8; f16 by f32 at gpt2's shape; Python's share of medium."""


def _rows(parts: dict, part: str) -> dict[str, dict]:
    found = parts.get(part)
    return {row["preset"]: row for row in found if "error" not in row} if isinstance(found, list) else {}


def targets(parts: dict) -> list[dict]:
    """{"name", "value", "target", "met"} of each target that this run has the figure of."""
    rows = []

    def add(name: str, value: float | None, target: float, more: bool = True) -> None:
        if value is not None:
            rows.append(
                {
                    "name": name,
                    "value": round(value, 3),
                    "target": target,
                    "met": value >= target if more else value <= target,
                }
            )

    steps, half, page, page_half = (_rows(parts, part) for part in ("steps", "steps-f16", "page", "page-f16"))
    for name, row in steps.items():
        add(f"{name}: PyTorch eager f32's time by ours", row.get("ratio"), 0.7 if name == "behemoth-b8" else 1.0)
    add("behemoth at batch 8, TFLOP/s", steps.get("behemoth-b8", {}).get("tflops"), BEHEMOTH_B8)
    matmuls = (
        [row for row in parts.get("matmul", []) if "tflops" in row] if isinstance(parts.get("matmul"), list) else []
    )
    for layout in sorted({row["layout"] for row in matmuls}):
        add(
            f"matmul 4096³ f32 {layout}, TFLOP/s",
            max(r["tflops"] for r in matmuls if r["layout"] == layout),
            F32_MATMUL,
        )
    tensor = parts.get("tensor", {}).get("rows", []) if isinstance(parts.get("tensor"), dict) else []
    for layout, rate in sorted(gpu_tensor.best(tensor, "f16", "tensor").items()):
        add(f"matmul 4096³ by matrix units {layout}, TFLOP/s", rate, TENSOR_MATMUL)
    for label, ours, theirs, key in (("natively", half, steps, "ms"), ("in a tab's way", page_half, page, "step_ms")):
        if "gpt2-bytes" in ours and "gpt2-bytes" in theirs:
            add(
                f"gpt2 shape {label}: f32's time by f16's",
                theirs["gpt2-bytes"][key] / ours["gpt2-bytes"][key],
                HALF_BY_SINGLE,
            )
    add("medium natively: host's share of a step", steps.get("medium", {}).get("host_share"), HOST_SHARE, False)
    add("medium in a tab's way: Python's share of a step", tab_shares(page.get("medium", {}))[0], HOST_SHARE, False)
    return rows


def tab_shares(row: dict) -> tuple[float | None, float | None]:
    """(Python's, JavaScript's) part of a step in a tab's way, from row's host_ms (both), js_ms and step_ms. Encoding and submitting
    are JavaScript's and the browser's, whoever asks for them; None for a row from before they were told apart."""
    if not row.get("js_ms"):
        return None, None
    return (row["host_ms"] - row["js_ms"]) / row["step_ms"], row["js_ms"] / row["step_ms"]


def share(row: dict) -> str:
    """The host's part of a step, by language where they are told apart."""
    python, javascript = tab_shares(row)
    return str(row["host_share"]) if python is None else f"Python {python:.3f}, JavaScript {javascript:.3f}"


def table(record: dict) -> str:
    """The record's steps and targets as Markdown."""
    lines = [f"{record.get('adapter', '?')}; {', '.join(record.get('features', []))}", ""]
    lines += [
        "| preset | precision | ms | ratio | TFLOP/s | dispatches | host share | MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for part in ("steps", "steps-f16", "page", "page-f16"):
        for row in _rows(record["parts"], part).values():
            where = " (tab)" if part.startswith("page") else ""
            memory = row.get("memory", {}).get("total_bytes", 0) / 1e6
            cells = (
                row["preset"] + where, row["precision"], row.get("ms", row.get("step_ms")), row.get("ratio", ""), row.get("tflops", ""),
                row["dispatches"], share(row), f"{memory:.0f}" if memory else "",
            )  # fmt: skip
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    for part in ("steps", "steps-f16", "page", "page-f16"):
        found = record["parts"].get(part)
        for row in found if isinstance(found, list) else []:
            if "error" in row:
                lines += ["", f"{part} {row['preset']}: {row['error'][-600:]}"]
    lines += ["", "| target | value | wanted | |", "|---|---|---|---|"]
    lines += [
        f"| {t['name']} | {t['value']} | {t['target']} | {'met' if t['met'] else '**missed**'} |"
        for t in record.get("targets", [])
    ]
    tensor = record["parts"].get("tensor")
    if isinstance(tensor, dict):
        device = {key: tensor.get("device", {}).get(key) for key in ("adapter", "subgroups", "configs", "memory")}
        lines += ["", f"matrix units, TFLOP/s: {device}"[:700], tensor.get("error", "")]
        lines += gpu_tensor.table(tensor.get("rows", []))
    return "\n".join(lines)
