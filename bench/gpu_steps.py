"""Training steps of the GPU engine natively: milliseconds, Python's share, memory, and the time of each kernel."""

from __future__ import annotations

import statistics
import struct
import time
from collections import defaultdict

from posttrainllm.backends.gpu import subjects
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import Program
from posttrainllm.model.saving import PLAIN, Saving
from posttrainllm.waiting import now

PYTORCH_EAGER_F32_MS = {
    "small": 4.5, "medium": 5.5, "large": 7.8, "xl": 10.3, "huge": 15.3, "massive": 22.8, "mega": 21.2,
    "gpt2-bytes": 64.0, "behemoth": 55.0, "behemoth-b8": 293.0,
}  # fmt: skip
"""PyTorch 2.11 eager float32 on an H200."""
RECIPE = (3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0)


def config_of(name: str) -> GPTConfig:
    """A preset, or "gpt2-bytes", or "behemoth-b8"."""
    if name == "gpt2-bytes":
        return GPTConfig.preset("gpt2", vocabulary=256)
    base, _, batch = name.partition("-b")
    config = GPTConfig.preset(base)
    return config.with_batch(int(batch)) if batch else config


class Steps:
    """A model that trains on made-up tokens, in blocks as the trainer sends them; with "+lora" after its name a usual adapter alone."""

    def __init__(self, machine, name: str, probed: bool = True, saving: Saving = PLAIN) -> None:
        self.machine, self.name = machine, name
        base, _, adapted = name.partition("+")
        config = self.config = config_of(base)
        program = Program(config, True, LoRAConfig.of() if adapted else None, saving)
        self.model = GPT(config, machine, program)
        began = time.perf_counter()
        if probed:
            now(self.model.prepare())
        else:
            self.model._prepared = True
        self.prepare_seconds = time.perf_counter() - began
        self.model.initialise(42)
        self.queue = now(self.model.steps())
        self.flops = program.step.plan.graph.flops()
        self.loaded = self.model._loaded[id(program.step)]

    def block(self, count: int):
        """(tokens, targets, recipes) of `count` steps."""
        import numpy as np

        c = self.config
        flat = np.arange(count * c.batch * c.context + 1)
        flat = ((flat * 7919 + flat // 3) % min(256, c.vocabulary)).astype(np.int32)
        shape = (count, c.batch, c.context)
        return flat[:-1].reshape(shape), flat[1:].reshape(shape), [RECIPE] * count

    def measure(self, groups: int = 5, group_seconds: float = 0.25) -> dict:
        """Milliseconds a step with at most three blocks under way, losses coming back behind; the median of groups."""
        queue, losses, hosts, times = self.queue, [], [], []
        queue.push(*self.block(2))
        now(queue.drain())
        began = time.perf_counter()
        queue.push(*self.block(2))
        now(queue.drain())
        once = (time.perf_counter() - began) / 2
        count = max(1, min(16, int(0.03 / once)))
        blocks = max(2, int(group_seconds / once / count))
        block = self.block(count)
        for _ in range(groups + 1):
            began, host = time.perf_counter(), 0.0
            for _ in range(blocks):
                start = time.perf_counter()
                queue.push(*block)
                losses += queue.poll()
                host += time.perf_counter() - start
                while queue.under_way > 2:
                    losses += now(queue.landed())
            losses += now(queue.drain())
            times.append((time.perf_counter() - began) / (blocks * count) * 1e3)
            hosts.append(host / (blocks * count) * 1e3)
        ms, host_ms = statistics.median(times[1:]), statistics.median(hosts[1:])
        row = {
            "preset": self.name, "precision": self.machine.options.precision, "ms": round(ms, 3), "host_ms": round(host_ms, 3),
            "host_share": round(host_ms / ms, 3), "dispatches": len(self.loaded.lowered.dispatches),
            "tflops": round(self.flops / ms / 1e9, 2), "tokens_per_second": round(self.config.batch * self.config.context / ms * 1e3), "prepare_seconds": round(self.prepare_seconds, 2),
            "loss": round(losses[-1][0], 4), "memory": self.model.memory(),
        }  # fmt: skip
        if self.name in PYTORCH_EAGER_F32_MS:
            row["pytorch_eager_f32_ms"] = PYTORCH_EAGER_F32_MS[self.name]
            row["ratio"] = round(PYTORCH_EAGER_F32_MS[self.name] / ms, 2)
        return row

    def kernels(self) -> dict[str, tuple[int, float]]:
        """Entry (with its sizes, of a matmul) to (dispatches, microseconds in all): a pass for each dispatch."""
        machine, loaded = self.machine, self.loaded
        calls, dispatches = machine.calls_of(loaded), loaded.lowered.dispatches
        wgpu, device, count = machine._wgpu, machine._device, len(dispatches)
        queries = device.create_query_set(type="timestamp", count=2 * count)
        resolved = device.create_buffer(
            size=16 * count, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        )
        for _ in range(3):
            encoder = device.create_command_encoder()
            for number, call in enumerate(calls):
                writes = {
                    "query_set": queries, "beginning_of_pass_write_index": 2 * number, "end_of_pass_write_index": 2 * number + 1,
                }  # fmt: skip
                machine._encode(encoder, [call], writes)
            encoder.resolve_query_set(queries, 0, 2 * count, resolved, 0)
            machine.submit(encoder)
            ticks = struct.unpack(f"<{2 * count}Q", bytes(device.queue.read_buffer(resolved)))
        totals: dict[str, list] = defaultdict(lambda: [0, 0.0])
        for number, dispatch in enumerate(dispatches):
            shape = " ".join(str(v) for v in struct.unpack(f"<{len(dispatch.uniforms) // 4}I", dispatch.uniforms)[:3])
            entry = totals[f"{dispatch.entry} {shape}" if dispatch.kernel in subjects.LETTERS else dispatch.entry]
            entry[0] += 1
            entry[1] += (ticks[2 * number + 1] - ticks[2 * number]) / 1e3
        return {name: (n, round(us, 1)) for name, (n, us) in sorted(totals.items(), key=lambda item: -item[1][1])}
