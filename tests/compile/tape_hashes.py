"""sha256 of every preset's tapes, committed in tape_hashes.json beside this file.

A refactor leaves them unchanged. Where a change is meant, regenerate and say why in the commit:

    python -m tests.compile.tape_hashes
"""

import hashlib
import json
from pathlib import Path

from posttrainllm.configs import load
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import Program

FILE = Path(__file__).with_suffix(".json")
PRESETS = list(load("presets"))


def _sha256(tape) -> str:
    return hashlib.sha256(tape.data).hexdigest()[:16]


def hashes(preset: str) -> dict[str, str]:
    """The first 16 digits of sha256 of each tape of a preset, by what it is for."""
    program = Program(GPTConfig.preset(preset))
    found = {"initial": _sha256(program.initial.tape), "step": _sha256(program.step.tape)}
    found["evaluation"] = _sha256(program.evaluation.tape)
    return found | {f"decoding {time}": _sha256(program.decoding(time).tape) for time in (1, 16)}


def committed() -> dict[str, dict[str, str]]:
    """The hashes in the file."""
    return json.loads(FILE.read_text("utf-8"))


if __name__ == "__main__":
    FILE.write_text(json.dumps({preset: hashes(preset) for preset in PRESETS}, indent=1) + "\n", "utf-8")
    print(f"wrote {FILE.name}")
