"""blend: an activation replaced in part, added to, or left with every bit as it was."""

import numpy as np

from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import call, check_parity

KEEP, REPLACE = 1.0, 0.0


@over_cases("blend")
def test_parity(machine, case):
    check_parity(machine, case)


def test_what_is_kept_and_what_is_given_come_through_bit_for_bit(any_machine):
    """Also zeros' signs, and where what is replaced was not finite."""
    case = base_case("blend", N=1003)
    inputs = inputs_for(case)
    replaced = np.arange(1003) % 3 == 0
    inputs["factor"] = np.where(replaced, REPLACE, KEEP).astype(np.float32)
    inputs["given"] = np.where(replaced, inputs["given"], -0.0).astype(np.float32)
    inputs["y"][::7], inputs["y"][1::7] = 0.0, -0.0
    inputs["given"][:6:3] = 0.0, -0.0
    inputs["y"][[9, 12, 15]] = np.inf, -np.inf, np.nan
    y = call(any_machine, "blend", case.sizes, **inputs)["y"]
    expected = np.where(replaced, inputs["given"], inputs["y"])
    assert y.tobytes() == expected.tobytes()


def test_a_direction_is_added(any_machine):
    case = base_case("blend", N=517)
    inputs = inputs_for(case)
    inputs["factor"][:] = KEEP
    y = call(any_machine, "blend", case.sizes, **inputs)["y"]
    assert np.array_equal(y, inputs["y"] + inputs["given"])
