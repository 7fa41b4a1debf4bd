"""The memory that the page predicts is within 5 % of what the run then uses, in the real tab: WebAssembly's memories are counted, not
what the engine says of itself. (test_gpu_engine.py asks the same of a GPU's buffers.)"""

from __future__ import annotations

import pytest

from e2e.conftest import rewritten
from e2e.driver import Driver

SETTINGS = {"steps": 2, "evaluate_every_steps": 1000, "evaluation_tokens": 64, "warmup_steps": 1}
# What wasm.mjs is served with: a test in the worker finds the memories of engines that were not closed.
COUNTED = {
    "this.bytes = memory.buffer.byteLength;": "(globalThis.memories ??= new Map()).set(this, memory); this.bytes = memory.buffer.byteLength;",
    "if (!this.#module) return;": "if (!this.#module) return; memories.delete(this);",
}
HELD_BYTES = "() => [...memories.values()].reduce((sum, each) => sum + each.buffer.byteLength, 0)"


def test_what_is_held_was_foreseen(contexts, site):
    """One model after the other, so that each also follows one that is gone."""
    context = contexts()
    context.route("**/wasm.mjs", rewritten(COUNTED))
    driver = Driver(context.new_page(), site.url)
    driver.wait("ready")
    driver.ask("settings", sample_every_seconds=0)
    driver.call("corpus.bundled", "corpus")
    for preset in ("tiny", "large", "small", "medium"):
        planned = driver.call("plan", "planned", preset=preset)
        driver.ask("train.start", preset=preset, training=SETTINGS)
        driver.wait("stopped")
        worker = next(each for each in driver.page.workers if each.url.endswith("/worker.mjs"))
        assert planned["fits"] and planned["memory"]["total_bytes"] == pytest.approx(worker.evaluate(HELD_BYTES), rel=0.05), preset
