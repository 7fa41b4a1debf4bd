"""What the engine takes in the tab: memory of a run, and Python's share of a step in a whole session."""

from __future__ import annotations


def memory(tab, preset: str, steps: int) -> dict:
    """Train `steps` steps and tell the size of the engine's whole memory (it never grows), and the losses."""
    made = tab.call("ours:memory", "make", preset=preset, threads=2)
    taken = tab.call("ours:memory", "run", count=steps)
    tab.end("ours:memory")
    return {
        "memory_bytes": made["memory_bytes"],
        "regions_bytes": made["region_bytes"],
        "steps": steps,
        "losses_nats": [round(step["loss_nats"], 5) for step in taken],
        "ms": [round(step["ms"], 1) for step in taken],
    }


def python_share(tab, preset: str, repeats: int, count: int = 20) -> dict:
    """Share of a session's time (steps, events, its loop; no samples, no saves) outside the engine's replay.

    The median of `repeats` runs of `count` steps: time that another process takes counts for whichever side it hits.
    """
    runs = []
    for _ in range(repeats):
        runs.append(tab.call("ours:session", "session", preset=preset, threads=2, count=count))
    tab.end("ours:session")
    shares = sorted(1 - run["engine_ms"] / run["ms"] for run in runs)
    return {"preset": preset, "share": round(shares[len(shares) // 2], 5), "shares": [round(s, 5) for s in shares], "runs": runs}
