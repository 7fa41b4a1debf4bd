"""Writing under changes: what comes is what the changed model holds likely, and the model itself stays as it is."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.decode.generate import write
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.study import steering
from posttrainllm.study.passes import build_decoding
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


ROW = np.linspace(-1, 1, CONFIG.channels).astype(np.float32)
BY_POSITION = {  # changes that are the same at every position
    "a direction": {"blocks.0.resid_post": study.Change(add=ROW)},
    "a number": {"blocks.1.mlp.out": 0.25},
    "one row for all": {"blocks.0.mlp.post": np.full((1, CONFIG.hidden), 0.5)},
    "keys": {"blocks.0.attn.k": study.Change(-1.0, np.full((3, 8), 0.5))},
    "values of one head": {"blocks.1.attn.v": np.array([[1.0], [np.nan], [np.nan]]) * np.ones(8)},
    "a head": {"blocks.0.attn.y": study.Change(np.array([[0.0], [1.0], [1.0]]))},
    "several": {"embed": study.Change(2.0), "blocks.0.attn.out": study.Change(add=ROW), "blocks.1.resid_pre": study.Change(0.5), "ln_f": study.Change(3.0)},
    "logits": {"logits": study.Change(add=np.arange(256.0))},
}
OTHERS = {
    "a function": {"blocks.0.mlp.out": lambda there: 2 * there},
    "a pattern": {"blocks.0.attn.pattern": study.Change(0.5)},
    "positions": {"blocks.0.mlp.out": np.zeros((len(TOKENS), 1))},
}


def by_window(model, replace, tokens, last=1):
    return study.run(model, tokens, taps="logits", replace=replace)["logits"][-last:].astype(np.float32)


@pytest.mark.parametrize("which", BY_POSITION)
def test_the_cache_gives_what_the_whole_window_gives(model, which):
    """To the bit on an engine, token by token, several at once and back, with the model's own text in between."""
    replace = BY_POSITION[which]
    under, text = study.changed(model, replace), [7, 3, 3, 60, 0, 12, 200, 41, 5, 5, 9, 1]
    steps = [(text[:3], 1), (text[:4], 1), (text[:9], 4), (text[:5], 1), (text, 2), (text[:2] + text, 1), (text + [8], 1)]
    before = np.array(model.logits(text))
    for at, (tokens, last) in enumerate(steps):
        if at == 4:
            assert np.array_equal(np.array(model.logits(text)), before)
        found, expected = np.array([np.asarray(row) for row in under.logits_of(tokens, last)]), by_window(model, replace, tokens, last)
        assert found.tobytes() == expected.tobytes() if model.machine.name != "reference" else np.allclose(found, expected, atol=1e-5), at
    assert np.array_equal(np.array(model.logits(text)), before)


def test_a_token_costs_one_row_where_the_cache_serves(model, monkeypatch):
    seen = []
    monkeypatch.setattr(steering, "build_decoding", lambda program, time, changed: seen.append(time) or build_decoding(program, time, changed))
    under = study.changed(model, BY_POSITION["a direction"])
    under.logits(TOKENS)
    seen.clear()
    for end in range(1, 5):
        under.logits([*TOKENS, *range(end)])
    assert seen == [1], "made once, for one row"
    for which, replace in OTHERS.items():
        other = study.changed(model, replace)
        assert np.allclose(other.logits(TOKENS), by_window(model, replace, TOKENS)[-1], atol=1e-5) and seen == [1], which


def test_two_in_turn_and_other_weights(model):
    """Neither takes what the other left in the cache for its own, nor what weights before left there."""
    replaces = [BY_POSITION["a direction"], BY_POSITION["keys"]]
    both = [study.changed(model, each) for each in replaces]
    for end in (2, 3, 4):
        for under, replace in zip(both, replaces):
            assert np.allclose(under.logits(TOKENS[:end]), by_window(model, replace, TOKENS[:end])[-1], rtol=0, atol=1e-5)
    weight = np.frombuffer(model.weight_bytes("blocks.0.attn.qkv.weight"), "<f4")
    model.set_weight_bytes("blocks.0.attn.qkv.weight", (-weight).astype("<f4").tobytes())
    assert np.allclose(both[1].logits(TOKENS), by_window(model, replaces[1], TOKENS)[-1], rtol=0, atol=1e-5)


def test_with_an_adapter(any_machine):
    model = made(any_machine, CONFIG, lora=LoRAConfig(rank=2, alpha=4, targets=("attn.q", "mlp.fc")))
    replace = BY_POSITION["several"]
    under = study.changed(model, replace)
    for strength in (1.0, 0.0, 0.5):
        model.strength = strength
        for end in (3, 5):
            assert np.allclose(under.logits(TOKENS[:end]), by_window(model, replace, TOKENS[:end])[-1], rtol=0, atol=2e-5)


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


@pytest.mark.parametrize("strength", [-3.0, 0.5, 2, 8.0])
def test_a_feature_is_added_as_strongly_as_is_asked_for(model, strength):
    """That many times its row of the decoder, beside the page of NumPy."""
    autoencoder = small(address="blocks.0.resid_post")
    direction = autoencoder.decoder[7].astype(np.float64)
    expected = by_hand(weights_of(model), CONFIG, TOKENS, {"blocks.0.resid_post": lambda there: there + strength * direction})["logits"][-1]
    steered = study.steer(model, autoencoder, 7, strength)
    assert np.allclose(steered.logits(TOKENS), expected, rtol=0, atol=1e-4)
    assert np.abs(expected - np.array(model.logits(TOKENS))).max() > 0.05


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
    with pytest.raises(ConfigError, match="a feature is a whole number from 0 to 39"):
        study.steer(model, small(), 40, 1.0)
    with pytest.raises(ConfigError, match="an address is"):
        study.changed(model, {"blocks.7.mlp.out": 0.0})
