"""add: one correctly rounded addition."""

import numpy as np

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import call, check_parity


@over_cases("add")
def test_parity(machine, case):
    check_parity(machine, case)


def test_it_is_one_rounded_addition(any_machine):
    case = base_case("add", N=1003)
    inputs = inputs_for(case)
    inputs["a"][::3] *= np.float32(1e6)
    y = call(any_machine, "add", case.sizes, **inputs)["y"]
    assert np.array_equal(y, inputs["a"] + inputs["b"])
    assert np.array_equal(y, call(any_machine, "add", case.sizes, a=inputs["b"], b=inputs["a"])["y"])
