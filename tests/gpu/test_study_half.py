"""Looking inside a model on a GPU that stores halves: the same weights are looked into in single precision, and training goes on unharmed."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.train.schedule import recipe
from posttrainllm.train.settings import training_settings
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of

from .half import half  # noqa: F401 - the fixture
from .test_study import CONFIG, NEAR, TOKENS, near

pytestmark = pytest.mark.native_only(reason="SwiftShader has no shader-f16")
TEXT = np.arange(600) * 7 % 61


@pytest.fixture(scope="module")
def model(half):  # noqa: F811
    return made(half, CONFIG)


def test_every_address_holds_what_it_says_in_single_precision(model):
    """Far nearer than halves could be: their eps is 8,192 of these."""
    assert model.machine.precision == "f16" and NEAR < 2.0**-11 / 50
    found, expected = study.run(model, TOKENS, taps="*"), by_hand(weights_of(model), CONFIG, TOKENS)
    assert [name for name in expected if not near(found[name], expected[name])] == []
    alone = study.run(model, TOKENS, taps="blocks.0.mlp.pre")["blocks.0.mlp.pre"]
    assert near(alone, expected["blocks.0.mlp.pre"])


def test_replacing_lenses_and_maps(model):
    put = np.full((len(TOKENS), CONFIG.channels), 0.3, np.float32)
    found = study.run(model, TOKENS, taps="logits", replace={"blocks.0.mlp.out": put})["logits"]
    assert near(found, by_hand(weights_of(model), CONFIG, TOKENS, {"blocks.0.mlp.out": lambda there: put})["logits"])
    under = study.changed(model, {"blocks.0.mlp.out": study.Change(0.5, put[0])})
    expected = by_hand(weights_of(model), CONFIG, TOKENS, {"blocks.0.mlp.out": lambda there: 0.5 * there + 0.3})["logits"]
    assert all(near(under.logits(TOKENS[: at + 1]), expected[at]) for at in range(len(TOKENS))), "with a cache"
    there = by_hand(weights_of(model), CONFIG, TOKENS)["logits"]
    assert study.next_token(model, TOKENS).tokens[0] == there[-1].argmax()
    assert np.abs(study.ablate(model, TOKENS).change).max() > 0.01


def test_an_autoencoder_and_a_tuned_lens_are_trained_there(model):
    trainer = study.sae_trainer(model, TEXT, "blocks.0.resid_post", rows=300, features=32, k=4, steps=40, batch=64)
    assert list(trainer.run())[-1].explained > 0.4 and np.isfinite(study.recovered(model, TEXT, trainer.autoencoder, count=40).replaced_nats)
    reports = list(study.LensTrainer(model, TEXT, steps=6, learning_rate=0.02, batch=2).run())
    assert all(after < before for before, after in zip(reports[0].divergence_nats, reports[-1].divergence_nats))


def test_looking_between_two_steps_changes_no_bit_of_the_training(half):  # noqa: F811
    """Neither the halves of the weights nor the loss scale."""
    config = GPTConfig(layers=1, channels=16, heads=2, context=16, vocabulary=31, batch=2)
    settings = training_settings(channels=16)
    batch = (np.arange(32) % 31).astype("<i4").tobytes()
    hashes = []
    for looks in (False, True):
        model = GPT(config, half, Program(config))
        model.initialise(3)
        for step in (1, 2, 3):
            model.step(batch, batch, recipe(step, settings))
            if looks:
                study.run(model, [1, 2, 3], taps="*", replace={"blocks.0.attn.y": 0.0})
        hashes.append(model.weights_sha256())
    assert hashes[0] == hashes[1]
