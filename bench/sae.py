"""A sparse autoencoder on a trained `medium`: `./build.sh bench sae [--tab] [--steps N] [--sae-steps N] [--threads N] [--out FILE]`.

Trains `medium` on Shakespeare with the default settings, then features of its middle block with theirs, and judges them on the text held
out: seconds of each part, L0, the share of the loss recovered. With --tab the same once more in Chromium, model and all. Asked are at
least 90 % at L0 up to 32, in at most three minutes in the tab; the model's own training is not in those.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

from bench import host
from bench.web import features
from posttrainllm.configs import load

RECOVERED, L0, SECONDS = 0.9, 32.0, 180.0
"""What is asked: at least, at most, and at most in the tab."""


def training(steps: int) -> dict:
    """The model's settings: the defaults, over so many steps."""
    return {"steps": steps, "decay_steps": steps, "warmup_steps": min(load("training")["warmup_steps"], steps // 10)}


def natively(preset: str, steps: int, threads: int, settings: dict) -> dict:
    """Both trainings in this process, on the C++ engine."""
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.model.live import GPT
    from posttrainllm.train.trainer import Trainer
    from posttrainllm.waiting import now

    model, corpus = GPT.create(preset, seed=42, device="cpu", threads=threads), Corpus.shakespeare()
    trainer = Trainer(model, corpus, training(steps))
    began = time.perf_counter()
    for _ in range(steps):
        trainer.train_step()
    seconds = time.perf_counter() - began
    loss, sha256 = now(trainer.measure_async()), model.weights_sha256()
    found = now(features.measure(model, trainer.corpus.train, trainer.corpus.validation, **settings))
    model.close()
    return {"threads": threads, "model": {"steps": steps, "seconds": round(seconds, 1), "validation_loss_nats": loss, "weights_sha256": sha256}} | found


def in_the_tab(preset: str, steps: int, threads: int, settings: dict) -> dict:
    """Both in a worker of a tab, on the WebAssembly engine."""
    from bench.browser import Tab

    tab = Tab()
    try:
        tab.call("ours:sae", "make", preset=preset, threads=threads, settings=training(steps))
        seconds = 0.0
        for first in range(0, steps, 50):
            seconds += sum(each["ms"] for each in tab.call("ours:sae", "run", count=min(50, steps - first))) / 1000
        found = tab.call("ours:sae", "features", settings=settings)
        found["model"] |= {"steps": steps, "seconds": round(seconds, 1)}
        return {"browser": f"Chromium {tab.version}", "threads": threads} | found
    finally:
        tab.close()


def line(where: str, found: dict) -> str:
    """One measurement in words."""
    judged, seconds = found["judged"], found["seconds"]
    share = f"{100 * judged['recovered']:.1f} %" if judged["recovered"] is not None else "no share"
    return (
        f"{where}: {found['steps']:,} steps of {found['settings']['features']:,} features at {found['address']} in {seconds['all']:.0f} s (reading "
        f"{seconds['reading']:.0f}, training {seconds['training']:.0f}, judging {seconds['judging']:.1f}); {share} of the loss recovered at L0 "
        f"{judged['l0']:.1f}, {100 * judged['explained']:.1f} % explained; loss {judged['loss_nats']:.3f} nats, {judged['replaced_nats']:.3f} through "
        f"the features, {judged['zeroed_nats']:.3f} through zeros"
    )


def verdicts(record: dict) -> dict[str, bool]:
    """What was asked, and whether it is so."""
    said = {}
    for where in ("native", "tab"):
        if where in record:
            judged = record[where]["judged"]
            said[f"{where}: recovered at least {RECOVERED:.0%} at L0 up to {L0:.0f}"] = (judged["recovered"] or 0) >= RECOVERED and judged["l0"] <= L0
    if "tab" in record:
        said[f"tab: in at most {SECONDS:.0f} s"] = record["tab"]["seconds"]["all"] <= SECONDS
    if "native" in record and "tab" in record:
        both = (record[where]["model"]["weights_sha256"] for where in ("native", "tab"))
        said["the same weights were looked into"] = len(set(both)) == 1
    return said


def main(arguments: list[str]) -> int:
    """Measure, print, write the JSON; 1 where something asked for is not so."""
    parser = argparse.ArgumentParser(prog="./build.sh bench sae", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="medium")
    parser.add_argument("--steps", type=int, default=1200, help="of the model's training")
    parser.add_argument("--sae-steps", type=int, help="of the autoencoder's, instead of the default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tab", action="store_true", help="also in Chromium")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".out" / "sae.json")
    options = parser.parse_args(arguments)
    sizes = options.preset, options.steps, options.threads, {} if options.sae_steps is None else {"steps": options.sae_steps}
    record = {
        "command": " ".join(["./build.sh bench sae", *arguments]),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": host.facts(), "busy_cores": host.busy_cores(), "load_before": host.load(), "preset": options.preset,
    }  # fmt: skip
    for where, how in (("native", natively), *([("tab", in_the_tab)] if options.tab else [])):
        record[where] = how(*sizes)
        print(line(where, record[where]), flush=True)
    record["load_after"], record["asked"] = host.load(), verdicts(record)
    for what, so in record["asked"].items():
        print(f"{'yes' if so else 'NO '}  {what}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0 if all(record["asked"].values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
