"""Patterns and head scores: what they are by hand, and an induction head where one was learned and nowhere else."""

import functools

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.study.attention import THRESHOLDS, repeated
from tests.helpers.machines import open_once
from tests.helpers.models import recipe
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TOKENS = [7, 3, 3, 60, 0, 12, 7, 3, 41, 5, 5]
REPEATS = GPTConfig(layers=2, channels=64, heads=1, context=24, vocabulary=32, batch=64)
STEPS, RATE = 900, 0.003


def batch_of_repeats(rng):
    """Random tokens, then pieces of 2 to 4 of them in any order, cut off at the context; a piece's tokens after its first count.

    A piece begins anywhere, so no fixed way back tells what comes next: only what came after the same token does.
    """
    config = REPEATS
    half, count = config.context // 2, config.context + 1
    rows, targets = np.empty((config.batch, count), "<i4"), np.full((config.batch, count), -100, "<i4")
    for row, target in zip(rows, targets):
        first = rng.permutation(config.vocabulary)[:half]
        tokens, inside = list(first), [False] * half
        while len(tokens) < count:
            start = rng.integers(0, half - 1)
            piece = first[start : start + rng.integers(2, 5)]
            tokens += list(piece)
            inside += [False] + [True] * (len(piece) - 1)
        row[:] = tokens[:count]
        chosen = np.array(inside[:count])
        target[chosen] = row[chosen]
    return rows[:, :-1].tobytes(), targets[:, 1:].tobytes()


@functools.cache
def _learned() -> dict[str, bytes]:
    model = GPT(REPEATS, open_once("cpu"), Program(REPEATS))
    model.initialise(1)
    rng = np.random.default_rng(1)
    for step in range(1, STEPS + 1):
        model.step(*batch_of_repeats(rng), recipe(step, RATE * min(1.0, step / 50)))
    return {name: model.weight_bytes(name) for name in model.weight_names()}


def model_of_repeats(trained):
    model = GPT(REPEATS, open_once("cpu"), Program(REPEATS, False))
    model.initialise(1)
    for name, data in (_learned() if trained else {}).items():
        model.set_weight_bytes(name, data)
    return model


def test_patterns_are_softmaxes_of_the_models_own_scores(any_machine):
    model = made(any_machine, CONFIG)
    found, expected = study.patterns(model, TOKENS), by_hand(weights_of(model), CONFIG, TOKENS)
    assert found.pattern.shape == (2, 3, 11, 11) and found.pattern.dtype == np.float64
    assert np.abs(found.pattern.sum(-1) - 1).max() < 1e-14
    assert not np.triu(found.pattern, 1).any()
    for layer in range(2):
        assert np.allclose(found.pattern[layer], expected[f"blocks.{layer}.attn.pattern"], rtol=0, atol=2e-5)


def test_lines_and_pictures_of_a_pattern(any_machine):
    found = study.patterns(made(any_machine, CONFIG), TOKENS)
    lines = found.lines(1, 2, least=0.25)
    assert lines and all(weight >= 0.25 and to <= at and found.pattern[1, 2, at, to] == weight for at, to, weight in lines)
    assert len(found.picture(0, 0).splitlines()) == 12 and str(found).count("attn.pattern") == 6
    assert found.to_dict()["arrays"]["pattern"].dtype == np.float32


def test_no_head_has_a_name_before_training():
    scores = study.head_scores(model_of_repeats(False))
    assert not scores.named and "No head is above" in str(scores)
    for kind, score in scores.scores.items():
        assert np.allclose(score, scores.chance[kind], atol=0.1), "weights from a seed spread evenly"


def test_an_induction_head_is_found_after_training():
    model = model_of_repeats(True)
    scores = study.head_scores(model)
    named = {(layer, head): kind for layer, head, kind, _ in scores.named}
    assert named.get((1, 0)) == "induction" and "induction" not in [kind for (layer, _), kind in named.items() if layer == 0]
    assert scores.scores["induction"][1, 0] > 2 * THRESHOLDS["induction"] - 0.1 and scores.chance["induction"] < 0.1
    assert "looks at what came after the same token before" in str(scores)
    tokens = repeated(model, 1, 10, seed=4)[0]
    lens = study.logit_lens(model, tokens)
    assert (lens.rank[-1, 10:-1] == 0).mean() > 0.8 > (lens.rank[-1, :9] == 0).mean() + 0.5, "it foresees what is repeated"
    without = study.run(model, tokens, taps="logits", replace={"blocks.1.attn.y": 0.0})["logits"]
    assert (without[10:-1].argmax(1) == tokens[11:]).mean() < 0.5, "and not without that head"


def test_scores_by_hand(any_machine):
    """The lesser of two lengths, each the mean over its sequences."""
    model = made(any_machine, CONFIG)
    found = study.head_scores(model, sequences=2, length=9, seed=3)
    by = {kind: [] for kind in THRESHOLDS}
    for half in (6, 9):
        rows = repeated(model, 2, half, 3)
        assert rows.shape == (2, 2 * half) and np.array_equal(rows[:, :half], rows[:, half:]) and len(set(rows[0, :half].tolist())) == half
        pattern = np.mean([[by_hand(weights_of(model), CONFIG, row)[f"blocks.{layer}.attn.pattern"] for layer in range(2)] for row in rows], 0)
        later = range(half, 2 * half)
        by["previous"].append(np.mean([pattern[..., t, t - 1] for t in range(1, 2 * half)], 0))
        by["first"].append(np.mean([pattern[..., t, 0] for t in range(1, 2 * half)], 0))
        by["duplicate"].append(np.mean([pattern[..., t, t - half] for t in later], 0))
        by["induction"].append(np.mean([pattern[..., t, t - half + 1] for t in later], 0))
    for kind, each in by.items():
        assert np.allclose(found.scores[kind], np.minimum(*each), rtol=0, atol=2e-5), kind


def test_tokens_come_from_the_pool(any_machine):
    model = made(any_machine, CONFIG)
    assert set(repeated(model, 3, 5, pool=[1, 2, 9, 11, 12, 13]).ravel().tolist()) <= {1, 2, 9, 11, 12, 13}
    assert set(repeated(model, 1, 8, pool="\x01\x02\x03").ravel().tolist()) <= {1, 2, 3}, "too few not to come twice"
    for words, wrong in (("a pool of tokens", {"pool": [61]}), ("a pool of tokens", {"pool": ""})):
        with pytest.raises(DataError, match=words):
            study.head_scores(model, **wrong)
    for words, wrong in (("a half is 2 to 10", {"length": 11}), ("sequences is a whole number from 1", {"sequences": 0}), ("thresholds are for", {"thresholds": {"last": 1.0}})):
        with pytest.raises(ConfigError, match=words):
            study.head_scores(model, **wrong)
    assert study.head_scores(model, thresholds={"previous": 0.0}).named[0][2] == "previous"
