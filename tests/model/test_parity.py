"""The whole model on an engine against the judge: logits, losses, every gradient, 50 steps; and rows that stand alone.

What a float32 engine may differ by is measured, not guessed: the judge runs again on weights moved by one float32 eps
of their size, two ways, and the engine may stray a few times as far as that moves each tensor.
"""

import functools

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import forward
from tests.helpers.models import Model, batch, recipe

EPS = 2.0**-23
TIMES, TRIALS = 4.0, 2
CONFIGS = {
    "odd": GPTConfig(layers=2, channels=30, heads=3, context=11, vocabulary=61, batch=3),
    "one head, one layer": GPTConfig(layers=1, channels=20, heads=1, context=33, vocabulary=17, batch=2),
    "one token": GPTConfig(layers=2, channels=24, heads=4, context=1, vocabulary=50, batch=5),
    "tiny": GPTConfig.preset("tiny", batch=4),
    "a head of its own, exact gelu": GPTConfig(2, 30, 3, 11, 61, 3, tied=False, activation="gelu", hidden=50),
    "wide": GPTConfig(layers=1, channels=264, heads=3, context=40, vocabulary=300, batch=1),
}
STEPS = 50


def nudge(model, trial):
    """Move every weight of a judge by one float32 eps of its size, up or down; trial 0 moves none."""
    rng = np.random.default_rng(trial)
    for value in model.program.layout.values().values() if trial else ():
        weights = model.read(value)
        model.write(value, weights * (1 + EPS * rng.choice([-1.0, 1.0], weights.shape)))


def one_step(model, trial=0):
    """Logits, losses, loss and every gradient, at weights away from their start: no bias is 0, no gain 1."""
    rng = np.random.default_rng(99)
    for value in model.program.layout.values().values():
        model.write(value, (model.read(value) + 0.1 * rng.standard_normal(value.shape)).astype(np.float32))
    nudge(model, trial)
    tokens, targets = batch(model.config, 0)
    losses, loss, logits = model.evaluate(tokens, targets)
    model.step(tokens, targets, recipe(1, 0.0))
    return {"logits": logits, "losses": losses, "loss": loss} | model.gradients()


def curve(model, trial=0):
    """Losses and norms of 50 steps on five batches."""
    nudge(model, trial)
    rows = [
        model.step(*batch(model.config, n % 5), recipe(n + 1, 0.005 * min(1.0, (n + 1) / 10))) for n in range(STEPS)
    ]
    losses, norms = np.array(rows).T
    return {"losses": losses, "norms": norms}


@functools.lru_cache
def judged(name, what):
    """(the judge's values, what an engine may differ by) for a config."""
    expected, *others = (what(Model(ReferenceMachine(), CONFIGS[name]), trial) for trial in range(1 + TRIALS))
    allowed = {}
    for key, value in expected.items():
        sway = max(float(np.abs(other[key] - value).max()) for other in others)
        allowed[key] = TIMES * max(sway, 4 * EPS * float(np.abs(value).max()))
    return expected, allowed


def compare(got, expected, allowed):
    """Assert nearness by name; refuse where what is allowed comes near what is there."""
    wrong = []
    for key, value in expected.items():
        signal, error = float(np.abs(value).max()), float(np.abs(got[key] - value).max())
        assert 300 * allowed[key] < signal, f"{key}: allowed {allowed[key]:.2g} of {signal:.2g} shows nothing"
        if not error <= allowed[key]:
            wrong.append(f"{key}: off by {error:.3g}, allowed {allowed[key]:.3g} of {signal:.3g}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_losses_and_every_gradient(machine, name):
    compare(one_step(Model(machine, CONFIGS[name])), *judged(name, one_step))


@pytest.mark.parametrize("name", ["odd", "tiny"])
def test_fifty_steps(machine, name):
    expected, allowed = judged(name, curve)
    assert expected["losses"][-1] < 0.9 * expected["losses"][0], "it must learn, or there is nothing to compare"
    compare(curve(Model(machine, CONFIGS[name])), expected, allowed)


def test_a_slightly_wrong_gradient_is_noticed():
    """One part in ten thousand on one tensor of one layer."""
    expected, allowed = judged("odd", one_step)
    for key in ("blocks.1.mlp.fc.weight", "wpe.weight", "logits"):
        with pytest.raises(AssertionError, match=f"{key}: off by"):
            compare(expected | {key: expected[key] * 1.0001}, expected, allowed)


def test_rows_of_logits_do_not_depend_on_the_batch(machine):
    """The same bits from a batch of 16, of 3, of 1, and from a text cut short: evaluation and decoding rely on it."""
    config = GPTConfig.preset("tiny")
    model = Model(machine, config)
    for number in (1, 2):
        model.step(*batch(config, number), recipe(number, 0.01))
    tokens, targets = batch(config, 7)
    losses, _, logits = model.evaluate(tokens, targets)
    losses, logits = losses.reshape(config.batch, -1), logits.reshape(config.batch, config.context, -1)
    for row in (0, 9, 15):
        for time in (1, 5, 16, 31, config.context):
            alone = model.forward(forward(config, 1, time), tokens[row : row + 1, :time])
            assert np.array_equal(alone, logits[row, :time]), f"row {row}, {time} tokens"
    trained = model.weights_bytes()
    few = Model(machine, config.with_batch(3))  # the same machine: its weights start anew
    machine.upload(address(few.program.layout.values()["wte.weight"]), trained)
    assert np.array_equal(few.evaluate(tokens[4:7], targets[4:7])[0], losses[4:7].reshape(-1))


def test_a_later_token_changes_no_earlier_logit(machine):
    config = CONFIGS["odd"]
    model = Model(machine, config)
    tokens, targets = batch(config, 0)
    changed = tokens.copy()
    changed[:, 6:] = (changed[:, 6:] + 1) % config.vocabulary
    one, two = (
        model.evaluate(each, targets)[2].reshape(config.batch, config.context, -1) for each in (tokens, changed)
    )
    assert np.array_equal(one[:, :6], two[:, :6]) and (one[:, 6:] != two[:, 6:]).any(-1).all()


def test_evaluation_changes_no_weight(machine):
    model = Model(machine, CONFIGS["odd"])
    before = model.weights_bytes()
    model.evaluate(*batch(model.config, 0))
    assert model.weights_bytes() == before


def test_the_same_steps_give_the_same_bits(machine):
    """Creating a model anew on a used engine leaves nothing of the one before."""
    results = []
    for _ in range(2):
        model = Model(machine, CONFIGS["tiny"])
        results.append(
            [model.step(*batch(model.config, n), recipe(n + 1, 0.01)) for n in range(3)] + [model.weights_bytes()]
        )
    assert results[0] == results[1]
