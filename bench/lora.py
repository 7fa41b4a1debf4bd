"""A LoRA step beside a full one: `./build.sh bench lora [--presets …] [--threads N …] [--rounds N] [--device cpu|webgpu] [--tab] [--out FILE]`.

Whole steps of both, in turn in one process, each on an engine of its own; the middle of the rounds' ratios is what counts, since other
work slows both. The share of each kernel is not measured here (the tapes are: parameters, gradients' bytes, flops).
With --tab only steps with an adapter, in Chromium's WebAssembly engine: `--tab --presets gpt2` is GPT-2's 124 M.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path

from bench import host

RATE = (1e-3, 0.9, 0.99, 1e-8, 0.0, 1.0, 10.0, 100.0)


def step_seconds(model, tokens: bytes, count: int) -> tuple[float, float]:
    """The best of `count` whole steps, and the best one's CPU time, which other processes disturb less."""
    best = best_cpu = float("inf")
    for _ in range(count):
        begun, cpu = time.perf_counter(), time.process_time()
        model.step(tokens, tokens, RATE)
        best, best_cpu = min(best, time.perf_counter() - begun), min(best_cpu, time.process_time() - cpu)
    return best, best_cpu


def measure(preset: str, device: str, threads: int, rounds: int) -> dict:
    """Both steps of a preset, in turn."""
    from posttrainllm.data.batches import Batches
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.model.adapted import lora
    from posttrainllm.model.live import GPT

    full = GPT.create(preset, device=device, threads=threads)
    tuned = lora(full)
    config = full.config
    tokens, _ = Batches(Corpus.shakespeare().train, config.context, config.batch, 1).next()
    models = {"full": full, "lora": tuned}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    cpu: dict[str, list[float]] = {name: [] for name in models}
    try:
        for _ in range(rounds + 1):
            for name, model in models.items():
                wall, busy = step_seconds(model, tokens, 5)
                seconds[name].append(wall)
                cpu[name].append(busy)
        flops = {name: model.program.step.plan.graph.flops() for name, model in models.items()}
        memory = {name: model.program.memory() for name, model in models.items()}
        trainable = sum(tuned.weight_address(name)[1] // 4 for name in tuned.trainable_names())
    finally:
        tuned.close()
        full.close()
    ratios = [one / other for one, other in zip(seconds["lora"][1:], seconds["full"][1:], strict=True)]
    return {
        "full_ms": round(1000 * min(seconds["full"]), 2),
        "lora_ms": round(1000 * min(seconds["lora"]), 2),
        "ratio": round(statistics.median(ratios), 3),
        "cpu_ratio": round(min(cpu["lora"]) / min(cpu["full"]), 3),
        "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
        "flops_ratio": round(flops["lora"] / flops["full"], 3),
        "trainable": trainable,
        "share": trainable / (trainable + config.parameter_count()),
        "memory_bytes": {name: each["total_bytes"] for name, each in memory.items()},
    }


def in_the_tab(preset: str, threads: int, steps: int) -> dict:
    """Steps with an adapter in a worker of a tab: its memory, milliseconds, tokens a second of the quickest, losses."""
    from bench.browser import Tab
    from posttrainllm.model.config import GPTConfig

    config, tab = GPTConfig.preset(preset), Tab()
    try:
        made = tab.call("ours:lora", "make", preset=preset + "+lora", threads=threads)
        taken = tab.call("ours:lora", "run", count=steps)
    finally:
        tab.close()
    ms = [round(step["ms"], 1) for step in taken]
    rate = round(config.batch * config.context / min(ms) * 1000)
    return made | {"ms": ms, "tokens_per_second": rate, "losses_nats": [round(step["loss_nats"], 5) for step in taken], "browser": f"Chromium {tab.version}"}


def main(arguments: list[str]) -> int:
    """Measure, print a table, write the JSON."""
    parser = argparse.ArgumentParser(prog="./build.sh bench lora", description=__doc__)
    parser.add_argument("--presets", nargs="+", default=["small", "medium", "large"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tab", action="store_true", help="in Chromium instead, adapters alone")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".out" / "lora.json")
    options = parser.parse_args(arguments)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": host.facts(),
        "busy_cores": host.busy_cores(),
        "device": options.device,
        "presets": {},
    }
    if options.tab:
        record["device"] = "tab"
        for preset in options.presets:
            row = record["presets"][preset] = in_the_tab(preset, max(options.threads), options.rounds)
            print(f"{preset} in the tab, {row['threads']} threads: {min(row['ms']):,.0f} ms a step, {row['tokens_per_second']:,} tokens/s, {row['memory_bytes'] / 1e6:,.0f} MB, losses {row['losses_nats']}")
        return write(options.out, record)
    print("preset     threads     full       LoRA   LoRA/full  CPU time    flops   trained     memory")
    for preset in options.presets:
        for threads in options.threads:
            row = measure(preset, options.device, threads, options.rounds)
            record["presets"].setdefault(preset, {})[str(threads)] = row
            memory = row["memory_bytes"]["lora"] / row["memory_bytes"]["full"]
            print(
                f"{preset:<10}{threads:>8}{row['full_ms']:>9.2f} ms{row['lora_ms']:>8.2f} ms{row['ratio']:>10.3f}{row['cpu_ratio']:>10.3f}"
                f"{row['flops_ratio']:>9.3f}{100 * row['share']:>9.2f} %{memory:>10.2f}"
            )
    print(f"\ncores that other work kept busy before: {record['busy_cores']:g}")
    return write(options.out, record)


def write(out: Path, record: dict) -> int:
    """The JSON."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0
