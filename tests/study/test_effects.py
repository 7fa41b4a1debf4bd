"""Ablation and patching: each cell of a map is a run in which a page of NumPy changes that one part."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.effects import PARTS
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TOKENS, SOURCE = [7, 3, 3, 60, 0, 12, 7], [7, 3, 9, 60, 0, 2, 7]
ANSWER, OTHER, POSITION = 9, 33, 5
NEAR = 2e-5  # of logits near 10, two blocks in single precision


@pytest.fixture
def model(any_machine):
    return made(any_machine, CONFIG)


def measured(logits):
    """(logit difference at POSITION, mean loss)."""
    losses = np.log(np.exp(logits).sum(1))[:-1] - logits[np.arange(len(TOKENS) - 1), TOKENS[1:]]
    return logits[POSITION, ANSWER] - logits[POSITION, OTHER], losses.mean()


def expected(model, what, instead):
    """The map by hand; instead(address) gives what stands in the place of an activation [T,…]."""
    kind, across = PARTS[what]
    weights, time = weights_of(model), len(TOKENS)
    count = {"head": CONFIG.heads, "layer": 1, "position": time}[across]
    difference, loss = np.empty((2, count)), np.empty((2, count))
    for layer in range(2):
        for column in range(count):

            def change(there, address=f"blocks.{layer}.{kind}", column=column):
                part = {"head": np.s_[:, column], "layer": np.s_[:], "position": np.s_[column]}[across]
                there[part] = instead(address, there.shape)[part]
                return there

            logits = by_hand(weights, CONFIG, TOKENS, {f"blocks.{layer}.{kind}": change})["logits"]
            difference[layer, column], loss[layer, column] = measured(logits)
    return difference, loss


def check(found, difference, loss, before):
    assert np.allclose(found.logit_difference, difference, rtol=0, atol=NEAR) and np.allclose(found.loss_nats, loss, rtol=0, atol=NEAR)
    assert np.allclose(found.before, before, rtol=0, atol=NEAR)
    assert np.abs(found.change).max() > 100 * NEAR and np.abs(found.loss_change).max() > 100 * NEAR, "a map of nothing shows nothing"


@pytest.mark.parametrize("what", PARTS)
@pytest.mark.parametrize("how", ["zero", "mean"])
def test_ablation_is_the_run_without_that_part(model, what, how):
    there = by_hand(weights_of(model), CONFIG, TOKENS)
    reference = [by_hand(weights_of(model), CONFIG, tokens) for tokens in (TOKENS, SOURCE)]

    def instead(address, shape):
        mean = np.mean([each[address] for each in reference], (0, 1))
        return np.broadcast_to(mean if how == "mean" else 0.0, shape)

    found = study.ablate(model, TOKENS, what, how, reference=[TOKENS, SOURCE], position=POSITION, answer=ANSWER, other=OTHER)
    check(found, *expected(model, what, instead), measured(there["logits"]))
    assert found.recovered is None


@pytest.mark.parametrize("what", PARTS)
def test_a_patch_is_the_run_with_the_other_texts_part(model, what):
    there, source = (by_hand(weights_of(model), CONFIG, tokens) for tokens in (TOKENS, SOURCE))
    found = study.patch(model, TOKENS, SOURCE, what, position=POSITION, answer=ANSWER, other=OTHER)
    difference, loss = expected(model, what, lambda address, shape: source[address])
    check(found, difference, loss, measured(there["logits"]))
    ends = measured(there["logits"])[0], measured(source["logits"])[0]
    assert np.allclose(found.recovered, (difference - ends[0]) / (ends[1] - ends[0]), atol=1e-3)


def test_laws_of_patching(model):
    """Where both texts have the same token its embedding is the same; from itself nothing changes. To the bit, but for the judge,
    which is given in single precision what it had in double."""
    least = 1e-6 if model.machine.name == "reference" else 0.0
    found = study.patch(model, TOKENS, SOURCE, "residual", position=POSITION)
    assert np.abs(found.change[0, [0, 1, 3, 4]]).max() <= least < np.abs(found.change[0, [2, 5]]).min()
    itself = study.patch(model, TOKENS, TOKENS, "heads")
    assert np.abs(itself.change).max() <= least and np.isnan(itself.recovered).all() == (itself.source[0] == itself.before[0])
    assert found.answer != found.other


def test_the_default_tokens_are_the_likeliest(model):
    logits = by_hand(weights_of(model), CONFIG, TOKENS)["logits"][-1]
    best = np.argsort(-logits)[:2]
    found = study.ablate(model, TOKENS)
    assert np.isclose(found.before[0], logits[best[0]] - logits[best[1]], atol=NEAR) and found.position == len(TOKENS) - 1


def test_a_text_longer_than_a_batch_holds_goes_in_several(model):
    """A cell does not depend on the cells that were computed with it."""
    long = (TOKENS * 3)[:20]
    whole = study.ablate(model, long, "residual")
    few = study.ablate(model, long[:9], "residual", position=3, answer=ANSWER, other=OTHER)
    again = study.ablate(model, long[:4], "residual", position=3, answer=ANSWER, other=OTHER)
    assert whole.logit_difference.shape == (2, 20)
    assert np.array_equal(few.logit_difference[:, :4], again.logit_difference) or model.machine.name == "reference"


def test_it_prints_and_travels(model):
    found = study.patch(model, TOKENS, SOURCE, "residual")
    assert "blocks.1" in str(found) and "patched" in str(found) and len(str(found).splitlines()) == 4
    sent = found.to_dict()
    assert sent["arrays"]["loss_nats"].shape == (2, len(TOKENS)) and len(sent["source"]) == 2


def test_what_does_not_fit_is_refused(model):
    for words, call in (
        ("what is one of heads", lambda: study.ablate(model, TOKENS, "neurons")),
        ("how is one of zero, mean", lambda: study.ablate(model, TOKENS, how="swap")),
    ):
        with pytest.raises(ConfigError, match=words):
            call()
    for words, call in (
        ("as many tokens", lambda: study.patch(model, TOKENS, SOURCE[:-1])),
        ("one token each", lambda: study.ablate(model, TOKENS, answer=[3, 4])),
        ("9 came twice", lambda: study.ablate(model, TOKENS, answer=9, other=9)),
        ("a position from", lambda: study.ablate(model, TOKENS, position=7)),
    ):
        with pytest.raises(DataError, match=words):
            call()
