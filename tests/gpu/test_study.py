"""Looking inside a model on a GPU: what is read is right though products are fused there, and what is replaced takes effect."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.sae_engine import Products
from posttrainllm.study.sae_train import gradients
from posttrainllm.waiting import now
from tests.helpers.machines import open_once
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TOKENS = [7, 3, 3, 60, 0, 12, 7, 3, 41, 5, 5]
EPS = 2.0**-23
NEAR = 64 * EPS  # of an address's largest number; measured on lavapipe: 5 eps


@pytest.fixture(scope="module")
def model(gpu):
    return made(gpu, CONFIG)


def near(got, expected):
    finite = np.isfinite(expected)
    return np.abs(np.asarray(got, np.float64)[finite] - expected[finite]).max() <= NEAR * np.abs(expected[finite]).max()


def test_every_address_holds_what_it_says(model):
    found, expected = study.run(model, TOKENS, taps="*"), by_hand(weights_of(model), CONFIG, TOKENS)
    assert [name for name in expected if not near(found[name], expected[name])] == []


@pytest.mark.parametrize("rows", [[TOKENS], [TOKENS[:5], TOKENS[1:6]], [list(range(20))] * 3], ids=["odd", "two", "whole"])
def test_reading_everything_changes_no_bit_of_the_logits(model, rows):
    """Though what is read is then written by dispatches of its own, where else a product and what follows it are one."""
    alone = study.run(model, rows, taps="logits")["logits"]
    assert alone.tobytes() == study.run(model, rows, taps="*")["logits"].tobytes()
    some = study.run(model, rows, taps=["logits", "blocks.0.mlp.pre", "blocks.1.attn.out"])["logits"]
    assert alone.tobytes() == some.tobytes() and np.ptp(alone) > 1


def test_one_address_alone_is_what_it_is_among_all(model):
    """Fused or not, since what is read must be written: the same but for roundings."""
    everything = study.run(model, TOKENS, taps="*")
    for name in ("blocks.0.attn.out", "blocks.1.mlp.pre", "blocks.1.mlp.out", "blocks.0.resid_mid", "logits"):
        assert near(study.run(model, TOKENS, taps=name)[name], everything[name].astype(np.float64)), name


def test_replacing_by_itself_changes_no_bit(model):
    names = ["embed", "blocks.0.attn.q", "blocks.0.attn.y", "blocks.0.attn.out", "blocks.1.resid_mid", "blocks.1.mlp.pre", "blocks.1.mlp.out"]
    everything = study.run(model, TOKENS, taps="*")
    once = study.run(model, TOKENS, taps="*", replace={name: everything[name] for name in names})
    assert all(once[name].tobytes() == everything[name].tobytes() for name in everything)


@pytest.mark.parametrize("address", ["embed", "blocks.0.attn.k", "blocks.0.attn.y", "blocks.1.attn.out", "blocks.1.mlp.post", "blocks.0.resid_post"])
def test_what_is_put_there_takes_effect(model, address):
    new = np.random.default_rng(1).standard_normal(study.run(model, TOKENS, taps=address)[address].shape).astype(np.float32)
    new[::2] = np.nan
    found = study.run(model, TOKENS, taps="logits", replace={address: new})["logits"]
    expected = by_hand(weights_of(model), CONFIG, TOKENS, {address: lambda old: np.where(np.isnan(new), old, new)})["logits"]
    assert near(found, expected)


def test_steering_keeps_a_cache(model):
    """Token by token, with the model's own text in between."""
    under = study.changed(model, {"blocks.0.attn.k": study.Change(-1.0), "blocks.0.resid_post": study.Change(0.5, 0.3)})
    changes = {"blocks.0.attn.k": lambda there: -there, "blocks.0.resid_post": lambda there: 0.5 * there + 0.3}
    expected, plain = (by_hand(weights_of(model), CONFIG, TOKENS, each)["logits"] for each in (changes, {}))
    for at in range(len(TOKENS)):
        assert near(under.logits(TOKENS[: at + 1]), expected[at])
        if at == 5:
            assert near(model.logits(TOKENS), plain[-1])


@pytest.mark.native_only(reason="the browser's host gives back 8.3 MB down to 2.3, not all of it: why is not known yet")
def test_a_big_runs_memory_is_given_back(open_gpu):
    machine = open_gpu(DEFAULT)
    model = made(machine, CONFIG)
    before, held = bytes(model.logits(TOKENS)), machine.memory()
    small = study.run(model, TOKENS, taps="*")
    study.run(model, [TOKENS] * 40, taps="*", replace={"blocks.0.mlp.pre": 0.0})
    grown = machine.memory()
    study.release(model)
    assert sum(grown.values()) > 1.5 * sum(held.values()) and sum(machine.memory().values()) <= sum(held.values())
    assert bytes(model.logits(TOKENS)) == before
    again = study.run(model, TOKENS, taps="*")
    assert all(again[name].tobytes() == each.tobytes() for name, each in small.items())


def test_lens_and_maps(model):
    there = by_hand(weights_of(model), CONFIG, TOKENS)["logits"]
    assert study.next_token(model, TOKENS).tokens[0] == there[-1].argmax()
    assert np.abs(study.ablate(model, TOKENS).change).max() > 0.01


@pytest.mark.parametrize("kind", ["topk", "l1"])
def test_an_autoencoders_products(model, kind):
    """Beside NumPy in double precision, twice, so that what the first left is seen."""
    rng = np.random.default_rng(0)
    shapes = {"encoder": (24, 40), "encoder_bias": (40,), "decoder": (40, 24), "bias": (24,)}
    products = Products(model, 24, 40, 19)
    for _ in range(2):
        w = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        x = rng.standard_normal((19, 24)).astype(np.float32)
        _, error, found = now(products.gradients(w, x, kind, 7, 0.7))
        _, expected, golden = gradients({name: each.astype(np.float64) for name, each in w.items()}, x.astype(np.float64), kind, 7, 0.7)
        assert near(error, expected) and all(near(found[name], golden[name]) for name in shapes)


def test_a_tuned_lens_comes_nearer(model):
    trainer = study.LensTrainer(model, np.arange(600) * 7 % 61, steps=8, learning_rate=0.02, batch=2)
    reports = list(trainer.run())
    assert all(after < before for before, after in zip(reports[0].divergence_nats, reports[-1].divergence_nats))
    on_cpu = made(open_once("cpu"), CONFIG)
    again = list(study.LensTrainer(on_cpu, np.arange(600) * 7 % 61, steps=8, learning_rate=0.02, batch=2).run())
    assert np.allclose(reports[-1].divergence_nats, again[-1].divergence_nats, rtol=1e-3)
