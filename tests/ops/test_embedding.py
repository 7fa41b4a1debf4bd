"""embedding: rows of a table plus rows of positions, and sums back into both."""

import numpy as np
import pytest

from posttrainllm.errors import DataError
from tests.helpers.cases import base_case, inputs_for, over_cases
from tests.helpers.kernels import call, check_parity

SIZES = {"B": 3, "T": 5, "C": 7, "V": 11, "P": 9}


@over_cases("embedding", "embedding_backward")
def test_parity(machine, case):
    check_parity(machine, case)


def test_with_zero_positions_rows_are_the_tables(any_machine):
    rng = np.random.default_rng(0)
    tokens, wte = rng.integers(0, 11, (3, 5)), rng.standard_normal((11, 7)).astype(np.float32)
    x = call(any_machine, "embedding", SIZES, tokens=tokens, wte=wte, wpe=np.zeros((9, 7)))["x"]
    assert np.array_equal(x.reshape(3, 5, 7), wte[tokens])


def test_unused_rows_keep_what_they_had(any_machine):
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 5, (3, 5))
    prior = {
        "dwte": rng.standard_normal((11, 7)).astype(np.float32),
        "dwpe": rng.standard_normal((9, 7)).astype(np.float32),
    }
    got = call(any_machine, "embedding_backward", SIZES, tokens=tokens, dx=rng.standard_normal((15, 7)), **prior)
    assert np.array_equal(got["dwte"][5:], prior["dwte"][5:])
    assert np.array_equal(got["dwpe"][5:], prior["dwpe"][5:])
    assert not np.isclose(got["dwpe"][:5], prior["dwpe"][:5]).any()


def test_gradient_counts_tokens(any_machine):
    """With dx = 1 a row of dwte counts how often its token came, exactly; a row of dwpe counts the batch."""
    tokens = np.random.default_rng(2).integers(0, 11, (3, 5))
    zeros = {"dwte": np.zeros((11, 7)), "dwpe": np.zeros((9, 7))}
    got = call(any_machine, "embedding_backward", SIZES, tokens=tokens, dx=np.ones((15, 7)), **zeros)
    counts = np.bincount(tokens.reshape(-1), minlength=11)
    assert np.array_equal(got["dwte"], np.repeat(counts[:, None], 7, 1))
    assert np.array_equal(got["dwpe"], np.repeat([3, 3, 3, 3, 3, 0, 0, 0, 0], 7).reshape(9, 7))


@pytest.mark.parametrize("bad", [61, 10**6, -1, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("name", ["embedding", "embedding_backward"])
def test_a_token_outside_the_vocabulary_is_an_error(any_machine, name, bad):
    case = base_case(name)
    inputs = inputs_for(case)
    inputs["tokens"][1, 3] = bad
    with pytest.raises(DataError, match=f"{name}.*token"):
        call(any_machine, name, case.sizes, **inputs)
