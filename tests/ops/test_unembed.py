"""unembed: a product with the transposed table."""

import numpy as np
import pytest

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import call, check_parity


@over_cases("unembed", "unembed_backward_input", "unembed_backward_weight")
def test_parity(machine, case):
    check_parity(machine, case)


def test_small_integers_are_exact(any_machine):
    rng = np.random.default_rng(0)
    sizes = {"R": 37, "C": 270, "V": 61}
    x, wte, dlogits = rng.integers(-8, 9, (37, 270)), rng.integers(-8, 9, (61, 270)), rng.integers(-8, 9, (37, 61))
    prior = rng.integers(-8, 9, (61, 270))
    assert np.array_equal(call(any_machine, "unembed", sizes, x=x, wte=wte)["logits"], x @ wte.T)
    assert np.array_equal(
        call(any_machine, "unembed_backward_input", sizes, dlogits=dlogits, wte=wte)["dx"], dlogits @ wte
    )
    got = call(any_machine, "unembed_backward_weight", sizes, x=x, dlogits=dlogits, dwte=prior)["dwte"]
    assert np.array_equal(got, prior + dlogits.T @ x)


def test_with_the_identity_for_x_logits_are_the_table_transposed(any_machine):
    wte = inputs_for(base_case("unembed"))["wte"]
    logits = call(any_machine, "unembed", {"R": 37, "C": 37, "V": 61}, x=np.eye(37), wte=wte)["logits"]
    assert np.array_equal(logits, wte.T)


@pytest.mark.parametrize("changes", [{}, {"C": 300}, {"V": 521, "C": 16}])
def test_a_row_does_not_depend_on_the_others(machine, changes):
    case = base_case("unembed", **({"R": 67} | changes))
    inputs = inputs_for(case)
    whole = call(machine, "unembed", case.sizes, **inputs)["logits"]
    for first, count in ((0, 1), (66, 1), (10, 4), (5, 20), (13, 33)):
        part = call(
            machine, "unembed", case.sizes | {"R": count}, **inputs | {"x": inputs["x"][first : first + count]}
        )["logits"]
        assert np.array_equal(part, whole[first : first + count]), f"rows {first}..{first + count - 1}"
