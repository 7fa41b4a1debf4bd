"""The C++ engine under libFuzzer and the sanitizers: the tape walker with its kernels, and the tokenizer.

Whatever a fuzzer ever found lies in found/ and is tried first. `tests/fuzz/long.py` says what a long run is.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.fuzz import seeds
from tests.fuzz.long import HERE, LONG, SECONDS, keep

fuzz = pytest.importorskip("tools.fuzz", reason="Pyodide has no clang")
paths = pytest.importorskip("tools.paths")
pytestmark = [pytest.mark.endurance, pytest.mark.native_only(reason="its fuzzers are programs of this machine")]
if fuzz.compiler() is None:
    pytestmark = [*pytestmark, pytest.mark.skip(reason=f"no clang with libFuzzer here: {fuzz.HOW}")]

SEEDS = {"tape": seeds.tapes, "bpe": seeds.calls}
LONGEST_BYTES = {"tape": 41_024, "bpe": 6_000}
SHORT_RUNS, SHORT_SECONDS = {"tape": 15_000, "bpe": 15_000}, 12


def fuzzed(name, folder, *options, seconds, mutant=None):
    """(exit code, what it said) of a run on the seeds, what was found before, and in a long run all that runs before it kept."""
    start = folder / "seeds"
    start.mkdir()
    for title, data in SEEDS[name]():
        (start / title).write_bytes(data)
    kept = paths.cache() / "fuzz" / f"corpus-{name}" if LONG and mutant is None else folder / "corpus"
    kept.mkdir(parents=True, exist_ok=True)
    found = HERE / "found" / name
    limits = [f"-max_len={LONGEST_BYTES[name]}", "-timeout=20", "-rss_limit_mb=2048", f"-max_total_time={seconds:.0f}", "-print_final_stats=1"]
    command = [fuzz.build(name, mutant), *limits, f"-artifact_prefix={folder}/", *options, kept, start, *([found] if found.is_dir() else [])]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", env=fuzz.environment(), timeout=seconds + 300)
    return done.returncode, done.stderr


def report(said):
    """The part of a fuzzer's output that says what is wrong."""
    lines = said.splitlines()
    first = next((at for at, line in enumerate(lines) if re.search(r"ERROR|MUST|runtime error", line)), max(0, len(lines) - 40))
    return "\n".join(lines[first : first + 40] + lines[-6:])


@pytest.mark.parametrize("name", sorted(SEEDS))
def test_nothing_breaks_the_engine(name, tmp_path):
    options = [] if LONG else ["-seed=1", f"-runs={SHORT_RUNS[name]}"]
    code, said = fuzzed(name, tmp_path, *options, seconds=SECONDS if LONG else SHORT_SECONDS)
    assert code == 0, f"keep the input (Test unit written to …) in tests/fuzz/found/{name}:\n{report(said)}"
    runs, peak = (int(re.search(rf"{key}:\s+(\d+)", said)[1]) for key in ("number_of_executed_units", "peak_rss_mb"))
    edges = int(re.findall(r"cov: (\d+)", said)[-1])
    assert runs > 500 and edges > 200, said[-2000:]
    keep(f"{name} (libFuzzer, address and undefined-behaviour sanitizers)", seconds=SECONDS, executions=runs, edges=edges, peak_mebibytes=peak)


MUTANTS = {
    "bounds": ("registry.cpp", " || need > regions[region].bytes - offset", ""),
    "positions": ("registry.cpp", "size('P') < size('T')", "false"),
    "head width": ("registry.cpp", "size('D') > kMaxHeadWidth", "false"),
    "channels": ("registry.cpp", "size('C') > kMostNormalised", "false"),
    "rank": ("registry.cpp", "size('K') > kMostRank", "false"),
    "columns": ("registry.cpp", " || size('J') > size('O') - record[9]", ""),
    "halves": ("registry.cpp", "size('W') != (size('N') + 1) / 2", "false"),
    "alignment": ("registry.cpp", "if (offset % 4)", "if (false)"),
}


@pytest.mark.skipif(not LONG, reason="half a minute each: ./build.sh test endurance -k fuzz")
@pytest.mark.parametrize("rule", MUTANTS)
def test_a_check_that_is_missing_is_found(rule, tmp_path):
    code, said = fuzzed("tape", tmp_path, "-seed=1", seconds=240, mutant=MUTANTS[rule])
    assert code != 0 and re.search(r"AddressSanitizer|runtime error|MUST", said), said[-2000:]
    keep(f"mutant: {rule}", found=report(said).splitlines()[0][:160])
