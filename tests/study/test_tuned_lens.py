"""A tuned lens: its gradients by differences, from the plain lens on, and nearer to what the model says after training."""

import json

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, FormatError, NonFiniteError, ShapeError
from posttrainllm.study.tuned_lens import LensTrainer, _Step, stream_names
from posttrainllm.waiting import now
from tests.study.by_hand import normalised, weights_of
from tests.study.golden import CONFIG, TOKENS, made_here

TEXT = np.arange(1200) * 7 % 41


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def said(weights, x, weight, bias):
    return softmax(normalised(x + x @ weight + bias, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["wte.weight"].T)


def test_its_gradients_are_those_of_the_divergence(any_machine):
    """Twice, so that what the first left is seen. Differences in float64."""
    model = made_here(any_machine)
    weights, rng = weights_of(model), np.random.default_rng(0)
    step, c = _Step(model, 6), CONFIG.channels
    for _ in range(2):
        x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, c), (c, c), (c,)))
        weight *= np.float32(0.2)
        shares = softmax(rng.standard_normal((6, CONFIG.vocabulary)))

        def loss(weight, bias, x=x.astype(np.float64), shares=shares):
            return (shares * np.log(shares / said(weights, x, weight, bias))).sum(1).mean()

        divergence, dweight, dbias = now(step.gradients(x, weight, bias, shares))
        double = weight.astype(np.float64), bias.astype(np.float64)
        assert np.isclose(divergence, loss(*double), rtol=1e-5)
        for which, gradient in enumerate((dweight, dbias)):
            for at in list(np.ndindex(gradient.shape))[::37]:
                moved = [[each.copy() for each in double] for _ in range(2)]
                for each, sign in zip(moved, (1, -1)):
                    each[which][at] += sign * 1e-5
                assert np.isclose((loss(*moved[0]) - loss(*moved[1])) / 2e-5, gradient[at], rtol=2e-3, atol=2e-6), at


def test_it_starts_as_the_plain_lens_and_comes_nearer(any_machine):
    model = made_here(any_machine)
    trainer = LensTrainer(model, TEXT, steps=25, learning_rate=0.02, batch=4)
    assert trainer.lens("embed", np.ones((2, CONFIG.channels))).tolist() == np.ones((2, CONFIG.channels)).tolist()
    reports = list(trainer.run())
    first, last = reports[0].divergence_nats, reports[-1].divergence_nats
    assert len(first) == CONFIG.layers == len(trainer.lens.names) and all(after < 0.7 * before for before, after in zip(first, last))
    plain = study.logit_lens(model, TOKENS)
    tuned = study.logit_lens(model, TOKENS, tuned=trainer.lens)
    assert np.array_equal(tuned.probability[-1], plain.probability[-1], equal_nan=True), "the last layer needs no map"
    there = study.run(model, TEXT[600:616], taps=["embed", "logits"])
    shares = softmax(there["logits"].astype(np.float64))

    def divergence(weight, bias):
        return (shares * np.log(shares / said(weights_of(model), there["embed"].astype(np.float64), weight, bias))).sum(1).mean()

    lens = trainer.lens
    assert divergence(lens.weights[0], lens.biases[0]) < 0.8 * divergence(0 * lens.weights[0], 0 * lens.biases[0])
    assert "nats" in str(reports[-1]) and reports[-1].to_dict()["step"] == 25


def test_the_lens_says_what_its_map_says(any_machine):
    model = made_here(any_machine)
    lens = LensTrainer(model, TEXT, steps=1).lens
    lens.weights[1], lens.biases[1] = np.random.default_rng(1).standard_normal(lens.weights[1].shape) * 0.1, 0.3
    stream = study.run(model, TOKENS, taps="blocks.0.resid_post")["blocks.0.resid_post"].astype(np.float64)
    expected = said(weights_of(model), stream, lens.weights[1], lens.biases[1])
    found = study.logit_lens(model, TOKENS, top=1, tuned=lens)
    assert np.array_equal(found.top_tokens[1, :, 0], expected.argmax(1)) and np.allclose(found.top_probability[1, :, 0], expected.max(1), atol=2e-5)


def test_what_does_not_fit_is_refused(any_machine):
    for wrong in ({"steps": 0}, {"batch": 0}):
        with pytest.raises(ConfigError, match="from 1"):
            LensTrainer(made_here(any_machine), TEXT, **wrong)


def test_it_comes_back_from_its_file_and_prints(any_machine, tmp_path):
    model = made_here(any_machine)
    trainer = LensTrainer(model, TEXT, steps=3, learning_rate=0.02, batch=2)
    assert str(trainer) == "tuned lens, 3 steps to take"
    reports = list(trainer.run())
    lines = str(trainer).splitlines()
    assert lines[0] == "tuned lens, step 3 of 3" and len(lines) == 1 + CONFIG.layers
    first, last = reports[0].divergence_nats, reports[-1].divergence_nats
    assert f"{last[0]:.3f} nats" in lines[1] and f"{first[0]:.3f} at first" in lines[1] and lines[2].startswith("blocks.0 ")
    shown = str(trainer.lens).splitlines()
    assert len(shown) == 1 + CONFIG.layers and f"{np.sqrt((trainer.lens.weights[1] ** 2).sum() + (trainer.lens.biases[1] ** 2).sum()):.3g}" in shown[2]
    path = tmp_path / "lens.safetensors"
    assert trainer.lens.save(path) == path.stat().st_size
    again = study.TunedLens.load(path)
    assert again.names == trainer.lens.names and again.weights.tobytes() == trainer.lens.weights.tobytes() and again.biases.tobytes() == trainer.lens.biases.tobytes()
    one, other = (study.logit_lens(model, TOKENS, tuned=each) for each in (trainer.lens, again))
    assert np.array_equal(one.probability, other.probability, equal_nan=True)


def test_a_lens_of_another_model_and_files_of_another_kind_are_refused(any_machine, tmp_path):
    model, path = made_here(any_machine), tmp_path / "lens.safetensors"
    for other in (study.TunedLens(["embed"], CONFIG.channels), study.TunedLens(stream_names(CONFIG), 16)):
        with pytest.raises(ShapeError, match="a tuned lens for this model, 2 layers of 24 channels; one of"):
            study.logit_lens(model, TOKENS, tuned=other)
    with pytest.raises(FormatError, match="is not there"):
        study.TunedLens.load(path)
    study.TunedLens(["embed"], 4).save(path)
    right = path.read_bytes()
    length = int.from_bytes(right[:8], "little")
    head, data = json.loads(right[8 : 8 + length]), right[8 + length :]

    def write(weight=None, **metadata):
        changed = head | {"__metadata__": head["__metadata__"] | metadata, "weight": head["weight"] | (weight or {})}
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)

    wrong = [({"format": "another"}, None), ({"version": "2"}, None), ({"names": "embed"}, None), ({"names": "5"}, None), ({"names": '["a", "b"]'}, None),
             ({}, {"shape": [1, 2, 8]}), ({}, {"dtype": "I32"})]  # fmt: skip
    for metadata, weight in wrong:
        write(weight, **metadata)
        with pytest.raises(FormatError, match="lens"):
            study.TunedLens.load(path)
    lens = study.TunedLens(["embed"], 4)
    lens.biases[0, 1] = np.inf
    lens.save(path)
    with pytest.raises(NonFiniteError, match="its numbers are finite"):
        study.TunedLens.load(path)
