"""Search for the training recipe: which settings give `medium` the lowest validation loss in three minutes of a tab.

    ./build.sh bench recipe [NAME=VALUE,NAME=VALUE …] [--tokens N] [--jobs N]

Each argument is one run: changes to BASE, settings of configs/training.json or `batch`. Runs get the same number of training
tokens (steps × batch × context), so a small batch takes more steps; all read the same text and are judged on the same windows
of its validation part. Without arguments the committed search runs. Results are added to bench/results/recipe.json, and a run
that is there already is not made again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import json
import time
from pathlib import Path

from bench import host

RESULTS = Path(__file__).parent / "results" / "recipe.json"
TAB_STEPS = 1400
"""Steps of batch 16 × 128 that a tab on two cores does in three minutes, at about 128 ms a step."""
TOKENS = TAB_STEPS * 16 * 128
JUDGE_TOKENS = 131_072
BASE = {
    "learning_rate": 1e-3, "warmup_steps": 100, "minimum_learning_rate_fraction": 0.1, "beta2": 0.95,
    "weight_decay": 0.1, "clip": 1.0, "batch": 16,
}
SEARCH = [
    *("learning_rate=3e-4", "", "learning_rate=2e-3", "learning_rate=3.5e-3", "learning_rate=6e-3"),
    *(f"learning_rate=3.5e-3,{change}" for change in ("batch=8", "beta2=0.99", "weight_decay=0")),
    "learning_rate=4.5e-3,beta2=0.99",
    *(f"learning_rate=4.5e-3,beta2=0.99,{change}" for change in
      ("minimum_learning_rate_fraction=0", "decay_steps=2000", "batch=8", "warmup_steps=200", "clip=0")),
    "learning_rate=6e-3,beta2=0.99,batch=32",
]


def parse(text: str) -> dict:
    """The changes of one run: "learning_rate=2e-3,batch=8" as a dict."""
    pairs = (item.split("=") for item in text.split(",") if item)
    return {name: int(value) if value.isdigit() else float(value) for name, value in pairs}


def label(changes: dict) -> str:
    """A run's name in the results: its changes in a fixed order."""
    return ",".join(f"{name}={changes[name]:g}" for name in sorted(changes)) or "base"


def measure(changes: dict, tokens: int, threads: int = 1) -> dict:
    """Train once; returns settings, steps, the validation curve [[step, nats]…], and the final loss on JUDGE_TOKENS."""
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.live import GPT
    from posttrainllm.train.trainer import Trainer

    settings = BASE | changes
    batch = settings.pop("batch")
    config = GPTConfig.preset("medium", batch=batch)
    steps = tokens // (batch * config.context)
    settings = {"decay_steps": steps, "steps": steps} | settings
    model = GPT.create(config, seed=42, threads=threads)
    trainer = Trainer(model, Corpus.shakespeare(), settings | {"evaluate_every_steps": max(1, steps // 7)})
    began = time.perf_counter()
    curve = [[each.step, round(each.validation_loss_nats, 4)] for each in trainer.run(steps) if each.event == "eval"]
    seconds = time.perf_counter() - began
    final = model.evaluate(trainer.corpus.validation, JUDGE_TOKENS)
    last = [row["loss_nats"] for row in trainer.history[-50:]]
    model.close()
    return {
        "changes": changes, "steps": trainer.step, "batch": batch, "tokens": tokens, "curve": curve, "seconds": round(seconds, 1),
        "validation_loss_nats": round(final, 4), "train_loss_nats": round(sum(last) / len(last), 4),
    }


def table(rows: dict[str, dict]) -> str:
    """The results as a Markdown table, best first."""
    lines = ["| changes | steps × batch | train | validation |", "|---|---|---|---|"]
    for name, row in sorted(rows.items(), key=lambda item: item[1]["validation_loss_nats"]):
        lines.append(
            f"| {name} | {row['steps']:,} × {row['batch']} | {row['train_loss_nats']:.3f} | {row['validation_loss_nats']:.4f} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run what is asked for and missing; print the table."""
    parser = argparse.ArgumentParser(prog="bench recipe", description=__doc__.split("\n")[0])
    parser.add_argument("runs", nargs="*", help="changes to the base, NAME=VALUE,…; 'base' for none")
    parser.add_argument("--tokens", type=int, default=TOKENS)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, one thread each")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    record = json.loads(options.out.read_text()) if options.out.exists() else {"base": BASE, "runs": {}}
    wanted = {label(parse(text)): parse(text) for text in ("" if run == "base" else run for run in options.runs or SEARCH)}
    missing = {name: changes for name, changes in wanted.items() if name not in record["runs"]}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        started = {pool.submit(measure, changes, options.tokens): name for name, changes in missing.items()}
        for done in concurrent.futures.as_completed(started):
            record["runs"][started[done]] = done.result()
            record |= {"host": host.facts(), "date": datetime.date.today().isoformat(), "judge_tokens": JUDGE_TOKENS}
            options.out.parent.mkdir(exist_ok=True)
            options.out.write_text(json.dumps(record, indent=1) + "\n")
            print(f"{started[done]}: {done.result()['validation_loss_nats']:.4f}", flush=True)
    print(table(record["runs"]))
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
