"""How long fuzzing takes: seconds in CI, and as long as is asked for by `./build.sh test endurance -k fuzz`, which keeps a record."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path

LONG = bool(os.environ.get("PTL_ENDURANCE"))
SECONDS = float(os.environ.get("PTL_FUZZ_SECONDS", "300"))
"""Of each fuzzer in a long run."""
HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "bench" / "results" / "fuzz.json"


def examples(short: int) -> int:
    """How many of a property hypothesis is to try."""
    return short * 40 if LONG else short


def keep(name: str, **figures) -> None:
    """Put a fuzzer's figures into the record, where this is a long run."""
    if not LONG:
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    about = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "host": f"{platform.machine()}, {os.cpu_count()} threads",
             "python": sys.version.split()[0], "command": "./build.sh test endurance -k fuzz"}  # fmt: skip
    found.setdefault("fuzzers", {})[name] = figures | about
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
