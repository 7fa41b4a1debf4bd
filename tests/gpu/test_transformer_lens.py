"""The GPU engine against TransformerLens on the same weights: the comparisons of tests/study/test_transformer_lens.py, by the same derived bounds."""

import pytest

from tests.study.golden import made_here
from tests.study.test_transformer_lens import (  # noqa: F401 (pytest collects them here, and they take this file's model)
    bounds,
    test_every_activation_it_names,
    test_its_ablations_and_patches,
    test_its_direct_logit_attribution,
    test_its_logit_lens,
    test_the_weights_are_those_it_was_made_from,
    weights,
)


@pytest.fixture(scope="module")
def model(gpu):
    assert gpu.name not in ("reference", "cpu")
    return made_here(gpu)
