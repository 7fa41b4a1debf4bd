"""Writing text: `./build.sh bench decode [--tokens N] [--presets …] [--no-tab] [--transformers PRESET …] [--model RUN --draft RUN] [--out FILE]`.

Per preset and place: tokens/s over whole texts that run past the context (so the window's hops are in them), the microseconds
of a token, and how many of them are the engine's. "whole window" empties the cache before each token of a text that is longer
than the context: what the cache saves. --transformers: greedy texts within the context, beside transformers' generate on the same
weights and threads (it must be installed). --model and --draft: greedy texts of one saved model without and with another as its draft.
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


def rounds_of(asks: dict, rounds: int) -> dict[str, list[dict]]:
    """Each contestant's runs, in turn, after one that does not count (tapes, caches, clocks)."""
    for ask in asks.values():
        ask()
    runs: dict[str, list[dict]] = {name: [] for name in asks}
    for _ in range(rounds):
        for name, ask in asks.items():
            runs[name].append(ask())
    return runs


def speeds(runs: dict[str, list[dict]], first: str) -> dict:
    """Summaries, each with how many times as fast as `first` it is (medians), and whether its texts are those of `first`."""
    found = {name: summary(each) for name, each in runs.items()}
    for name, row in found.items():
        row["times"] = round(row["tokens_per_second"] / found[first]["tokens_per_second"], 2)
        row["same_text"] = all(run["text"] == runs[first][0]["text"] for run in runs[name])
        if "acceptance" in runs[name][0]:
            row["acceptance"] = runs[name][0]["acceptance"]
    return found


def beside_transformers(preset: str, rounds: int) -> dict:
    """Texts that fill the context, on one thread and on two, ours and theirs in turn."""
    from posttrainllm.model.config import GPTConfig

    tokens, found = GPTConfig.preset(preset).context - len(PROMPT), {"tokens": 0}
    for threads in (1, 2):
        children = {name: Child("bench.decode_peers", kind, preset, threads) for name, kind in (("transformers", "Transformers"), ("ours", "Ours"))}
        try:
            asks = {name: (lambda child=child: child.call("run", tokens)) for name, child in children.items()}
            found |= {"tokens": tokens, f"{threads} threads": speeds(rounds_of(asks, rounds), "transformers")}
            found |= children["transformers"].call("about")
        finally:
            for child in children.values():
                child.close()
    return found


def with_draft(model: str, draft: str, tokens: int, rounds: int, aheads: list[int]) -> dict:
    """Without a draft and with it, by how many tokens it proposes at a time, in turn."""
    found = {"tokens": tokens}
    for threads in (1, 2):
        child = Child("bench.decode_peers", "Drafted", f"{model}+{draft}", threads)
        try:
            asks = {f"ahead {ahead}" if ahead else "plain": (lambda ahead=ahead: child.call("run", tokens, ahead)) for ahead in (0, *aheads)}
            found |= {f"{threads} threads": speeds(rounds_of(asks, rounds), "plain"), "sizes": child.call("sizes")}
        finally:
            child.close()
    return found


def table(title: str, rows: dict) -> None:
    """Print how many times as fast as the first each is."""
    print(f"\n{title:<26}tokens/s    times   CPU µs a token   proposals that stood, tokens a pass")
    for name, row in rows.items():
        seen = row.get("acceptance")
        told = f"{seen['rate']:>12.0%}{seen['tokens_per_pass']:>8.2f}" if seen else ""
        same = "" if row["same_text"] else "   another text"
        print(f"  {name:<22}{row['tokens_per_second']:>10,}{row['times']:>9.2f}{row.get('cpu_us', 0):>12,.0f}{told}{same}")


def main(arguments: list[str]) -> int:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(prog="./build.sh bench decode", description=__doc__)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--presets", nargs="*", default=["medium", "huge"])
    parser.add_argument("--no-tab", action="store_true", help="natively only")
    parser.add_argument("--transformers", nargs="*", default=[], metavar="PRESET", help="beside transformers' generate")
    parser.add_argument("--model", type=Path, help="a saved run to write with, without and with --draft")
    parser.add_argument("--draft", type=Path, help="a saved run of a smaller model")
    parser.add_argument("--ahead", nargs="+", type=int, default=[2, 3, 4, 5, 6, 8, 12, 16])
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
    for preset in options.transformers:
        record.setdefault("transformers", {})[preset] = found = beside_transformers(preset, options.rounds)
        for threads in ("1 threads", "2 threads"):
            table(f"{preset}, {threads}", found[threads])
    if options.model and options.draft:
        record["draft"] = found = with_draft(str(options.model), str(options.draft), options.tokens, options.rounds, options.ahead)
        for threads in ("1 threads", "2 threads"):
            table(f"draft, {threads}", found[threads])
    print(f"\ncores that other work kept busy before: {record['busy_cores']:g}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0
