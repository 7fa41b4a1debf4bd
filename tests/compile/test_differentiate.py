"""differentiate: sums over every path, through any wiring, and nothing for what is frozen."""

import numpy as np
import pytest

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from tests.helpers.gradients import TOLERANCE, NoSignal, check_gradient, derivative, execute
from tests.helpers.graphs import DLOSS, LOSS, STEPS, build

RESIDUAL = [("residual", 0, 0), ("residual", 0, 0)]
WIRINGS = {
    "x + f(x)": RESIDUAL,
    "x + x": [("linear", 0, 0), ("add", 0, 0)],
    "x three times": [("linear", 0, 0), ("gelu", 0, 0), ("layernorm", 1, 0), ("add", 2, 1), ("add", 0, 3)],
    "x into two layernorms": [("layernorm", 0, 0), ("layernorm", 1, 0), ("add", 0, 1)],
    "x into three layernorms and past them": [
        ("layernorm", 0, 0),
        ("layernorm", 1, 0),
        ("layernorm", 2, 0),
        ("add", 0, 1),
        ("add", 0, 3),
        ("add", 0, 5),
    ],
    "post-LN": [
        ("linear", 0, 0),
        ("add", 0, 1),
        ("layernorm", 0, 0),
        ("attention", 0, 0),
        ("add", 0, 1),
        ("layernorm", 0, 0),
    ],
    "a sum read twice": [("gelu", 0, 0), ("add", 0, 1), ("layernorm", 0, 0), ("linear", 1, 0), ("add", 0, 1)],
    "both sides of a sum read again": [
        ("linear", 0, 0),
        ("add", 0, 1),
        ("layernorm", 2, 0),
        ("add", 0, 1),
        ("layernorm", 3, 0),
        ("add", 0, 1),
    ],
    "a sum of one sum with itself": [
        ("linear", 0, 0),
        ("add", 0, 1),
        ("add", 0, 0),
        ("layernorm", 1, 0),
        ("add", 0, 1),
    ],
    "a branch that leads nowhere": [("linear", 0, 0), ("layernorm", 1, 0), ("gelu", 0, 0), ("add", 2, 3)],
    "attention beside itself": [("attention", 0, 0), ("attention", 1, 0), ("add", 0, 1), ("residual", 0, 0)],
}


def check_model(model, builder, seed=0, must_answer=True):
    """Each weight's gradient against differences of the loss; where no gradient came, the loss must not answer."""
    given = model.given(seed)
    arrays = execute(model.graph, given)
    rng = np.random.default_rng(seed)
    answered = 0
    for name, weight in model.weights.items():
        gradient = builder.gradient_of(weight)
        dx = arrays.get(gradient, np.zeros(weight.shape))

        def f(x, weight=weight):
            return model.loss(given | {weight: x})

        try:
            check_gradient(name, f, np.array(given[weight], np.float64), dx, trials=1, seed=seed)
            answered += 1
        except NoSignal:  # a dead branch, an embedding row without tokens: the gradient must be as small
            direction = rng.standard_normal(weight.shape)
            slope, scale = derivative(f, np.array(given[weight], np.float64), direction)
            assert abs((dx * direction).sum() - slope) <= TOLERANCE * scale, name
    assert answered or not must_answer


@pytest.mark.parametrize("wiring", WIRINGS)
def test_every_path_counts(wiring):
    model = build(WIRINGS[wiring])
    builder = model.finish()
    check_model(model, builder)


def test_any_wiring():
    """Random graphs: hypothesis shrinks a wrong one to its smallest."""
    hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
    st = hypothesis.strategies
    choices = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8)

    @hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
    @hypothesis.given(choices)
    def check(steps):
        model = build(steps)
        check_model(model, model.finish())

    check()


def test_a_lost_path_is_noticed():
    """The check can fail: drop each backward node in turn, and a gradient must come out wrong."""
    model = build(RESIDUAL)
    builder = model.finish()
    backward = range(model.forward_nodes, len(model.graph.nodes))
    whole = list(model.graph.nodes)
    for index in backward:
        model.graph.nodes = whole[:index] + whole[index + 1 :]
        with pytest.raises(AssertionError):
            check_model(model, builder)


def written_in_grads(model):
    """Names of weights whose place in the gradient buffer some backward node writes."""
    by_offset = {value.offset_bytes: name for name, value in model.weights.items()}
    return {
        by_offset[value.offset_bytes]
        for node in model.graph.nodes
        for value in node.written()
        if value.region == "grads"
    }


def test_nothing_to_train_appends_nothing():
    model = build(RESIDUAL)
    model.finish(trainable=set())
    assert not written_in_grads(model)
    assert {node.kernel.name for node in model.graph.nodes[model.forward_nodes :]} <= {"cross_entropy_backward"}


GROUPS = {
    "embedding": {"w0", "w1"},
    "layernorm": {"w2", "w3"},
    "linear": {"w4", "w5"},
    "second linear": {"w8", "w9"},
    "head": {"w10"},
}
TWICE = [("layernorm", 0, 0), ("linear", 0, 0), ("layernorm", 0, 0), ("linear", 0, 0)]


def check_alone(trainable):
    """Train some weights of TWICE, freeze the rest: gradients come to these, are right, and touch nothing frozen."""
    model = build(TWICE)
    builder = model.finish(trainable=trainable)
    given = model.given()
    arrays = execute(model.graph, given)
    for name in trainable:
        weight = model.weights[name]
        check_gradient(
            name,
            lambda x, w=weight: model.loss(given | {w: x}),
            given[weight].astype(np.float64),
            arrays[builder.gradient_of(weight)],
        )
    assert written_in_grads(model) == trainable


@pytest.mark.parametrize("group", GROUPS)
def test_only_trainable_weights_get_a_gradient(group):
    check_alone(GROUPS[group])


@pytest.mark.parametrize("name", [f"w{number}" for number in range(11)])
def test_a_weight_or_a_bias_may_be_trained_alone(name):
    check_alone({name})


def test_any_subset_may_be_trained():
    """Every one of the 2^11: only these get a gradient."""
    names = [f"w{number}" for number in range(11)]
    for chosen in range(1 << len(names)):
        trainable = {name for bit, name in enumerate(names) if chosen >> bit & 1}
        model = build(TWICE)
        model.finish(trainable=trainable)
        assert written_in_grads(model) == trainable


@pytest.mark.parametrize(
    ("trainable", "lowest"),
    [({"w8"}, "linear_backward_weight"), ({"w9", "w10"}, "linear_backward_weight"), ({"w6"}, "layernorm_backward")],
)
def test_nothing_is_computed_below_the_lowest_trainable_weight(trainable, lowest):
    model = build(TWICE)
    model.finish(trainable=trainable)
    backward = [node.kernel.name for node in model.graph.nodes[model.forward_nodes :]]
    assert backward[-1] == lowest and backward.count(lowest) == 1
    assert "embedding_backward" not in backward and backward.count("linear_backward_input") <= 1


def test_a_frozen_layernorm_passes_its_input_gradient_on():
    model = build(TWICE)
    model.finish(trainable=GROUPS["embedding"])
    backward = [node.kernel.name for node in model.graph.nodes[model.forward_nodes :]]
    assert backward.count("layernorm_backward_input") == 2 and "layernorm_backward" not in backward
    assert "linear_backward_weight" not in backward and "unembed_backward_weight" not in backward


def test_gradients_stand_where_their_weights_do():
    """One flat range for AdamW: the gradient of a weight has its offset, shape and dtype."""
    model = build(RESIDUAL)
    builder = model.finish()
    for weight in model.weights.values():
        gradient = builder.gradient_of(weight)
        assert (gradient.region, gradient.offset_bytes, gradient.shape) == ("grads", weight.offset_bytes, weight.shape)
    offsets = Layout.of(GPTConfig.preset("tiny")).offsets_bytes
    assert len(set(offsets.values())) == len(offsets)


def test_dloss_scales_every_gradient():
    model = build(RESIDUAL)
    builder = model.finish()
    given = model.given()
    one, three = (execute(model.graph, given | {DLOSS: np.array([scale])}) for scale in (1.0, 3.0))
    for weight in model.weights.values():
        gradient = builder.gradient_of(weight)
        assert np.allclose(3 * one[gradient], three[gradient], rtol=1e-12) and one[gradient].any()
    assert one[LOSS][0] == three[LOSS][0]
