"""`torchrun -m tests.helpers.torchrun_many FOLDER`: what FOLDER/tasks.json lists, one after the other in the same processes.

A start takes seconds, for PyTorch is loaded anew each time; what is tested takes less than one. A task is the arguments of
`posttrainllm.torch_engine`, or the name of a function below. The processes join once, for all tasks: gloo does not always find the
others a second time. The leader's output of task n is in FOLDER/n.out. The first status other than 0 ends it, as torchrun would.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from posttrainllm.cli import app
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.saving import Saving
from posttrainllm.torch_engine.model import TorchGPT
from posttrainllm.torch_engine.ranks import Ranks
from posttrainllm.train.schedule import recipe
from posttrainllm.train.settings import training_settings

UNEVEN = GPTConfig(layers=2, channels=24, heads=2, context=16, vocabulary=256, batch=6)
UNEVEN_STEPS = 4


def uneven_batches() -> list[tuple[bytes, bytes]]:
    """Batches whose targets count in every second process much more than in the first, and of one row there in none."""
    rng = np.random.default_rng(3)
    batches = []
    for step in range(UNEVEN_STEPS):
        tokens, targets = rng.integers(0, 256, (2, UNEVEN.batch, UNEVEN.context)).astype("<i4")
        targets[0] = -100
        targets[1:3, step + 1 :] = -100
        batches.append((tokens.tobytes(), targets.tobytes()))
    return batches


def uneven_steps(model) -> list[tuple[float, float]]:
    """[(loss, norm) of each step] of any engine's model, from seed 5's weights."""
    model.initialise(5)
    settings = training_settings({"warmup_steps": 0, "learning_rate": 0.003, "clip": 0.5})
    return [model.step(*batch, recipe(step, settings)) for step, batch in enumerate(uneven_batches(), 1)]


def uneven() -> None:
    """Print uneven_steps under DDP and under FSDP2, in micro-batches of one row, and the losses evaluated then."""
    ranks = Ranks.open("cpu")
    for parallel in ("ddp", "fsdp"):
        model = TorchGPT(UNEVEN, ranks, Saving(3), parallel=parallel, threads=1)
        found = uneven_steps(model)
        total, counted = model.losses(uneven_batches())
        print(json.dumps({"parallel": parallel, "steps": found, "mean_loss": total / counted, "counted": counted}))


def main(folder: Path) -> int:
    leads = os.environ["RANK"] == "0"
    dist.init_process_group("gloo")
    dist.init_process_group, Ranks.close = (lambda *_: None), (lambda _: None)
    for number, task in enumerate(json.loads((folder / "tasks.json").read_text())):
        with open(folder / f"{number}.out" if leads else os.devnull, "w") as out, contextlib.redirect_stdout(out):
            if isinstance(task, str):
                status = {"uneven": uneven}[task]()
            else:
                status = app(["train", "--engine", "torch", *task], prog_name="posttrainllm", standalone_mode=False)
        if status:
            return status
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    ended = main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(ended)  # as posttrainllm.torch_engine ends
