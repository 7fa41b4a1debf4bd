"""./build.sh bench memory [--presets NAME…] [--cuda] [--out FILE]: the most memory that a training step takes, beside PyTorch's.

The same model, batch and way of saving on both sides: a plain step; every block computed again in the backward (ours: Saving.recompute,
theirs: torch.utils.checkpoint); the batch in parts whose gradients add up; both. PyTorch is eager, with fused AdamW and gradients set to
None after each step.

On a CPU the figure is the highest total of PyTorch's own allocator ("Total Allocated" of its profiler, from before the model is made to
the end of the second step, so that AdamW's moments are there), in a process of its own. Ours is what the plan takes, all regions at once
before the first step; it never grows. Neither counts what the products' kernels need for themselves (ours: held_bytes less the plan's). Beside them stands how far each process grew as the
system counts it (peak resident set less that before the model), where the allocators' slack and code loaded on the way count too.
With --cuda theirs is torch.cuda.max_memory_allocated on the GPU at hand; ours what the plan needs, and what the GPU engine will hold
(share and met are the plan's, gpu_share and gpu_met the GPU engine's). --again renews ours in that record, on any machine: theirs stay.
The record is bench/results/memory.json (with --cuda memory_cuda.json).
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import host
from bench.child import Child

HERE = Path(__file__).parent
PRESETS = ("medium", "huge", "mega", "gpt2")
CPU_BATCH = {"gpt2": 2}
"""A step of gpt2 with its batch of 4 takes minutes on two cores; bytes grow in proportion."""
THREADS, STEPS = 2, 2


def ways(layers: int, batch: int) -> dict[str, dict]:
    """The settings compared, by name: micro_batches and recompute."""
    parts = next((parts for parts in (4, 2) if batch % parts == 0 and batch >= parts), 1)
    found = {"plain": (1, 0), "recompute": (1, layers)}
    if parts > 1:
        found |= {"parts": (parts, 0), "parts and recompute": (parts, layers)}
    return {name: {"micro_batches": each[0], "recompute": each[1]} for name, each in found.items()}


def resident_bytes(what: str = "VmRSS") -> int:
    """Bytes of this process that are in memory (VmRSS), or the most there were (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return 1024 * int(line.split()[1])
    return 0


class Ours:
    """A Program on the native engine."""

    def __init__(self, preset: str, threads: int) -> None:
        self.preset, self.threads = preset, threads

    def peak(self, batch: int, saving: dict) -> dict:
        """{"planned_bytes", "resident_bytes", "loss_nats"} of a few steps."""
        import numpy as np
        from posttrainllm.model.config import GPTConfig
        from posttrainllm.model.live import GPT
        from posttrainllm.model.program import Program
        from posttrainllm.model.saving import Saving

        config = GPTConfig.preset(self.preset, batch=batch)
        program, before = Program(config, saving=Saving(**saving)), resident_bytes()
        model = GPT.on(program, "cpu", self.threads)
        model.initialise(1)
        rows = (np.arange(batch * (config.context + 1)) * 7919 % config.vocabulary).astype("<i4").reshape(batch, -1)
        pair = [np.ascontiguousarray(part).tobytes() for part in (rows[:, :-1], rows[:, 1:])]
        for _ in range(STEPS):
            loss, _ = model.step(*pair, (1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 10.0, 20.0))
        held = model.memory()["total_bytes"]
        model.close()
        return {"held_bytes": held, "resident_bytes": resident_bytes("VmHWM") - before, "loss_nats": loss}


class Torch:
    """The same in PyTorch."""

    def __init__(self, preset: str, threads: int) -> None:
        import torch

        self.preset, self.torch = preset, torch
        torch.set_num_threads(threads)

    def peak(self, batch: int, saving: dict, device: str = "cpu") -> dict:
        """{"allocated_bytes", "resident_bytes", "loss_nats"}: the highest of the allocator's total over a few steps."""
        torch, before = self.torch, resident_bytes()
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            loss = self._train(batch, saving, device)
            return {"allocated_bytes": torch.cuda.max_memory_allocated(), "loss_nats": loss, "device": torch.cuda.get_device_name()}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            loss = self._train(batch, saving, device)
        grown = resident_bytes("VmHWM") - before
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "trace.json")
            profile.export_chrome_trace(str(file))
            events = json.loads(file.read_text())["traceEvents"]
        totals = [each["args"]["Total Allocated"] for each in events if each.get("name") == "[memory]"]
        return {"allocated_bytes": max(totals), "resident_bytes": grown, "loss_nats": loss}

    def _train(self, batch: int, saving: dict, device: str) -> float:
        from bench.torch_gpt import Model
        from posttrainllm.model.config import GPTConfig

        torch, nn = self.torch, self.torch.nn
        config = GPTConfig.preset(self.preset, batch=batch)
        torch.manual_seed(1)
        with torch.device(device):
            model = Model(config)
        model.checkpointed = saving["recompute"]
        decayed = [each for each in model.parameters() if each.dim() == 2]
        others = [each for each in model.parameters() if each.dim() != 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
        rows = (torch.arange(batch * (config.context + 1), device=device) * 7919 % config.vocabulary).view(batch, -1)
        parts = saving["micro_batches"]
        for _ in range(STEPS):
            total = 0.0
            for part in rows.chunk(parts):
                loss = model(part[:, :-1], part[:, 1:]) / parts
                loss.backward()
                total += loss.item()
                del loss
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return total


def planned_bytes(config, saving: dict) -> dict:
    """Bytes by kind of our plan."""
    from posttrainllm.model.choosing import planned
    from posttrainllm.model.saving import Saving

    return planned(config, None, Saving(**saving)).memory


def on_gpu(config, saving: dict) -> int:
    """Bytes that our GPU engine will hold, in buffers of up to 4 GiB, as large GPUs have them."""
    from posttrainllm.backends.gpu.limits import Limits
    from posttrainllm.backends.gpu.options import Options
    from posttrainllm.backends.gpu.predict import Predictor
    from posttrainllm.model.held import predicted
    from posttrainllm.model.program import Program
    from posttrainllm.model.saving import Saving

    limits = Limits(buffer_bytes=(1 << 32) - 256, binding_bytes=(1 << 31) - 4, workgroup_memory_bytes=49152, invocations=1024)
    program = Program(config, saving=Saving(**saving))
    return predicted(program, Predictor(Options(limits)))["total_bytes"]


def compare(preset: str, batch: int, cuda: bool) -> dict:
    """One preset: our bytes and theirs for each way."""
    from posttrainllm.model.config import GPTConfig

    found = {}
    for name, saving in ways(GPTConfig.preset(preset).layers, batch).items():
        print(f"{preset}, batch {batch}: {name} …", file=sys.stderr, flush=True)
        config = GPTConfig.preset(preset, batch=batch)
        row = {"saving": saving, "plan": planned_bytes(config, saving)}
        theirs = Child("bench.memory", "Torch", preset, THREADS)
        try:
            row["torch"] = theirs.call("peak", batch, saving, "cuda" if cuda else "cpu")
        finally:
            theirs.close()
        if cuda:
            row["ours"] = {"held_bytes": on_gpu(config, saving)}
        else:
            ours = Child("bench.memory", "Ours", preset, THREADS)
            try:
                row["ours"] = ours.call("peak", batch, saving)
            finally:
                ours.close()
        found[name] = judged(row, cuda)
    return found


def judged(row: dict, cuda: bool) -> dict:
    """A row with our shares of theirs, and whether they are at most theirs."""
    theirs = row["torch"]["allocated_bytes"]
    for prefix, ours in (("", row["plan"]["total_bytes"]), *((("gpu_", row["ours"]["held_bytes"]),) if cuda else ())):
        row |= {f"{prefix}share": round(ours / theirs, 3), f"{prefix}met": ours <= theirs}
    return row


def again(record: dict) -> dict:
    """The record of --cuda with ours anew; and with what bench torchrun measured of PyTorch on one GPU in f32."""
    from posttrainllm.model.config import GPTConfig

    from bench.torchrun import OTHERS

    cases = {name: dict(found) for name, found in record["parts"].items() if "torchrun" not in name}
    for case in json.loads((HERE / "results" / "torchrun.json").read_text())["cases"]:
        if (case["world"], case["precision"]) == (1, "f32"):
            name = f"{case['shape']}, {case['batch']} (torchrun.json)"
            theirs = {"allocated_bytes": case["peak_bytes"], "device": "NVIDIA H200"}
            saving = {"micro_batches": case["micro_batches"], "recompute": case["recompute"]}
            cases.setdefault(name, {})[case["saving"]] = {"saving": saving, "torch": theirs}
    for name, found in cases.items():
        preset, batch = name.split(" (")[0].split(", ")
        config = GPTConfig.preset(preset, batch=int(batch))
        if "torchrun" in name:
            config = replace(config, **OTHERS.get(preset, {}))
        for row in found.values():
            saving = row["saving"]
            saving["recompute"] = config.layers if saving["recompute"] < 0 else saving["recompute"]
            row |= {"plan": planned_bytes(config, saving), "ours": {"held_bytes": on_gpu(config, saving)}}
            judged(row, True)
    return record | {"ours_renewed": today(), "parts": cases}


def today() -> str:
    """Now, as records say it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def table(parts: dict) -> str:
    """The figures for a person: megabytes of 1,000,000 bytes."""
    lines = ["| preset, batch | way | ours, plan MB | PyTorch MB | share | at most PyTorch's | ours, process MB | PyTorch, process MB | ours on a GPU |", "|---" * 9 + "|"]

    def mb(row: dict, key: str) -> str:
        return f"{row[key] / 1e6:,.1f}" if row.get(key) else "-"

    for label, found in parts.items():
        for name, row in found.items():
            cells = (label, name, mb(row["plan"], "total_bytes"), mb(row["torch"], "allocated_bytes"), f"{row['share']:.2f}")
            met = "yes" if row["met"] else "**no**"
            gpu = f"{mb(row['ours'], 'held_bytes')} ({row['gpu_share']:.3f}{'' if row['gpu_met'] else ', **no**'})" if "gpu_met" in row else "-"
            lines.append("| " + " | ".join((*cells, met, mb(row["ours"], "resident_bytes"), mb(row["torch"], "resident_bytes"), gpu)) + " |")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure and write. Always 0 when it ran: a miss is recorded as one."""
    parser = argparse.ArgumentParser(prog="./build.sh bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    parser.add_argument("--cuda", action="store_true", help="PyTorch on the GPU at hand, beside our plan")
    parser.add_argument("--again", action="store_true", help="renew our figures in the record of --cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.again:
        out = HERE / "results" / "memory_cuda.json"
        record = again(json.loads(out.read_text()))
        out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        print(table(record["parts"]))
        return 0
    config = importlib.import_module("posttrainllm.model.config").GPTConfig
    parts = {}
    for preset in options.presets:
        batch = config.preset(preset).batch if options.cuda else CPU_BATCH.get(preset, config.preset(preset).batch)
        parts[f"{preset}, {batch}"] = compare(preset, batch, options.cuda)
    record = {
        "command": " ".join(["./build.sh bench memory", *arguments]),
        "date": today(),
        "host": host.facts(),
        "threads": THREADS,
        "parts": parts,
    }
    given = options.out and Path(os.environ.get("PTL_CALLER_CWD") or ".", options.out)
    out = given or HERE / "results" / ("memory_cuda.json" if options.cuda else "memory.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(table(parts))
    print(f"\nWritten to {out}")
    return 0
