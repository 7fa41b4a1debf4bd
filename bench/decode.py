"""Writing text, one token after another: `./build.sh bench decode [--tokens N] [--presets …] [--no-tab] [--out FILE]`.

Per preset and place: tokens/s over whole texts that run past the context (so the window's hops are in them), the microseconds
of a token, and how many of them are the engine's. "whole window" empties the cache before each token of a text that is longer
than the context: what the cache saves.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path

from bench import host
from bench.child import Child

PROMPT = "ROMEO:"
PLACES = {"native": 1, "native, 2 threads": 2}


class Contestant:
    """A preset natively, on `threads` threads, with weights as made from a seed: speed does not depend on them."""

    def __init__(self, preset: str, threads: int) -> None:
        from posttrainllm.model.live import GPT

        self.model = GPT.create(preset, device="cpu", threads=threads, training=False)
        self.engine_seconds, replay = 0.0, self.model.machine.replay

        def timed(loaded) -> None:
            began = time.perf_counter()
            replay(loaded)
            self.engine_seconds += time.perf_counter() - began

        self.model.machine.replay = timed

    def run(self, tokens: int, cache: bool = True) -> dict:
        """Write `tokens` tokens: {"ms", "engine_ms", "cpu_ms", "tokens"}; cpu_ms does not count what other programs took."""
        from posttrainllm.decode.generate import write

        before, began, busy = self.engine_seconds, time.perf_counter(), time.process_time()
        for _ in write(self.model, PROMPT if cache else PROMPT * self.model.config.context, tokens):
            if not cache:
                self.model.forget_cache()
        return {
            "ms": 1000 * (time.perf_counter() - began),
            "cpu_ms": 1000 * (time.process_time() - busy),
            "engine_ms": 1000 * (self.engine_seconds - before),
            "tokens": tokens,
        }


def summary(runs: list[dict]) -> dict:
    """{"tokens_per_second", "best_tokens_per_second", "token_us", "engine_us", "cpu_us"}: medians, and the run least disturbed."""
    middle = sorted(runs, key=lambda run: run["ms"] / run["tokens"])[len(runs) // 2]
    best = min(runs, key=lambda run: run["ms"] / run["tokens"])
    found = {"tokens_per_second": round(1000 * middle["tokens"] / middle["ms"])}
    found["best_tokens_per_second"] = round(1000 * best["tokens"] / best["ms"])
    for name in ("ms", "engine_ms", "cpu_ms"):
        if name in middle:
            values = [1000 * run[name] / run["tokens"] for run in runs]
            found["token_us" if name == "ms" else name.replace("_ms", "_us")] = round(statistics.median(values), 1)
    return found


def measure(tab, preset: str, tokens: int, rounds: int) -> dict:
    """All places on one preset, in turn."""
    children = {name: Child("bench.decode", "Contestant", preset, threads) for name, threads in PLACES.items()}
    asks = {name: (lambda child=child: child.call("run", tokens)) for name, child in children.items()}
    asks["native, whole window"] = lambda: children["native"].call("run", max(20, tokens // 20), False)
    if tab:
        for threads in (1, 2):
            worker, words = f"ours:{threads}", "" if threads == 1 else ", 2 threads"
            asks[f"Chromium{words}"] = lambda worker=worker, threads=threads: tab.call(
                worker, "decode", preset=preset, threads=threads, tokens=tokens, prompt=PROMPT
            )
    try:
        for ask in asks.values():
            ask()  # tapes, caches, clocks
        runs: dict[str, list[dict]] = {name: [] for name in asks}
        for _ in range(rounds):
            for name, ask in asks.items():
                runs[name].append(ask())
    finally:
        for child in children.values():
            child.close()
        if tab:
            tab.end("ours:1")
            tab.end("ours:2")
    return {name: summary(each) for name, each in runs.items()}


def main(arguments: list[str]) -> int:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(prog="./build.sh bench decode", description=__doc__)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--presets", nargs="+", default=["medium", "huge"])
    parser.add_argument("--no-tab", action="store_true", help="natively only")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".out" / "decode.json")
    options = parser.parse_args(arguments)
    tab = None
    if not options.no_tab:
        from bench.browser import Tab

        tab = Tab()
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": host.facts(),
        "busy_cores": host.busy_cores(),
        "tokens": options.tokens,
        "presets": {},
    }
    try:
        for preset in options.presets:
            record["presets"][preset] = found = measure(tab, preset, options.tokens, options.rounds)
            print(f"\n{preset:<26}tokens/s        best  µs a token   in engine    CPU time")
            for name, row in found.items():
                columns = ("tokens_per_second", "best_tokens_per_second", "token_us", "engine_us", "cpu_us")
                cells = [f"{row[key]:>12,.0f}" if key in row else "" for key in columns]
                print(f"  {name:<24}{''.join(cells)}")
    finally:
        if tab:
            tab.close()
    print(f"\ncores that other work kept busy before: {record['busy_cores']:g}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0
