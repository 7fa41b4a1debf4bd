"""Samples of several contestants taken in turn, so that a disturbance of the machine hits all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

PAUSE_SECONDS = 0.3
"""Before each turn: OpenMP's threads spin for a while after their work and would disturb the next contestant."""


def interleave(
    contestants: dict[str, Callable[[int], list[dict]]], rounds: int, warmups: int = 3, each: int = 2
) -> dict[str, list[list[dict]]]:
    """Rounds of A B C A B C …: in each turn one step that is not counted (caches, clocks) and `each` that are.

    Returns each contestant's warm-up steps as its first list, and then one list of counted steps a round.
    """
    samples = {}
    for name, run in contestants.items():
        samples[name] = [run(warmups)]
    for _ in range(rounds):
        for name, run in contestants.items():
            time.sleep(PAUSE_SECONDS)
            samples[name].append(run(1 + each)[1:])
    return samples


def summary(rounds: list[list[dict]], tokens: int) -> dict:
    """{"median_ms", "tokens_per_second", "ms": counted samples, "warmup_ms"} of one contestant's interleaved steps."""
    counted = [step["ms"] for steps in rounds[1:] for step in steps]
    median = statistics.median(counted)
    return {
        "median_ms": round(median, 2),
        "tokens_per_second": round(1000 * tokens / median),
        "ms": [round(ms, 2) for ms in counted],
        "warmup_ms": [round(step["ms"], 2) for step in rounds[0]],
    }


def times_faster(ours: list[list[dict]], theirs: list[list[dict]]) -> float:
    """How many times as many tokens a second: the median over rounds of their time by ours in the same round."""
    pairs = zip(ours[1:], theirs[1:])
    return round(statistics.median(_median(b) / _median(a) for a, b in pairs), 3)


def _median(steps: list[dict]) -> float:
    return statistics.median(step["ms"] for step in steps)
