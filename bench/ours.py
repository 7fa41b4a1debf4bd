"""Our contestant natively: the package's own Trainer on the C++ engine."""

from __future__ import annotations

import time

from bench import data


class Contestant:
    """Trains a preset on `threads` threads."""

    def __init__(self, preset: str, threads: int) -> None:
        from posttrainllm.data.corpus import Corpus
        from posttrainllm.model.live import GPT
        from posttrainllm.train.trainer import Trainer

        self.model = GPT.create(preset, seed=data.SEED, threads=threads)
        self.trainer = Trainer(self.model, Corpus.shakespeare(), data.settings(self.model.config))

    def run(self, count: int) -> list[dict]:
        """Take `count` steps: [{"ms", "loss_nats", "gradient_norm"}]. A step's time includes drawing its batch."""
        return [self._step() for _ in range(count)]

    def _step(self) -> dict:
        began = time.perf_counter()
        report = self.trainer.train_step()
        return {
            "ms": 1000 * (time.perf_counter() - began), "loss_nats": report.loss_nats, "gradient_norm": report.gradient_norm
        }

    def memory(self) -> int:
        """Bytes of all regions."""
        return self.model.program.memory()["total_bytes"]


class Gemm:
    """The matrix product alone, on one thread of the engine."""

    def __init__(self, preset: str, threads: int) -> None:
        from posttrainllm import _native

        self.engine = _native.Engine(threads)

    def peak(self, seconds: float) -> float:
        """GFLOP/s of multiply-adds in registers."""
        return self.engine.bench_peak(seconds)

    def gemm(self, layout: int, m: int, n: int, k: int, repeats: int) -> float:
        """Best seconds of C[m,n] = A·B."""
        return self.engine.bench_gemm(layout, m, n, k, repeats)
