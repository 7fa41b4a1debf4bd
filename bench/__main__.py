"""./build.sh bench [--quick] [--only NAME…] [--recipe] [--out FILE]: measures, prints a table, writes one JSON.

Parts: steps (training step beside PyTorch and jax-js), memory, gemm, python (its share of a step), page, and with --recipe
three minutes of training in the tab. A whole run, not quick, is the record bench/results/bench.json; others go to bench/.out/.
Others measure one thing each: `bench gpu …` the GPU engine, `bench decode …` writing, `bench bpe …` the tokenizer, `bench lora …` tuning,
`bench masks …` what a rule costs a token, `bench sae …` features of a trained model, `bench moments …` smaller moments, `bench memory …` a step's beside PyTorch's,
`bench torchrun …` several GPUs, and `bench recipe …` searches for the training recipe.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import sys
from pathlib import Path

from bench import engine_in_tab, gemm, host, page, report, steps
from bench.browser import Tab
from bench.child import Child

HERE = Path(__file__).parent
RECORD = HERE / "results" / "bench.json"
PARTS = ("gemm", "steps", "memory", "python", "page")
OTHERS = ("recipe", "memory", "decode", "gpu", "bpe", "lora", "masks", "sae", "moments", "torchrun")
NOISY_CORES = 0.3
"""More than this busy with other work before any part, and the record calls itself noisy."""


def main(arguments: list[str]) -> int:
    """Measure what is asked for. Always 0 when it ran: figures are recorded, not judged."""
    if arguments and arguments[0] in OTHERS:
        return importlib.import_module(f"bench.{arguments[0]}").main(arguments[1:]) or 0
    parser = argparse.ArgumentParser(prog="./build.sh bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples, to see that everything runs")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "recipe"], metavar="NAME", help=f"of {', '.join(PARTS)}, recipe")
    parser.add_argument("--recipe", action="store_true", help="also train for three minutes in the tab")
    parser.add_argument("--seconds", type=float, default=180.0, help="instead of three minutes")
    parser.add_argument("--training", default="", metavar="NAME=VALUE,…", help="settings of that run, instead of the defaults")
    parser.add_argument("--presets", nargs="+", default=["small", "medium", "large"], help="of the training steps")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    options = parser.parse_args(arguments)
    wanted = options.only or [*PARTS, *(["recipe"] if options.recipe else [])]
    whole = set(PARTS) <= set(wanted) and not options.quick
    given = options.out and Path(os.environ.get("PTL_CALLER_CWD") or ".", options.out)
    out = given or (RECORD if whole else HERE / ".out" / "bench.json")

    record = {
        "command": " ".join(["./build.sh bench", *arguments]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": host.facts(),
        "versions": {},
        "busy_cores": {},
        "noisy": False,
        "parts": {},
    }
    tab = Tab()
    try:
        record["versions"] = host.versions(tab.version)
        for name in wanted:
            record["busy_cores"][name] = host.busy_cores()
            print(f"{name} …", file=sys.stderr, flush=True)
            record["parts"][name] = measure(name, tab, options)
    finally:
        tab.close()
    record["noisy"] = any(busy > NOISY_CORES for busy in record["busy_cores"].values())
    record["targets"] = report.targets(record["parts"], record["noisy"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(report.text(record))
    print(f"\nWritten to {out}")
    return 0


def measure(name: str, tab: Tab, options) -> dict:
    """One part of the record."""
    quick = options.quick
    if name == "steps":
        return {preset: steps.measure(tab, preset, 2 if quick else 6) for preset in options.presets}
    if name == "gemm":
        rounds, chosen = (1, gemm.shapes()[:6]) if quick else (6, None)
        native = Child("bench.ours", "Gemm", "", 1)
        try:
            found = {
                "wasm": gemm.measure(lambda s: tab.call("ours:gemm", "peak", seconds=s), _tab_gemm(tab), rounds, chosen),
                "native": gemm.measure(lambda s: native.call("peak", s), lambda *sizes: native.call("gemm", *sizes), rounds, chosen),
            }
        finally:
            native.close()
            tab.end("ours:gemm")
        return found
    if name == "memory":
        found = {preset: engine_in_tab.memory(tab, preset, 2) for preset in ("medium", "huge")}
        for row in found.values():
            row["memory_mb"] = round(row["memory_bytes"] / 1e6, 1)
        return found
    if name == "python":
        return engine_in_tab.python_share(tab, "medium", 1 if quick else 5)
    site = page.Site(tab.playwright)
    try:
        if name == "recipe":
            from bench.recipe import parse

            return page.three_minutes(site, options.seconds, parse(options.training))
        found = page.timings(site, 1 if quick else 5)
    finally:
        site.close()
    for row in found.values():
        row["seconds"] = round(row["median"] / 1000, 3)
    return found


def _tab_gemm(tab: Tab):
    return lambda layout, m, n, k, repeats: tab.call("ours:gemm", "gemm", layout=layout, m=m, n=n, k=k, repeats=repeats)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
