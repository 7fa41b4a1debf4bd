"""fill: every element is the value, to the bit."""

import numpy as np
import pytest

from tests.helpers.cases import over_cases
from tests.helpers.kernels import call, check_parity


@over_cases("fill")
def test_parity(machine, case):
    check_parity(machine, case)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, -3.4e38, np.inf], ids=str)
def test_bits_of_the_value(any_machine, value):
    x = call(any_machine, "fill", {"N": 37}, (value,))["x"]
    assert np.array_equal(x.view("<u4"), np.full(37, value, "<f4").view("<u4"))
