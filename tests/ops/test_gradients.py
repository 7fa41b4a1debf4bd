"""Every op's backward in the float64 judge, against finite differences."""

import numpy as np
import pytest

from posttrainllm.ops import OPS
from tests.helpers.cases import base_case, inputs_for
from tests.helpers.gradients import NoSignal, check_gradient, check_op_gradient

SIZES = [
    {},
    {"T": 1, "R": 5, "C": 7, "N": 6, "I": 3, "O": 8, "V": 13, "K": 1, "J": 1},
    {"B": 3, "T": 7, "H": 2, "D": 5, "R": 8, "C": 8, "I": 11, "O": 4, "V": 9, "K": 4, "J": 2},
]


@pytest.mark.parametrize("changes", SIZES, ids=["base", "small", "odd"])
@pytest.mark.parametrize("name", OPS)
def test_backward_is_the_gradient(name, changes):
    case = base_case(name, **changes)
    check_op_gradient(case, inputs_for(case))


@pytest.mark.parametrize("kind", ["repeated", "ignored"])
def test_cross_entropy_on_hard_targets(kind):
    case = base_case("cross_entropy", kind)
    check_op_gradient(case, inputs_for(case))


def test_embedding_with_one_repeated_token():
    case = base_case("embedding", "repeated")
    check_op_gradient(case, inputs_for(case))


FROZEN = [
    ("layernorm", ("weight", "bias")),
    ("layernorm", ("x",)),
    ("layernorm", ("weight",)),
    ("layernorm", ("x", "bias")),
    ("linear", ("weight", "bias")),
    ("linear", ("weight",)),
    ("linear", ("x", "bias")),
    ("embedding", ("wte",)),
    ("embedding", ("wpe",)),
    ("unembed", ("wte",)),
    ("unembed", ("x",)),
    ("lora", ("x",)),
    ("lora", ("up",)),
    ("lora", ("down", "x")),
    ("lora", ("down", "up")),
]


@pytest.mark.parametrize(("name", "frozen"), FROZEN, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_some_inputs_may_be_frozen(name, frozen):
    case = base_case(name)
    check_op_gradient(case, inputs_for(case), frozen=frozen)


def test_a_check_without_signal_is_refused():
    case = base_case("cross_entropy", "all ignored")
    with pytest.raises(NoSignal):
        check_op_gradient(case, inputs_for(case))
    with pytest.raises(NoSignal):
        check_gradient("flat", lambda x: 3.0, np.ones(4), np.zeros(4))
