"""Nearly right inputs to everything that reads what others wrote: read, or refused in a sentence. Whatever was ever found lies in found/."""

import random

import pytest

pytestmark = [pytest.mark.endurance, pytest.mark.native_only(reason="its bounds on time and memory are CPython's; the code is the same")]
pytest.importorskip("hypothesis", reason="hypothesis is not among Pyodide's packages here")
parsers = pytest.importorskip("tests.fuzz.parsers", reason="it reads what native packages write")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.long import HERE, examples, keep
from tests.fuzz.mutation import mutated

SLOW = {"regex": 30, "JSON schema": 50, "tokenizer.json": 25, "run folder": 40, "grammar": 40, "Hugging Face folder": 40, "Hugging Face .zip": 40}
FOUND = sorted((HERE / "found").glob("parsers/*/*"))


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_a_seed_is_read(name):
    for seed in parsers.PARSERS[name].seeds():
        said = parsers.survives(name, seed, measured=False)  # the first time it may fill caches
        assert not said or name in ("request", "journal", "text"), said


@pytest.mark.parametrize("name", parsers.PARSERS)
def test_what_is_nearly_right_is_read_or_refused(name):
    seeds = parsers.PARSERS[name].seeds()
    outcomes = []

    @settings(max_examples=examples(SLOW.get(name, 100)), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 60))
    def read(number):
        outcomes.append(parsers.survives(name, mutated(seeds, random.Random(number))))

    read()
    assert any(outcomes), "some of it was refused"
    keep(f"{name} (hypothesis)", executions=len(outcomes), refused=sum(map(bool, outcomes)))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_before(path):
    parsers.survives(path.parent.name, path.read_bytes())
