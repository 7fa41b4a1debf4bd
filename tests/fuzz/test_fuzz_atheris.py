"""Coverage-guided fuzzing of the parsers in Python: only in a long run, and where atheris has a wheel for this Python."""

import importlib.util
import random
import re
import subprocess
import sys

import pytest

from tests.fuzz.long import HERE, LONG, SECONDS, keep

pytestmark = [
    pytest.mark.endurance,
    pytest.mark.native_only(reason="atheris is CPython's"),
    pytest.mark.skipif(not LONG, reason="./build.sh test endurance -k fuzz"),
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed: no wheel of it for this Python"),
]
parsers = pytest.importorskip("tests.fuzz.parsers", reason="it reads what native packages write")
from tests.fuzz.mutation import mutated


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_no_path_of_a_parser_breaks(name, tmp_path):
    start, corpus = tmp_path / "seeds", tmp_path / "corpus"
    start.mkdir(), corpus.mkdir()
    seeds = parsers.PARSERS[name].seeds()
    for number, data in enumerate([*seeds, *(mutated(seeds, random.Random(number)) for number in range(30))]):
        (start / str(number)).write_bytes(data)
    seconds = SECONDS / 5
    longest = max(map(len, seeds)) * 2 + 200
    options = [f"-max_total_time={seconds:.0f}", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", f"-max_len={longest}", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.atheris_parsers", name, *options, str(corpus), str(start)]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, errors="replace", timeout=seconds + 300)
    said = done.stderr + done.stdout
    assert done.returncode == 0, f"keep the input in tests/fuzz/found/parsers/{name}:\n{said[-5000:]}"
    runs, peak = (int(re.search(rf"{key}:\s+(\d+)", said)[1]) for key in ("number_of_executed_units", "peak_rss_mb"))
    keep(f"{name} (atheris)", seconds=seconds, executions=runs, edges=int((re.findall(r"cov: (\d+)", said) or [0])[-1]), peak_mebibytes=peak)
