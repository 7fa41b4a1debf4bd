"""Writing under changes: what comes is what the changed model holds likely, and the model itself stays as it is."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.decode.generate import write
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.survey import Survey
from posttrainllm.waiting import now
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of
from tests.study.golden import small

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=256, batch=2)
TOKENS = [7, 3, 3, 60, 0, 12]


@pytest.fixture
def model(any_machine):
    return made(any_machine, CONFIG)


def test_its_logits_are_those_of_the_run_with_the_change(model):
    direction = np.linspace(-1, 1, CONFIG.channels).astype(np.float32)
    under = study.changed(model, {"blocks.0.resid_post": study.Change(add=direction), "blocks.1.attn.y": 0.0})
    expected = by_hand(
        weights_of(model), CONFIG, TOKENS, {"blocks.0.resid_post": lambda there: there + direction, "blocks.1.attn.y": np.zeros_like}
    )["logits"]
    assert np.allclose(under.logits(TOKENS), expected[-1], rtol=0, atol=1e-4)
    before = np.array(model.logits(TOKENS))
    assert np.abs(np.array(under.logits(TOKENS)) - before).max() > 0.1
    assert np.array_equal(np.array(model.logits(TOKENS)), before)


def test_nothing_changed_writes_the_same_text(model):
    """Past the context too, where the window moves."""
    under = study.changed(model, {"blocks.0.mlp.out": study.Change()})
    assert under.generate("ab", tokens=40, temperature=0.0) == model.generate("ab", tokens=40, temperature=0.0)


def test_a_direction_that_promotes_a_token_makes_it_come(model):
    """Before ln_f, along what one token is read by: strong enough, nothing else is written."""
    weights = weights_of(model)
    autoencoder = small(address="blocks.1.resid_post")
    wanted = weights["wte.weight"] * weights["ln_f.weight"]
    autoencoder.decoder[3] = (wanted[ord("q")] / np.linalg.norm(wanted[ord("q")])).astype(np.float32)
    strong = study.steer(model, autoencoder, 3, 1e4)
    assert "".join(piece.text for piece in write(strong, "ab", 12, temperature=0.0)) == "q" * 12
    assert study.steer(model, autoencoder, 3, 0.0).generate("ab", tokens=12, temperature=0.0) == model.generate("ab", tokens=12, temperature=0.0)


def test_what_a_feature_promotes_is_what_ln_f_lets_through(model):
    """Of the direction's logits nothing that its mean would add; and what contributions say of it, but for the stream's scale."""
    weights, autoencoder = weights_of(model), small(address="blocks.1.resid_post")
    autoencoder.decoder[3] += 2
    centred = autoencoder.decoder[3].astype(np.float64) - autoencoder.decoder[3].mean()
    expected = -np.sort(-(weights["wte.weight"] @ (weights["ln_f.weight"] * centred)))
    text = np.arange(400) * 7 % 256
    feature = study.features(model, text, autoencoder, [3], count=40)[0]
    ends = now(Survey(model, text, autoencoder, 40)._ends(3, 8))
    for promotes, suppresses in ((feature.promotes, feature.suppresses), ends):
        assert np.allclose([gain for _, gain in promotes], expected[:8], atol=1e-5) and np.allclose([gain for _, gain in suppresses], expected[:-9:-1], atol=1e-5)


def test_what_does_not_fit_is_refused(model):
    with pytest.raises(ConfigError, match="a feature from 0 to 39"):
        study.steer(model, small(), 40, 1.0)
    with pytest.raises(ConfigError, match="an address is"):
        study.changed(model, {"blocks.7.mlp.out": 0.0})
