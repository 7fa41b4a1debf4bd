"""The whole model's gradient in the judge, against differences of its loss; the step's own tape is judged."""

from dataclasses import replace

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile import Graph
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout, trace
from posttrainllm.model.program import LOSS, Program
from tests.helpers.gradients import NoSignal, check_gradient, execute
from tests.helpers.models import Model, batch, recipe

CONFIG = GPTConfig(layers=2, channels=12, heads=3, context=7, vocabulary=19, batch=2)
TOKENS, TARGETS = batch(CONFIG, 3)
NAMES = [p.name for p in Layout.of(CONFIG).parameters]
OTHER = replace(CONFIG, tied=False, activation="gelu", hidden=31)
OTHER_NAMES = ["wte.weight", "lm_head.weight", "blocks.0.mlp.fc.weight", "blocks.1.mlp.fc.bias", "blocks.1.mlp.proj.weight"]


@pytest.fixture(scope="module")
def trained():
    return judged(CONFIG)


@pytest.fixture(scope="module")
def trained_other():
    return judged(OTHER)


def judged(config):
    """Weights away from their start (biases not 0), the step's gradients there, and the loss as a function."""
    model = Model(ReferenceMachine(), config)
    rng = np.random.default_rng(0)
    for value in model.program.layout.values().values():
        model.write(value, model.read(value) + 0.3 * rng.standard_normal(value.shape))
    model.step(TOKENS, TARGETS, recipe(1, 0.0))
    graph, weights = Graph(), Program(config).layout.values()
    step = model.program.step
    named = trace(graph, config, weights, step.tokens, CONFIG.batch, CONFIG.context)
    rows = {"R": CONFIG.batch * CONFIG.context, "V": CONFIG.vocabulary}
    graph.call("cross_entropy", rows, logits=named["logits"], targets=step.targets, loss=LOSS)
    start = {weights[name]: value for name, value in model.weights().items()}
    start |= {step.tokens: TOKENS, step.targets: TARGETS}

    def loss(name, x):
        return float(execute(graph, start | {weights[name]: x})[LOSS][0])

    return model.weights(), model.gradients(), loss


@pytest.mark.parametrize("name", NAMES)
def test_every_gradient_of_the_model(trained, name):
    weights, gradients, loss = trained
    check_gradient(name, lambda x: loss(name, x), weights[name], gradients[name], trials=2)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_with_a_head_of_its_own_and_the_exact_gelu(trained_other, name):
    weights, gradients, loss = trained_other
    check_gradient(name, lambda x: loss(name, x), weights[name], gradients[name], trials=2)


def test_the_bias_of_keys_has_no_gradient(trained):
    """A common shift of all keys shifts every score of a query alike: softmax takes it out. No signal."""
    weights, gradients, loss = trained
    name, keys = "blocks.0.attn.qkv.bias", slice(12, 24)
    assert np.abs(gradients[name][keys]).max() < 1e-14 < 1e-4 < np.abs(gradients[name]).max()

    def of_keys(x):
        changed = weights[name].copy()
        changed[keys] = x
        return loss(name, changed)

    with pytest.raises(NoSignal):
        check_gradient(name, of_keys, weights[name][keys], gradients[name][keys])


def test_a_gradient_of_another_weight_is_noticed(trained):
    weights, gradients, loss = trained
    one, other = "blocks.0.ln_1.weight", "blocks.1.ln_1.weight"
    with pytest.raises(AssertionError, match="differences say"):
        check_gradient(one, lambda x: loss(one, x), weights[one], gradients[other])


def test_the_norm_is_that_of_all_gradients():
    model = Model(ReferenceMachine(), CONFIG)
    _, norm = model.step(TOKENS, TARGETS, recipe(1, 0.0))
    whole = np.sqrt(sum((g**2).sum() for g in model.gradients().values()))
    assert norm == pytest.approx(whole, rel=1e-13)
