"""hypothesis cuts the power anywhere in any step, loses and reorders what sectors it likes of what was not flushed, and cuts again."""

import pytest

pytest.importorskip("hypothesis", reason="hypothesis is not among Pyodide's packages here")
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.long import examples
from tests.store.power import PowerVolume
from tests.store.power_steps import STEPS, acceptable, cut, goes_on, images, state

pytestmark = pytest.mark.endurance
BOUNDED = settings(max_examples=examples(150), deadline=None, derandomize=True)


@BOUNDED
@given(st.sampled_from(list(STEPS)), st.integers(0, 60), st.floats(0, 1), st.integers(0, 1 << 30), st.booleans())
def test_any_sectors_of_what_was_not_flushed_may_be_lost(name, stop, part, seed, whole_deletions):
    at = list(STEPS).index(name)
    before, after = (state(PowerVolume(images()[index])) for index in (at, at + 1))
    volume, _ = cut(images()[at], STEPS[name], stop=stop, part=part, whole_deletions=whole_deletions)
    image = volume.after("sectors", seed)
    found = state(PowerVolume(image))
    acceptable(found, before, after, name == "duplicate")
    if found == before:  # and cut again, while it is done again over what the first one left behind
        volume, _ = cut(image, STEPS[name], stop=seed % 23, part=part, whole_deletions=whole_deletions)
        acceptable(state(PowerVolume(volume.after("sectors", seed + 1))), before, after, name == "duplicate")
    goes_on(PowerVolume(image))
