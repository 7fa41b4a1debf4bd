"""The harness itself: it accepts the right kernel and catches every wrong one."""

import numpy as np
import pytest

from posttrainllm.dims import product
from posttrainllm.ops import KERNELS, OPS, kernel
from tests.helpers.cases import base_case, inputs_for
from tests.helpers.float32 import Float32Machine
from tests.helpers.gradients import check_op_gradient
from tests.helpers.kernels import NoSignal, check_parity, compare
from tests.helpers.mutants import MUTANTS, mutated

CASES = {made_of.name: base_case(made_of.name) for made_of in KERNELS}


def _parity_mutants():
    """Every written argument of every kernel, with every mutant that is not the kernel itself again."""
    for made_of in KERNELS:
        for argument in made_of.args:
            if argument.role == "in":
                continue
            for how in MUTANTS:
                one_element = product(made_of.shape(argument, CASES[made_of.name].sizes)) == 1
                if how == "shifted by one" and (one_element or made_of.name == "fill"):
                    continue  # nothing to shift, or all elements alike
                if how == "in half precision" and made_of.name == "fill":
                    continue  # 1.0 needs one bit
                yield pytest.param(
                    made_of, argument.name, how, id=f"{made_of.name}-{argument.name}-{how.replace(' ', '_')}"
                )


def _gradient_mutants():
    """Every gradient that a backward kernel writes (attention's delta is none)."""
    for name, op in OPS.items():
        for made_of in op.backward:
            for argument in made_of.args:
                if argument.role != "in" and argument.name != "delta":
                    for how in MUTANTS:
                        label = f"{made_of.name}-{argument.name}-{how.replace(' ', '_')}"
                        yield pytest.param(name, made_of, argument.name, how, id=label)


# What a kernel is for that comes in only where these are frozen.
FROZEN = {"layernorm_backward_input": ("weight", "bias")}


@pytest.mark.parametrize("name", CASES)
def test_parity_accepts_the_right_kernel(name):
    check_parity(Float32Machine(), CASES[name])


@pytest.mark.parametrize(("made_of", "argument", "how"), list(_parity_mutants()))
def test_parity_catches(made_of, argument, how):
    machine = Float32Machine({made_of.name: mutated(made_of, argument, how)})
    with pytest.raises(AssertionError, match=rf"{made_of.name}.* {argument}\["):
        check_parity(machine, CASES[made_of.name])


@pytest.mark.parametrize(("name", "made_of", "argument", "how"), list(_gradient_mutants()))
def test_gradient_check_catches(name, made_of, argument, how):
    case = CASES[name]
    with pytest.raises(AssertionError, match="differences say"):
        check_op_gradient(case, inputs_for(case), {made_of.name: mutated(made_of, argument, how)}, FROZEN.get(made_of.name, ()))


def _spoilt(spoil):
    """layernorm, after which `spoil` gets its arrays by name."""
    made_of = kernel("layernorm")

    def run(sizes, params, *arrays):
        made_of.run(sizes, params, *arrays)
        spoil(dict(zip([a.name for a in made_of.args], arrays)))

    return Float32Machine({"layernorm": run})


def _beside(array, index):
    """An element outside an array of the machine's memory, as a writable view."""
    flat = np.lib.stride_tricks.as_strided(array.reshape(-1)[:1], (1,))
    return np.lib.stride_tricks.as_strided(flat, (2,), (4 * index,))[1:]


def _write(array, index):
    _beside(array, index)[0] = 0.0


SPOILERS = {
    "one past the end": (lambda a: _write(a["y"], a["y"].size), "4 bytes after|0 bytes after"),
    "100 past the end": (lambda a: _write(a["rstd"], a["rstd"].size + 99), "after the end of rstd"),
    "one before the start": (lambda a: _write(a["mean"], -1), "4 bytes before mean|after the end of y"),
    "its input": (lambda a: a["x"].__setitem__((3, 3), 5.0), "into its input x"),
    "one element not written": (lambda a: a["y"].__setitem__((2, 36), np.nan), "1 are NaN"),
    "a guard read": (
        lambda a: a["y"].__setitem__((0, 0), a["y"][0, 0] + 0 * _beside(a["x"], a["x"].size)[0]),
        "1 are NaN",
    ),
}


@pytest.mark.parametrize("what", SPOILERS)
def test_guard_bands_catch(what):
    spoil, message = SPOILERS[what]
    with pytest.raises(AssertionError, match=message):
        check_parity(_spoilt(spoil), CASES["layernorm"])


def test_a_comparison_without_signal_is_refused():
    with pytest.raises(NoSignal, match="shows nothing"):
        compare("attention", np.ones(3), np.ones(3), 0.02)
