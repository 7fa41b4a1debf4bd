"""The true path of a tab on a GPU: Pyodide in Node, gpu.mjs, Dawn. Milliseconds a step, and of them Python's and JavaScript's (host_ms: both)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from bench.gpu_steps import PYTORCH_EAGER_F32_MS, RECIPE, config_of
from bench.gpu_tensor import FLAGS

REPO = Path(__file__).resolve().parent.parent


def measure(
    dawn: str, pyodide: str, name: str, precision: str = "f32", node: str = "node", seconds: float = 60.0
) -> dict:
    """One preset's training through Pyodide and Dawn."""
    config = config_of(name)
    count = config.batch * config.context
    tokens = [(i * 7919 + i // 3) % 256 for i in range(count)]
    batch = [tokens, tokens[1:] + tokens[:1]]
    question = {
        "config": config.to_dict(), "steps": [batch] * 9, "recipes": [RECIPE] * 9, "gradients": [], "precision": precision,
        "repeat": 100 if name in ("small", "medium", "large", "xl") else 20,
    }  # fmt: skip
    script = REPO / "tests" / "gpu" / "dawn.mjs"
    row = {"preset": name, "precision": precision}
    try:
        done = subprocess.run(
            [node, str(script), dawn, pyodide, str(REPO)],
            env={"PTL_DAWN_FLAGS": ";".join(FLAGS)} | os.environ, input=json.dumps(question), check=False, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return row | {"error": f"not done after {seconds:g} s"}
    if done.returncode:
        return row | {"error": done.stderr[-600:]}
    answer = json.loads(done.stdout.splitlines()[-1])
    row |= {key: round(answer[key], 3) for key in ("step_ms", "host_ms", "prepare_seconds")}
    row |= {
        "js_ms": round(answer.get("js_ms", 0.0), 3), "host_share": round(answer["host_ms"] / answer["step_ms"], 3), "dispatches": answer["dispatches"],
        "loss": answer["losses"][-1], "adapter": answer["description"], "features": answer.get("features"), "tiles": answer.get("tiles"),
    }  # fmt: skip
    if name in PYTORCH_EAGER_F32_MS:
        row["ratio"] = round(PYTORCH_EAGER_F32_MS[name] / row["step_ms"], 2)
    return row
