"""Every kernel at operands not aligned to 256 bytes, and at random sizes, beside the cases derived from the tiles."""

import pytest

from posttrainllm.ops import KERNELS
from tests.helpers.cases import KINDS, PARAMS, base_case, complete, fitting, inputs_for
from tests.helpers.kernels import NoSignal, check_parity, run_kernel

NAMES = [made_of.name for made_of in KERNELS]
LARGEST = {"B": 4, "T": 70, "H": 4, "D": 70, "R": 90, "C": 140, "I": 90, "O": 140, "V": 140, "N": 20_000, "K": 40, "J": 90, "S": 90}


@pytest.mark.parametrize("offset_bytes", [4, 12, 32, 252])
@pytest.mark.parametrize("name", NAMES)
def test_any_multiple_of_four_is_aligned_enough(machine, name, offset_bytes):
    """Parts of flat buffers start where they like; the bits do not depend on it."""
    case = base_case(name)
    check_parity(machine, case, offset_bytes)
    inputs = inputs_for(case)
    aligned, shifted = (
        run_kernel(machine, case.kernel, case.sizes, case.params, offset_bytes=at, **inputs) for at in (0, offset_bytes)
    )
    assert all(shifted[key].tobytes() == value.tobytes() for key, value in aligned.items())


@pytest.mark.parametrize("made_of", KERNELS, ids=NAMES)
def test_random_sizes(machine, made_of):
    hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
    st = hypothesis.strategies
    letters = [letter for letter in made_of.letters if letter in LARGEST]
    sizes = st.fixed_dictionaries({letter: st.integers(1, LARGEST[letter]) for letter in letters})
    kinds = ["usual", *KINDS.get(made_of.name, ("shifted", "large"))]

    @hypothesis.settings(max_examples=15, deadline=None, derandomize=True)
    @hypothesis.given(sizes, st.sampled_from(PARAMS.get(made_of.name, [()])), st.sampled_from(kinds), st.integers(0, 1))
    def check(drawn, params, kind, number):
        if kind != "usual":  # where data is hard, sizes stay small enough for the tolerance to show something
            drawn = {letter: min(size, 40) for letter, size in drawn.items()}
        try:
            check_parity(machine, fitting(made_of, complete(made_of, drawn, number), params, kind))
        except NoSignal:  # a sum of few numbers may cancel; what is refused depends on the judge alone
            hypothesis.reject()

    check()
