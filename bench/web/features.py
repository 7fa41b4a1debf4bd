"""A sparse autoencoder on a trained model, timed part by part: the same code natively (bench/sae.py) and in the tab (ours_in_tab.py)."""

import time

from posttrainllm.study.recovery import Judge
from posttrainllm.study.sae_train import SAESettings
from posttrainllm.study.sparse import ROWS, activations_async, trainer_on

now = time.perf_counter


async def measure(model, tokens, held_out, machine=None, **settings) -> dict:
    """Read activations of the middle block over a text's tokens, train with the defaults and judge on tokens held out."""
    made, address = SAESettings.of(**settings), f"blocks.{model.config.layers // 2}.resid_post"
    began = now()
    rows = await activations_async(model, tokens, address, ROWS, made.seed)
    read, trainer = now(), trainer_on(model, rows, address, made, machine)
    async for report in trainer.run_async():
        last = report
    trained = now()
    judge = Judge(model, held_out, trainer.autoencoder, machine=machine)
    while judge.done < judge.total:
        await judge.advance_async()
    done = now()
    seconds = {"reading": read - began, "training": trained - read, "judging": done - trained, "all": done - began}
    return {
        "address": address, "rows": len(rows), "settings": made.to_dict(), "steps": last.step, "resampled": last.resampled,
        "seconds": {name: round(each, 2) for name, each in seconds.items()}, "judged": judge.verdict().to_dict(),
    }  # fmt: skip
