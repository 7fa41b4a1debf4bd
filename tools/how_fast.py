"""learn/how-fast.json: the page "How fast", tables straight from bench/results/*.json with host, date and command, peers beside us.

Nothing is typed in by hand: a record that goes, or loses a field, fails the build.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tools import paths

RESULTS = paths.REPO / "bench" / "results"
CONTESTANTS = (
    ("native", "posttrainllm, native"), ("torch", "PyTorch"), ("tab", "posttrainllm, in the tab"), ("jax_js", "jax-js, in the tab"),
    ("native_1", "posttrainllm, native, one thread"), ("torch_1", "PyTorch, one thread"), ("tab_1", "posttrainllm, in the tab, one thread"),
)  # fmt: skip
START = (
    ("usable_cold_ms", "The page can be used, first visit"), ("ready_cold_ms", "The trainer is ready, first visit"), ("falling_after_click_ms", "First falling loss after Train is pressed"),
    ("usable_cached_ms", "The page can be used, from then on"), ("ready_cached_ms", "The trainer is ready, from then on"),
)  # fmt: skip


def record(name: str) -> dict:
    """A record of bench/results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(head: Iterable[str], rows: Iterable[Iterable]) -> list:
    """A table as the page's nodes (tools/lessons.py)."""
    top = ["tr", None, *(["th", None, each] for each in head)]
    body = [["tr", None, *(["td", None, each if isinstance(each, str) else f"{each:,.4g}" if isinstance(each, float) else f"{each:,}"] for each in row)] for row in rows]
    return ["table", None, ["thead", None, top], ["tbody", None, *body]]


def whence(found: dict, command: str = "", host: str = "") -> list:
    """Where and when a record was taken."""
    told = found.get("host", {})
    where = host or ", ".join(str(told[key]) for key in ("cpu", "os") if key in told) + (f", {told['cores']} cores" if "cores" in told else "")
    date = found["date"] if isinstance(found["date"], str) else found["date"][0]
    how = command or found.get("command", "")
    return ["p", None, f"{where}; {date[:10]}", *([": ", ["code", None, how if isinstance(how, str) else how[0]]] if how else []), "."]


def steps() -> dict:
    found = record("bench")
    body = []
    for preset, each in found["parts"]["steps"].items():
        rows = [(label, each["contestants"][key]["median_ms"], each["contestants"][key]["tokens_per_second"]) for key, label in CONTESTANTS if key in each["contestants"]]
        body += [["h3", None, f"{preset}, {each['tokens_per_step']:,} tokens a step"], table(("", "ms a step, median", "tokens a second"), rows)]
    return {"title": "A training step on a CPU", "body": [["p", None, "Forward, backward, clipping and AdamW, all contestants in turn in one run. Two threads unless it says otherwise."], *body, whence(found)]}


def gpu() -> dict:
    found = record("gpu_h200")
    rows = [(each["preset"], each["precision"], each["ms"], each["pytorch_eager_f32_ms"], f"{each['ratio']:.2f} ×") for each in found["natively_f32"] if "pytorch_eager_f32_ms" in each]
    tab = [(each["preset"], each["precision"], each["step_ms"]) for each in found["tab_way"]]
    return {
        "title": "A training step on a GPU",
        "body": [table(("preset", "precision", "ms a step", "PyTorch eager, f32, ms", "times as fast"), rows), ["h3", None, "The way a tab goes: Pyodide, JavaScript, Dawn"],
                 table(("preset", "precision", "ms a step"), tab), whence(found, "python -m bench.gpu", found["adapter"])],
    }  # fmt: skip


def writing() -> dict:
    found = record("decode")
    rows = [(where, each["tokens_per_second"], each["token_us"]) for where, each in found["presets"]["medium"].items()]
    beside = found["transformers"]["medium"]["1 threads"]
    peers = [(name, each["tokens_per_second"], f"{each['times']:.1f} ×") for name, each in (("transformers", beside["transformers"]), ("posttrainllm", beside["ours"]))]
    return {
        "title": "Writing", "body": [["p", None, "Tokens a second of medium, one text."], table(("", "tokens a second", "microseconds a token"), rows),
        ["h3", None, "The same model and text in transformers, one thread"], table(("", "tokens a second", ""), peers), whence(found, "./build.sh bench decode")],
    }  # fmt: skip


def memory() -> dict:
    body = []
    for name, title in (("memory", "On a CPU"), ("memory_cuda", "As planned for a GPU, beside PyTorch on one")):
        found, rows = record(name), []
        for size, ways in found["parts"].items():
            for way, each in ways.items():
                share = each["gpu_share"] if "gpu_share" in each else each["share"]
                rows.append((size, way, f"{share:.3f}"))
        body += [["h3", None, title], table(("preset, batch", "way of training", "our peak over PyTorch's"), rows), whence(found)]
    return {"title": "Memory", "body": body}


def start() -> dict:
    found = record("steps")
    rows = [(label, found["parts"]["page"][key]["median"]) for key, label in START]
    return {"title": "Starting the page", "body": [table(("", "ms, median"), rows), whence(found)]}


def large() -> dict:
    found, ranks = record("behemoth"), record("torchrun")
    seconds = ", ".join(f"{each:.1f}" for each in found["step_seconds"])
    rows = [
        (each["shape"], each["precision"], each["parallel"], each["scaling"], each["tokens_per_second"], f"{each['times']:.2f} ×")
        for each in ranks["cases"] if each["world"] > 1
    ]  # fmt: skip
    return {
        "title": "The largest, and out of the tab",
        "body": [["p", None, f"{found['parameters']:,} parameters in headless Chromium on {found['cores']} cores: {seconds} seconds a step."],
                 ["h3", None, "Two GPUs under torchrun, against one"], table(("model", "precision", "parallel", "scaling", "tokens a second", "times one GPU"), rows), whence(ranks, host=ranks["software"]["device"])],
    }  # fmt: skip


def page() -> dict:
    """The page, in the shape of a lesson."""
    lead = "Every figure of this page is read from a record that a benchmark wrote, with its machine and date. Machines differ: compare within a table only."
    return {"name": "how-fast", "title": "How fast", "lead": [["p", None, lead]], "sections": [start(), steps(), writing(), gpu(), memory(), large()]}
