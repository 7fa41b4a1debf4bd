"""DDP and FSDP2 on 1, 2 … GPUs: `python -m bench.torchrun [--worlds 1 2] [--shapes behemoth gpt2] [--seconds S] [--out FILE]`.

For each number of processes one torchrun, which goes through the cases in turn: batch as it is over all (`strong`), and so many rows a
process (`weak`), in f32 and bf16, under DDP and FSDP2; with one process there is nothing to choose, and what Saving earns is measured
beside. A figure is the middle of whole training steps (draw nothing, copy the batch, forward, backward, clip, AdamW, read loss and norm).
Memory is what the process with the most of it held at most, as CUDA's allocator counts tensors; `kept` is weights and moments alone.
First comes a check: 20 steps of `small` from one text in each way, as far from the float64 reference as the record says.
Needs this repository and torch alone: no network, no native extension. It runs on CPUs too (--device cpu), to see that it works.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
LETTERS = bytes(97 + (i * i + i // 7) % 26 for i in range(20000))
ROWS = {"behemoth": 16, "gpt2": 16}
"""Rows of a batch for one process (512 and 1,024 tokens each)."""
OTHERS = {"gpt2": {"vocabulary": 50304}}  # the table's rows a multiple of 64, as every PyTorch recipe has them
WARMUPS = 3


def main(arguments: list[str]) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(prog="python -m bench.torchrun", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 2], help="numbers of processes")
    parser.add_argument("--shapes", nargs="+", default=["behemoth", "gpt2"], help="presets")
    parser.add_argument("--precisions", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--rows", type=int, help="rows a process, instead of 16")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each case, after 3 steps; at least 5 steps")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=HERE / ".out" / "torchrun.json")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        return child(options)
    record = {
        "command": " ".join(["python -m bench.torchrun", *arguments]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()},
        "curve": {},
        "cases": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for world in options.worlds:
        part = options.out.with_suffix(f".{world}.part")
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}", "--master-addr=127.0.0.1",
                   f"--master-port={29570 + world}", "-m", "bench.torchrun", *arguments, "--child", str(part)]  # fmt: skip
        code = subprocess.run(command, env={"OMP_NUM_THREADS": "4", **os.environ}).returncode
        if part.exists():  # a case that failed has ended the process: those before it are there
            found = json.loads(part.read_text())
            part.unlink()
            record["software"] = found["software"]
            record["curve"] |= found["curve"]
            record["cases"] += found["cases"]
        if code:
            record.setdefault("failed", []).append({"world": world, "exit_code": code})
    _scaling(record["cases"])
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))
    print(f"\nWritten to {options.out}")
    return 1 if "failed" in record else 0


def _scaling(cases: list[dict]) -> None:
    """Tokens a second against one process's of the same shape and precision: `times`, and by the number of processes `efficiency`."""
    alone = {(case["shape"], case["precision"]): case for case in cases if case["world"] == 1 and case["saving"] == "none"}
    for case in cases:
        one = alone.get((case["shape"], case["precision"]))
        if one and case.get("tokens_per_second") and one.get("tokens_per_second") and case["saving"] == "none":
            case["times"] = round(case["tokens_per_second"] / one["tokens_per_second"], 3)
            case["efficiency"] = round(case["times"] / case["world"], 3)


def table(record: dict) -> str:
    """The record as lines to read."""
    lines = [f"20 steps of small, largest difference of a loss from float64, nats: {record['curve']}", ""]
    lines.append("shape     prec  processes  how   scaling  batch  saving              ms/step   tokens/s  TFLOP/s/GPU  times   kept GB  peak GB")
    for case in record["cases"]:
        head = f"{case['shape']:9} {case['precision']:5} {case['world']:9}  {case['parallel']:5} {case['scaling']:7} {case['batch']:6}  {case['saving']:18}"
        if "error" in case:
            lines.append(f"{head} {case['error']}")
            continue
        times = f"{case['times']:.2f}" if "times" in case else "-"
        lines.append(
            f"{head} {case['ms_per_step']:8.1f} {case['tokens_per_second']:10,.0f} {case['teraflops_per_process']:12.1f}  {times:>5} "
            f"{case['kept_bytes'] / 1e9:8.2f} {case['peak_bytes'] / 1e9:8.2f}"
        )
    return "\n".join(lines)


def child(options) -> int:
    """One process of a torchrun: every case in turn; the first process writes them down after each."""
    import torch

    from posttrainllm.torch_engine.ranks import Ranks

    ranks = Ranks.open(options.device)
    cuda = ranks.device.type == "cuda"
    found = {
        "software": {
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(ranks.device) if cuda else "CPU",
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
        },
        "curve": {},
        "cases": [],
    }

    def keep() -> None:
        if ranks.leads:
            options.child.write_text(json.dumps(found))

    for precision in options.precisions:
        for parallel in ("ddp", "fsdp")[: min(2, ranks.world)]:
            name = f"{ranks.world} {parallel if ranks.world > 1 else 'alone'} {precision}"
            found["curve"][name] = curve(ranks, parallel, precision)
            keep()
    for case in cases(options, ranks.world):
        found["cases"].append(measure(ranks, case, options.seconds))
        if ranks.leads:
            print({key: value for key, value in found["cases"][-1].items() if key != "ms"}, flush=True)
        keep()
    ranks.close()
    return 0


def cases(options, world: int) -> list[dict]:
    """What is measured with so many processes."""
    wanted = []
    for shape in options.shapes:
        rows = options.rows or ROWS.get(shape, 16)
        for precision in options.precisions:
            base = {"shape": shape, "precision": precision, "world": world, "saving": "none", "micro_batches": 1, "recompute": 0}
            if world == 1:
                wanted.append(base | {"parallel": "alone", "scaling": "-", "batch": rows})
                every = {"parallel": "alone", "scaling": "-", "batch": rows}
                wanted.append(base | every | {"saving": "recompute all", "recompute": -1})
                wanted.append(base | every | {"saving": "4 micro-batches", "micro_batches": 4})
                continue
            for parallel in ("ddp", "fsdp"):
                wanted.append(base | {"parallel": parallel, "scaling": "strong", "batch": rows})
                wanted.append(base | {"parallel": parallel, "scaling": "weak", "batch": rows * world})
    return wanted


def measure(ranks, case: dict, seconds: float) -> dict:
    """A case with its figures, or with the error that it met (no memory)."""
    import torch

    from posttrainllm.errors import PostTrainError
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.saving import Saving
    from posttrainllm.torch_engine.model import TorchGPT
    from posttrainllm.train.schedule import recipe
    from posttrainllm.train.settings import training_settings

    config = replace(GPTConfig.preset(case["shape"]), batch=case["batch"], **OTHERS.get(case["shape"], {}))
    saving = Saving(case["micro_batches"], config.layers if case["recompute"] < 0 else case["recompute"])
    cuda = ranks.device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    model = None
    try:
        parallel = case["parallel"] if ranks.world > 1 else "ddp"
        began = time.perf_counter()
        model = TorchGPT(config, ranks, saving, case["precision"], parallel)
        model.initialise(42)
        if cuda:
            torch.cuda.synchronize()
        made, held = time.perf_counter() - began, model.memory()
        kept = held["weights_bytes"] + held["moments_bytes"]
        settings = training_settings({}, config.channels)
        generator = torch.Generator().manual_seed(1)
        batch = torch.randint(0, 256, (2, config.batch, config.context), generator=generator, dtype=torch.int32).numpy()
        tokens, targets = batch[0].tobytes(), batch[1].tobytes()
        times, number, stop, until = [], 0, False, None
        while not stop:
            number += 1
            at = time.perf_counter()
            loss, norm = model.step(tokens, targets, recipe(number, settings))  # ends with both numbers on the host
            if number > WARMUPS:
                times.append(1000 * (time.perf_counter() - at))
            if number == WARMUPS:
                until = time.perf_counter() + seconds
                if cuda:  # NCCL lets go of what the case before sent only now
                    torch.cuda.reset_peak_memory_stats(ranks.device)
            ended = number >= WARMUPS + 5 and (time.perf_counter() > until or number >= WARMUPS + 200)
            stop = bool(ranks.agree(int(ended), 0.0)[0])
        peak = torch.tensor([float(kept), float(model.peak_memory_bytes() or 0)], device=ranks.device, dtype=torch.float64)
        if ranks.world > 1:
            torch.distributed.all_reduce(peak, torch.distributed.ReduceOp.MAX)
        ms = statistics.median(times)
        rate = config.batch * config.context / ms * 1000
        return case | {
            "parameters": config.parameter_count(), "context": config.context, "vocabulary": config.vocabulary, "steps": len(times),
            "made_seconds": round(made, 2), "ms_per_step": round(ms, 2), "ms_least": round(min(times), 2), "ms_most": round(max(times), 2),
            "tokens_per_second": round(rate), "teraflops_per_process": round(rate * flops_per_token(config) / ranks.world / 1e12, 2),
            "kept_bytes": int(peak[0]), "peak_bytes": int(peak[1]), "loss_nats": round(loss, 5), "gradient_norm": round(norm, 4),
        }  # fmt: skip
    except PostTrainError as error:
        return case | {"error": str(error)}
    finally:
        if model is not None:
            model.close()
        del model
        gc.collect()  # wrappers and hooks hold each other; the next case's memory must not be this one's


def flops_per_token(config) -> float:
    """Of forward and backward, without what is computed again: 6 a matrix weight, and attention's 6·T·C a layer (causal: half of 12)."""
    c, f = config.channels, config.hidden
    matrices = config.layers * (4 * c * c + 2 * c * f) + config.vocabulary * c
    return 6.0 * matrices + 6.0 * config.layers * config.context * c


def curve(ranks, parallel: str, precision: str) -> float:
    """The largest difference of 20 steps' losses (nats) from the float64 reference engine's, on every process."""
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.live import GPT
    from posttrainllm.torch_engine.model import TorchGPT
    from posttrainllm.train.trainer import Trainer

    config, settings = GPTConfig.preset("small"), {"evaluation_tokens": 512}
    wanted = REFERENCE.get("losses")
    if wanted is None:
        def reference() -> list[float]:
            model = GPT.create(config, device="reference")
            trainer = Trainer(model, Corpus("letters", LETTERS), settings)
            return [trainer.train_step().loss_nats for _ in range(20)]

        wanted = REFERENCE["losses"] = ranks.first(reference, lambda losses: losses)
    model = TorchGPT(config, ranks, precision=precision, parallel=parallel)
    model.initialise(42)
    trainer = Trainer(model, Corpus("letters", LETTERS), settings)
    found = [trainer.train_step().loss_nats for _ in range(20)]
    model.close()
    return max(abs(a - b) for a, b in zip(found, wanted))


REFERENCE: dict[str, list[float]] = {}
"""Made once in a process."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
