"""A night of use in little time: one long run of `tiny`, then many cycles of train, write and switch to another run, in one worker.

A short version runs with the other browser tests. The long one is `./build.sh test endurance -k soak`: it puts what it measured into
bench/results/soak.json. Memory is asserted, speed is only recorded: on a machine with other work to do a rate says nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import time

import pytest

from bench import host
from e2e.conftest import rewritten
from e2e.driver import Driver
from e2e.test_gpu_engine import WorkerHeap, inside
from e2e.test_memory_held import COUNTED, HELD_BYTES
from tools import paths

LONG = bool(os.environ.get("PTL_ENDURANCE"))
STEPS, CYCLES = (20_000, 200) if LONG else (300, 8)
SETTLED = 20 if LONG else 4  # cycles after which all that is kept on purpose is there; even, as CYCLES: the open run is the same
RECORD = paths.REPO / "bench" / "results" / "soak.json"
SAME_RATE = 0.03
HEAP_SLACK_BYTES = 1 << 20  # of the worker's JavaScript, after a collection
RUN_SLACK_BYTES = 64 << 20  # of Python's memory during the long run, whose history grows by a row a step
SETTINGS = {"evaluate_every_steps": 1000, "evaluation_tokens": 2048, "warmup_steps": 10}
# Pyodide keeps a map of living PyProxies where it is told to; made before the first is, so that all are in it.
TRACED = {
    "pyodide.registerJsModule('posttrainllm_gpu', gpu);": "globalThis.python = pyodide; pyodide._module.enable_pyproxy_allocation_tracing(); "
    "pyodide.registerJsModule('posttrainllm_gpu', gpu);"
}
PYTHON = """() => ({ python: python._module.HEAPU8.length, proxies: python._module.pyproxy_alloc_map.size,
  objects: python.runPython('import gc; gc.collect(); len(gc.get_objects())') })"""


def held(driver: Driver, heap: WorkerHeap) -> dict[str, int]:
    """Bytes of all engines' memories, of Python and of JavaScript, and the objects and PyProxies that live."""
    return {"engines": inside(driver, HELD_BYTES), **inside(driver, PYTHON), "heap": heap.bytes()}


def train(driver: Driver, steps: int) -> tuple[str, list[dict]]:
    """A run's id and its step events."""
    driver.ask("train.start", preset="tiny", training=SETTINGS | {"steps": steps, "decay_steps": max(steps, 20)})
    run_id, events = driver.wait("started")["run_id"], []
    while (event := driver.wait("step", "stopped"))["kind"] == "step":
        events.append(event)
    assert event["reason"] == "finished" and events[-1]["step"] == steps, event
    return run_id, events


def rate(events: list[dict]) -> float:
    """Tokens a second over these events, as the page shows it: their median, so one pause does not count."""
    return statistics.median(event["tokens_per_second"] for event in events if event["tokens_per_second"])


def cycle(driver: Driver, runs: list[str], number: int) -> None:
    """Train a new run for a step, write with it, open an old one, write with that, delete the new one."""
    made, _ = train(driver, 1)
    driver.ask("write.start", prompt="The", tokens=4)
    driver.wait("wrote")
    driver.call("runs.open", "opened", run_id=runs[number % len(runs)])
    driver.ask("write.start", prompt="The", tokens=4)
    driver.wait("wrote")
    driver.call("runs.delete", "runs", run_id=made)


def record(figures: dict) -> None:
    if LONG:
        about = {"command": "./build.sh test endurance -k soak", "host": host.facts(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                 "load_1_minute": os.getloadavg()[0]}  # fmt: skip
        RECORD.write_text(json.dumps(about | figures, indent=2) + "\n")


@pytest.mark.endurance
@pytest.mark.slow
def test_soak(contexts, site):
    context = contexts()
    context.route("**/wasm.mjs", rewritten(COUNTED))
    context.route("**/worker.mjs", rewritten(TRACED))
    driver = Driver(context.new_page(), site.url)
    driver.wait("ready")
    driver.ask("settings", sample_every_seconds=0)
    driver.call("corpus.bundled", "corpus")
    heap = WorkerHeap(driver.page)

    short, _ = train(driver, STEPS // 10)
    before = held(driver, heap)
    began = time.perf_counter()
    long, events = train(driver, STEPS)
    seconds, after = time.perf_counter() - began, held(driver, heap)
    tenth = max(1, len(events) // 10)
    start, end = rate(events[tenth : 2 * tenth]), rate(events[-tenth:])

    cycles = []
    for number in range(CYCLES):
        cycle(driver, [short, long], number)
        if number + 1 in (SETTLED, CYCLES) or number % 20 == 0:
            cycles.append(held(driver, heap) | {"cycle": number + 1})
    settled, last = next(each for each in cycles if each["cycle"] == SETTLED), cycles[-1]
    record({"steps": STEPS, "seconds": round(seconds, 1), "tokens_per_second_start": round(start), "tokens_per_second_end": round(end),
            "end_over_start": round(end / start, 4), "same_rate": abs(end / start - 1) <= SAME_RATE,
            "held_before_run": before, "held_after_run": after, "held_in_cycles": cycles})  # fmt: skip

    assert after["engines"] == before["engines"], (before, after)
    assert after["python"] - before["python"] < RUN_SLACK_BYTES, (before, after)
    assert abs(after["proxies"] - before["proxies"]) < 20, (before, after)
    for name in ("engines", "python"):
        assert last[name] == settled[name], (name, cycles)
    assert last["proxies"] - settled["proxies"] < max(3, CYCLES // 10), cycles
    assert last["objects"] - settled["objects"] < max(50, CYCLES), cycles
    assert last["heap"] - settled["heap"] < HEAP_SLACK_BYTES, cycles
