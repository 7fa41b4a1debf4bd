"""Features over part of a text, and those made anew in training: both by hand."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.sae import SparseAutoencoder
from posttrainllm.study.sae_train import SAESettings, SAETrainer, gradients
from posttrainllm.study.sparse import RARE
from posttrainllm.study.survey import Survey
from posttrainllm.waiting import now
from tests.study.by_hand import made

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TEXT = np.random.default_rng(5).integers(0, 61, 2400)
ADDRESS = "blocks.0.resid_post"


@pytest.fixture
def model(any_machine):
    return made(any_machine, CONFIG)


def of_several_shares(model):
    """40 features of which each fires at another share of tokens, of 0.2 % to 40 %, and number 7 never."""
    rng = np.random.default_rng(3)
    encoder, decoder = (rng.standard_normal(shape).astype(np.float32) for shape in ((24, 40), (40, 24)))
    rows = study.run(model, TEXT.reshape(-1, 20), taps=ADDRESS)[ADDRESS].reshape(-1, 24)
    before, shares = rows @ encoder, np.geomspace(0.002, 0.4, 40)
    bias = -np.array([np.quantile(column, 1 - share) for column, share in zip(before.T, rng.permutation(shares))])
    bias[7] = -1e4
    return SparseAutoencoder(encoder, bias.astype(np.float32), decoder, np.zeros(24, np.float32), "l1", 0, ADDRESS)


@pytest.mark.parametrize("windows", [45, 120], ids=["stopped", "to its end"])
def test_shares_and_orders_are_of_what_was_looked_through(model, windows):
    autoencoder = of_several_shares(model)
    survey = Survey(model, TEXT, autoencoder, len(TEXT))
    while survey.done < windows:
        now(survey.advance_async(5))
    assert (survey.done, survey.total) == (windows, 120)
    seen = study.run(model, survey.rows[:windows], taps=ADDRESS)[ADDRESS]
    acts = autoencoder.encode(seen).reshape(-1, 40)
    density, most = (acts > 0).mean(0), acts.max(0)
    assert np.allclose(survey.density, density, atol=2.5 / len(acts)) and np.allclose(survey.most, most, rtol=1e-3, atol=1e-3)
    fired = [each for each in range(40) if survey.most[each] > 0]
    rare = {each for each in fired if RARE[0] <= survey.density[each] <= RARE[1]}
    assert 7 not in fired and 5 <= len(rare) <= len(fired) - 5
    seldom_first = sorted(fired, key=lambda each: (each not in rare, -survey.most[each]))
    assert seldom_first != sorted(fired, key=lambda each: -survey.most[each]), "else the two orders are one here"
    assert survey.order("telling").tolist() == survey.order().tolist() == seldom_first
    assert survey.order("strength").tolist() == sorted(fired, key=lambda each: -survey.most[each])
    assert survey.order("frequency").tolist() == sorted(fired, key=lambda each: -survey.density[each])
    assert survey.order("number").tolist() == fired


def test_a_feature_made_anew_points_along_what_was_missing():
    """Its direction, and what it reads along, is that of a row minus what is made of it."""
    rows = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32) + 1
    trainer = SAETrainer(rows, SAESettings.of(features=24, k=3, steps=20, batch=64, resample_every_steps=3))
    trainer._weights["encoder_bias"][:5] = -1e3
    now(trainer.some_async(2))
    before = {name: each.copy() for name, each in trainer._weights.items()}
    batch = rows[trainer._order[trainer._at : trainer._at + 64]] * np.float32(trainer._scale)
    acts, _, _ = gradients(before, batch, "topk", 3, 0.0)
    missing = batch - (acts @ before["decoder"] + before["bias"])
    missing /= np.linalg.norm(missing, axis=1, keepdims=True)
    now(trainer.some_async(1))
    made_anew = [each for each in range(24) if np.abs(trainer._weights["decoder"][each] - before["decoder"][each]).max() > 0.1]
    assert made_anew[:5] == [0, 1, 2, 3, 4] and trainer.resampled == len(made_anew)
    for each in made_anew:
        direction, reads = trainer._weights["decoder"][each], trainer._weights["encoder"][:, each]
        assert (missing @ direction).max() > 1 - 1e-5
        assert direction @ reads > (1 - 1e-5) * np.linalg.norm(reads) > 0
