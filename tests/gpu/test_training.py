"""A small GPT trained on a GPU beside the float64 reference: logits, every gradient, a curve. One start, one batch sequence."""

import math
import struct

import numpy as np
import pytest
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.dims import product
from posttrainllm.errors import DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import (
    DLOSS,
    LOSS,
    NORM,
    RECIPE,
    SEED,
    evaluation,
    initial_weights,
    pack_recipe,
    training_step,
)
from posttrainllm.model.steps import StepQueue
from posttrainllm.waiting import now

ODD = GPTConfig(layers=2, channels=21, heads=3, context=13, vocabulary=29, batch=3)
EVEN = GPTConfig(layers=1, channels=32, heads=2, context=37, vocabulary=64, batch=2)
SMALL = GPTConfig.preset("small", batch=2)
OTHER = GPTConfig(layers=2, channels=24, heads=3, context=13, vocabulary=29, batch=3, tied=False, activation="gelu", hidden=52)


def recipe_of(number):
    return (3e-3, 0.9, 0.95, 1e-8, 0.1, 1.0, 1 / (1 - 0.9**number), 1 / (1 - 0.95**number))


class Run:
    """A training run on any machine. `nudge` moves every starting weight by that much of its own size."""

    def __init__(self, machine, config, nudge=0.0):
        self.machine, self.config = machine, config
        self.initial, self.step, self.evaluation = initial_weights(config), training_step(config), evaluation(config)
        need = {}
        for each in (self.initial, self.step, self.evaluation):
            for region, nbytes in each.plan.region_bytes.items():
                need[region] = max(need.get(region, 0), nbytes)
        machine.allocate(need)
        machine.upload(address(SEED), struct.pack("<Q", 42))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        machine.replay(machine.load(self.initial.tape))
        if nudge:
            layout = Layout.of(config)
            start = address(layout.values()[layout.parameters[0].name])
            weights = np.frombuffer(machine.download(start, layout.total_bytes), "<f4")
            signs = np.random.default_rng(5).choice([-1.0, 1.0], weights.size)
            machine.upload(start, (weights * (1 + nudge * signs)).astype("<f4").tobytes())
        self.loaded = machine.load(self.step.tape)

    def batch(self, number):
        rng = np.random.default_rng(number)
        shape = (self.config.batch, self.config.context)
        tokens = (rng.integers(0, self.config.vocabulary, shape) ** 2 // self.config.vocabulary).astype("<i4")
        targets = np.where(rng.random(shape) < 0.1, -100, (tokens + 1) % self.config.vocabulary).astype("<i4")
        return tokens, targets

    def feed(self, number, each=None):
        each, (tokens, targets) = each or self.step, self.batch(number)
        self.machine.upload(address(each.tokens), tokens.tobytes())
        self.machine.upload(address(each.targets), targets.tobytes())

    def train(self, number):
        self.feed(number)
        self.machine.upload(address(RECIPE), pack_recipe(recipe_of(number)))
        self.machine.replay(self.loaded)

    def number(self, value):
        return struct.unpack("<f", self.machine.download(address(value), 4))[0]

    def read(self, each, name):
        return np.frombuffer(self.machine.download(*each.address(name)), "<f4").astype(np.float64)


@pytest.mark.parametrize("config", [ODD, EVEN, SMALL, OTHER], ids=["odd", "even", "small", "a head of its own, exact gelu"])
def test_logits_and_every_gradient(gpu, config):
    mine, judge, near = (
        Run(gpu, config),
        Run(ReferenceMachine(), config),
        Run(ReferenceMachine(), config, nudge=2.0**-23),
    )
    for run in (mine, judge, near):
        run.feed(1, run.evaluation)
        run.machine.replay(run.machine.load(run.evaluation.tape))
    _compare("logits", *(run.read(run.evaluation, "logits") for run in (mine, judge, near)))
    for run in (mine, judge, near):
        run.train(1)
    names = [parameter.name for parameter in Layout.of(config).parameters]
    assert len(names) == 4 + 12 * config.layers + (not config.tied)
    for name in names:
        _compare(name, *(run.read(run.step, name) for run in (mine, judge, near)))


def _compare(name, got, expected, near):
    """Within what float32 roundings may do: 32 times what one eps on every weight does, in the root of the mean square."""
    scale = np.sqrt((expected**2).mean())
    sway = np.sqrt(((near - expected) ** 2).mean())
    error = np.sqrt(((got - expected) ** 2).mean())
    allowed = 32 * max(sway, 2.0**-23 * scale)
    assert np.isfinite(got).all() and scale > 0, name
    assert allowed < 0.01 * scale, f"{name}: the bound {allowed:.2g} shows nothing at {scale:.2g}"
    assert error <= allowed, f"{name}: off by {error:.3g}, allowed {allowed:.3g}, size {scale:.3g}"


def test_fifty_steps(gpu):
    runs = [Run(gpu, ODD), Run(ReferenceMachine(), ODD), Run(ReferenceMachine(), ODD, nudge=2.0**-23)]
    worst, first, last = 0.0, None, None
    for number in range(1, 51):
        for run in runs:
            run.train(number)
        mine, judge, near = (run.number(LOSS) for run in runs)
        worst = max(worst, abs(near - judge))
        assert abs(mine - judge) <= 32 * max(worst, 2.0**-23 * judge), f"step {number}: {mine} and {judge}"
        assert math.isclose(runs[0].number(NORM), runs[1].number(NORM), rel_tol=1e-3)
        first, last = first or judge, judge
    assert last < first - 0.3, "the curve must fall, or it shows nothing"


def test_blocks_of_steps_give_every_number_in_order(gpu):
    """The queue below the Trainer: rows of inputs go in, each step's metrics come out (see Machine.steps)."""
    run, expected, got = Run(gpu, ODD), [], []
    for number in range(1, 12):
        run.train(number)
        expected.append((run.number(LOSS), run.number(NORM)))
    run = Run(gpu, ODD)
    queue = StepQueue(gpu, run.loaded, run.step)
    for first, count in ((1, 1), (2, 4), (6, 6)):
        fed = [run.batch(number) for number in range(first, first + count)]
        tokens, targets = (np.array([each[side] for each in fed]) for side in (0, 1))
        queue.push(tokens, targets, [recipe_of(number) for number in range(first, first + count)])
        got += queue.poll()
    got += now(queue.drain())
    assert got == expected and queue.under_way == 0 and queue.step_seconds > 0


def test_a_block_with_a_token_outside_the_vocabulary_is_refused_whole(gpu):
    run = Run(gpu, ODD)
    queue = StepQueue(gpu, run.loaded, run.step)
    tokens, targets = (np.array([each]) for each in run.batch(1))
    tokens[0, 0, 0] = ODD.vocabulary
    with pytest.raises(DataError, match=f"{ODD.vocabulary} came"):
        queue.push(tokens, targets, [recipe_of(1)])
    assert queue.under_way == 0


def test_a_norm_that_is_not_finite_changes_no_weight(gpu):
    run = Run(gpu, ODD)
    name = "blocks.0.attn.qkv.weight"
    run.train(1)
    layout = Layout.of(ODD)
    value = layout.values()[name]
    before = run.machine.download(address(value), product(value.shape) * 4)
    run.machine.upload(address(DLOSS), struct.pack("<f", math.inf))
    run.train(2)
    assert not math.isfinite(run.number(NORM))
    assert run.machine.download(address(value), product(value.shape) * 4) == before


@pytest.mark.parametrize("bad", [ODD.vocabulary, -1])
def test_a_token_outside_the_vocabulary_is_an_error(gpu, bad):
    run = Run(gpu, ODD)
    run.train(1)
    loss = run.number(LOSS)
    run.machine.upload(address(run.step.tokens), struct.pack("<i", bad))
    with pytest.raises(DataError, match=f"from 0 to {ODD.vocabulary - 1}; {bad} came"):
        run.machine.replay(run.loaded)
    assert run.number(LOSS) == loss
