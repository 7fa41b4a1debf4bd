"""The true path of a tab on a GPU: Pyodide in Node, gpu.mjs, Dawn. python -m bench.gpu_dawn DAWN_NODE PYODIDE_FOLDER PRESET…"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.gpu import PYTORCH_EAGER_F32_MS, config_of

REPO = Path(__file__).resolve().parent.parent


def measure(dawn: str, pyodide: str, name: str, repeat: int, node: str = "node") -> dict:
    """Milliseconds a step and Python's share of it."""
    config = config_of(name)
    count = config.batch * config.context
    tokens = [(i * 7919 + i // 3) % 256 for i in range(count)]
    recipe = [3e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 1.0, 1.0]
    batch = [tokens, tokens[1:] + tokens[:1]]
    question = {
        "config": config.to_dict(),
        "steps": [batch] * 9,
        "recipes": [recipe] * 9,
        "gradients": [],
        "repeat": repeat,
    }
    script = REPO / "tests" / "gpu" / "dawn.mjs"
    done = subprocess.run(
        [node, str(script), dawn, pyodide, str(REPO)],
        input=json.dumps(question),
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    if done.returncode:
        return {"preset": name, "error": done.stderr[-600:]}
    answer = json.loads(done.stdout.splitlines()[-1])
    row = {key: round(answer[key], 3) for key in ("step_ms", "host_ms", "prepare_seconds")}
    row |= {
        "preset": name,
        "dispatches": answer["dispatches"],
        "loss": answer["losses"][-1],
        "adapter": answer["description"],
    }
    if name in PYTORCH_EAGER_F32_MS:
        row["ratio"] = round(PYTORCH_EAGER_F32_MS[name] / row["step_ms"], 2)
    return row


def main() -> None:
    dawn, pyodide, *names = sys.argv[1:]
    for name in names:
        print(
            json.dumps(measure(dawn, pyodide, name, 100 if name in ("small", "medium", "large", "xl") else 20)),
            flush=True,
        )


if __name__ == "__main__":
    main()
