"""What smaller moments cost and save: `./build.sh bench moments [--presets …] [--steps N] [--seeds …] [--threads N] [--rounds N]
[--device cpu|webgpu] [--out FILE]`.

follow: how well sqrt(v) follows a gradient that becomes smaller, rounded to the nearest and by chance, in NumPy with the ops' own
packing. loss: whole runs on Shakespeare, one for each seed and way, each judged on the same 131,072 tokens (runs that the JSON has
are not made again). seconds: a step of each way in turn in one process, the middle of the rounds' ratios. memory: the plan's bytes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
from pathlib import Path

from bench import host

RESULTS = Path(__file__).parent / "results" / "moments.json"
WAYS = ("f32", "bf16", "8bit")
JUDGE_TOKENS = 131_072
PLANNED = ("medium", "large", "huge", "gpt2", "behemoth")


def follow(beta2: float, way: str, by_chance: bool, spread: float) -> dict:
    """The natural logarithm of sqrt(v) over what it should be: its mean, and the root of its mean square."""
    import numpy as np

    from posttrainllm.model.moments import KINDS
    from posttrainllm.ops import adamw_8bit, adamw_bf16

    count, steps = 64 * 64, round(15 / (1 - beta2))
    rng, kind = np.random.default_rng(7), KINDS[way]
    sizes = 10 ** (spread * rng.standard_normal(count) - 3)
    exact, kept, found = np.zeros(count), np.zeros(count, np.float32), []
    for step in range(steps):
        if step == steps // 3:
            sizes *= 0.3
        gradient = (sizes * rng.standard_normal(count)).astype(np.float32)
        exact = beta2 * exact + (1 - beta2) * gradient.astype(float) ** 2
        kept = np.float32(beta2) * kept + np.float32(1 - beta2) * gradient * gradient
        chance = adamw_bf16.chances(rng.random(), count)[1] if by_chance else None
        words = adamw_bf16.pack(kept, chance) if way == "bf16" else adamw_8bit.pack(kept, False, chance)
        kept = kind.unpack("v", words.tobytes(), count)
        if step >= steps - 50:
            found.append(0.5 * np.log(np.maximum(kept, 1e-30) / exact))
    return {"mean": round(float(np.mean(found)), 4), "rms": round(float(np.sqrt(np.mean(np.square(found)))), 4)}


def _model(preset: str, way: str, where: tuple[str, int]):
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.live import GPT
    from posttrainllm.model.program import Program
    from posttrainllm.model.saving import Saving

    return GPT.on(Program(GPTConfig.preset(preset), saving=Saving(moments=way)), *where)


def train(preset: str, way: str, seed: int, steps: int, where: tuple[str, int]) -> dict:
    """One run: its validation curve [[step, nats]…], the loss of its last 100 steps, and that on JUDGE_TOKENS."""
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.train.trainer import Trainer

    model, corpus = _model(preset, way, where), Corpus.shakespeare()
    try:
        model.initialise(seed)
        trainer = Trainer(model, corpus, {"steps": steps, "decay_steps": steps, "seed": seed, "evaluate_every_steps": max(1, steps // 6)})
        begun = time.perf_counter()
        for _ in trainer.run():
            pass
        seconds = time.perf_counter() - begun
        rows = trainer.history
        curve = [[row["step"], round(row["validation_loss_nats"], 4)] for row in rows if row.get("validation_loss_nats") is not None]
        losses = [row["loss_nats"] for row in rows if row["step"] > steps - 100 and row.get("loss_nats") is not None]
        judged = model.evaluate(corpus.split_at(0.1).validation, JUDGE_TOKENS)
        return {
            "loss_nats": round(judged, 4), "training_loss_nats": round(math.fsum(losses) / len(losses), 4), "curve": curve,
            "seconds": round(seconds, 1),
        }  # fmt: skip
    finally:
        model.close()


def times(preset: str, where: tuple[str, int], rounds: int) -> dict:
    """Milliseconds of a step of each way, the best, of the clock and of CPU time (which other work disturbs less), and the middle ratio
    to float32's in the same round."""
    from bench.lora import step_seconds
    from posttrainllm.data.batches import Batches
    from posttrainllm.data.corpus import Corpus

    models = {way: _model(preset, way, where) for way in WAYS}
    config = models["f32"].config
    tokens, _ = Batches(Corpus.shakespeare().train, config.context, config.batch, 1).next()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    cpu: dict[str, list[float]] = {way: [] for way in WAYS}
    try:
        for model in models.values():
            model.initialise(42)
        for _ in range(rounds + 1):
            for way, model in models.items():
                wall, busy = step_seconds(model, tokens, 5)
                seconds[way].append(wall)
                cpu[way].append(busy)
    finally:
        for model in models.values():
            model.close()
    found = {}
    for way in WAYS:
        ratios = {name: [a / b for a, b in zip(each[way][1:], each["f32"][1:])] for name, each in (("ratio", seconds), ("cpu_ratio", cpu))}
        found[way] = {"ms": round(1e3 * min(seconds[way]), 2), "cpu_ms": round(1e3 * min(cpu[way]), 2)}
        found[way] |= {name: round(statistics.median(each), 3) for name, each in ratios.items()}
    return found


def memory() -> dict:
    """The plan's bytes of presets: of both moments, and in all."""
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.program import Program
    from posttrainllm.model.saving import Saving

    found = {}
    for preset in PLANNED:
        plans = {way: Program(GPTConfig.preset(preset), saving=Saving(moments=way)).memory() for way in WAYS}
        found[preset] = {way: {key: plan[key] for key in ("moments_bytes", "total_bytes")} for way, plan in plans.items()}
    return found


def main(arguments: list[str]) -> int:
    """Measure, print, write the JSON after every part."""
    parser = argparse.ArgumentParser(prog="./build.sh bench moments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="*", default=["small", "medium"])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seeds", nargs="+", type=int, default=[42, 43, 44])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=["follow", "loss", "seconds", "memory"], default=["follow", "loss", "seconds", "memory"])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    where, on = (options.device, options.threads), f"{options.threads} thread(s)" if options.device == "cpu" else options.device
    record = json.loads(options.out.read_text()) if options.out.exists() else {"follow": {}, "loss": {}, "seconds": {}, "memory": {}}

    def keep() -> None:
        record["date"], record["host"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), host.facts()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

    if "follow" in options.only:
        for way in WAYS[1:]:
            for beta2 in (0.99, 0.999):
                for spread in (0.0, 0.5):
                    for by_chance in (False, True):
                        label = f"{way}, beta2 {beta2:g}, sizes over 10^±{spread:g}, {'by chance' if by_chance else 'to the nearest'}"
                        record["follow"][label] = follow(beta2, way, by_chance, spread)
                        print(f"{label}: {record['follow'][label]}", flush=True)
        keep()
    if "memory" in options.only:
        record["memory"] = memory()
        for preset, ways in record["memory"].items():
            print(preset, {way: f"{each['moments_bytes']:,} of {each['total_bytes']:,}" for way, each in ways.items()}, flush=True)
        keep()
    if "seconds" in options.only:
        for preset in options.presets:
            record["seconds"][f"{preset}, {on}"] = found = times(preset, where, options.rounds)
            print(preset, found, flush=True)
        keep()
    if "loss" in options.only:
        for preset in options.presets:
            for seed in options.seeds:
                for way in WAYS:
                    label = f"{preset}, {options.steps} steps, seed {seed}, {way}" + ("" if options.device == "cpu" else f", {on}")
                    if label not in record["loss"]:
                        record["loss"][label] = train(preset, way, seed, options.steps, where)
                        keep()
                    print(f"{label}: {record['loss'][label]['loss_nats']} ({record['loss'][label]['seconds']} s)", flush=True)
    return 0
