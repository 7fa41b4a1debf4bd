"""One training step: forward, backward, clipping, AdamW; ours and the peers', natively and in Chromium."""

from __future__ import annotations

from bench import data
from bench.child import Child
from bench.measure import interleave, summary, times_faster

THREADS = 2
NAMES = {
    "native": "ours, native, 2 threads",
    "torch": "PyTorch eager, 2 threads",
    "tab": "ours, Chromium, 2 threads",
    "jax_js": "jax-js WASM, Chromium, 2 workers",
    "native_1": "ours, native, 1 thread",
    "torch_1": "PyTorch eager, 1 thread",
    "tab_1": "ours, Chromium, 1 thread",
}
RATIOS = {
    "native_by_torch": ("native", "torch"),
    "tab_by_torch": ("tab", "torch"),
    "tab_by_jax_js": ("tab", "jax_js"),
    "native_1_by_torch_1": ("native_1", "torch_1"),
    "native_by_native_1": ("native", "native_1"),
    "tab_by_tab_1": ("tab", "tab_1"),
}


def measure(tab, preset: str, rounds: int) -> dict:
    """All contestants on one preset: their samples, the ratios of tokens a second, and how far their losses are apart."""
    from posttrainllm.model.config import GPTConfig

    config = GPTConfig.preset(preset)
    tokens = config.batch * config.context
    settings = data.settings(config)
    data.write(config, tab.data / preset)
    children = {
        "native": Child("bench.ours", "Contestant", preset, THREADS),
        "torch": Child("bench.torch_gpt", "Contestant", preset, THREADS),
        "native_1": Child("bench.ours", "Contestant", preset, 1),
        "torch_1": Child("bench.torch_gpt", "Contestant", preset, 1),
    }
    workers = {"tab": "ours:2", "tab_1": "ours:1", "jax_js": "jax"}
    try:
        made = {
            "tab": tab.call("ours:2", "make", preset=preset, threads=THREADS, settings=settings),
            "tab_1": tab.call("ours:1", "make", preset=preset, threads=1, settings=settings),
            "jax_js": tab.call("jax", "make", folder=f"/data/{preset}"),
        }
        contestants = {
            name: (lambda count, child=children[name]: child.call("run", count)) if name in children
            else (lambda count, worker=workers[name]: tab.call(worker, "run", count=count))
            for name in NAMES
        }
        samples = interleave(contestants, rounds)
        memory = {
            "native_regions_bytes": children["native"].call("memory"),
            "tab_bytes": made["tab"]["memory_bytes"],
            "jax_js_bytes": tab.call("jax", "memory"),
        }
    finally:
        for child in children.values():
            child.close()
        tab.call("ours:2", "close")
        tab.call("ours:1", "close")
        tab.end("jax")  # its memory never shrinks
    return {
        "config": config.to_dict(),
        "tokens_per_step": tokens,
        "threads": {"tab": made["tab"]["threads"], "jax_js": made["jax_js"]["threads"]},
        "contestants": {name: summary(rounds_, tokens) for name, rounds_ in samples.items()},
        "ratios": {name: times_faster(samples[a], samples[b]) for name, (a, b) in RATIOS.items()},
        "python_share_of_step": python_share(samples["tab"]),
        "first_losses_nats": {name: [round(step["loss_nats"], 5) for step in rounds_[0]] for name, rounds_ in samples.items()},
        "largest_loss_difference": {name: difference(samples["native"], rounds_) for name, rounds_ in samples.items()},
        "memory": memory,
    }


def python_share(rounds: list[list[dict]]) -> float:
    """Share of the counted steps' time that was not in the engine's replay."""
    steps = [step for each in rounds[1:] for step in each]
    total = sum(step["ms"] for step in steps)
    return round(1 - sum(step["engine_ms"] for step in steps) / total, 5)


def difference(ours: list[list[dict]], theirs: list[list[dict]]) -> float:
    """The largest difference in loss (nats) at equal steps, from equal weights, over all steps taken."""
    pairs = zip((step for each in ours for step in each), (step for each in theirs for step in each))
    return float(f"{max(abs(a['loss_nats'] - b['loss_nats']) for a, b in pairs):.3g}")
