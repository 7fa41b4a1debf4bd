"""The same start for every contestant: weights from one seed, the batches and AdamW's recipe of each step.

Ours makes them itself, from the seed, wherever it runs; PyTorch takes them from here, and jax-js from the files.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

SEED = 42
STEPS = 64
"""Batches that are made; a contestant that takes more steps begins again."""


def settings(config) -> dict:
    """The training settings of every contestant: the defaults for a model of this width."""
    from posttrainllm.train.settings import training_settings

    return training_settings(channels=config.channels)


def batches(config, steps: int = STEPS) -> list[tuple[bytes, bytes]]:
    """(tokens, targets) of each step, i32 [B,T] bytes, in the order in which our Trainer reads them."""
    from posttrainllm.data.batches import Batches
    from posttrainllm.data.corpus import Corpus

    found = Batches(Corpus.shakespeare().train, config.context, config.batch, settings(config)["seed"])
    return [found.next() for _ in range(steps)]


def recipes(config, steps: int = STEPS) -> list[tuple[float, ...]]:
    """AdamW's recipe of each step, [lr, beta1, beta2, eps, decay, clip, correction1, correction2]."""
    from posttrainllm.train.schedule import recipe

    return [recipe(step, settings(config)) for step in range(1, steps + 1)]


def weights(config) -> dict[str, tuple[tuple[int, ...], bool, bytes]]:
    """name: (shape, whether AdamW decays it, little-endian f32 bytes), linears as (in, out)."""
    from posttrainllm.model.live import GPT

    model = GPT.create(config, seed=SEED, threads=1, training=False)
    found = {each.name: (each.shape, each.decayed, model.weight_bytes(each.name)) for each in model.program.layout.parameters}
    model.close()
    return found


def write(config, folder: Path) -> None:
    """about.json, weights.bin and batches.bin, for a contestant in JavaScript."""
    folder.mkdir(parents=True, exist_ok=True)
    position, listed, data = 0, [], []
    for name, (shape, decays, raw) in weights(config).items():
        listed.append({"name": name, "shape": shape, "offset_bytes": position, "decays": decays})
        data.append(raw)
        position += len(raw)
    (folder / "weights.bin").write_bytes(b"".join(data))
    (folder / "batches.bin").write_bytes(b"".join(part for batch in batches(config) for part in batch))
    about = {"config": asdict(config), "weights": listed, "recipes": recipes(config)}
    (folder / "about.json").write_text(json.dumps(about))
