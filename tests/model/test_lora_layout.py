"""An adapter's settings, its place in the flat buffers, the tapes it gets, and its gradients in the judge."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile import Graph
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout, trace
from posttrainllm.model.lora import TARGETS, LoRAConfig, shapes
from posttrainllm.model.program import LOSS, Program, step_graph, training_step
from tests.helpers.gradients import check_gradient, execute
from tests.helpers.models import Model, batch, recipe
from tests.model.test_lora import CONFIG, DEFAULT, EVERY, random_adapter


# The layout and the tapes


def test_less_than_a_hundredth_is_trained_at_the_default():
    layout = Layout.of(GPTConfig.preset("medium"), DEFAULT)
    count = [sum(np.prod(p.shape) for p in part) for part in (layout.trainable, layout.parameters)]
    assert count == [8192, 850_688] and count[0] < 0.01 * count[1]


@pytest.mark.parametrize("targets", [("attn.q", "attn.v"), EVERY])
def test_the_base_lies_as_it_does_without_an_adapter(targets):
    plain, layout = Layout.of(CONFIG), Layout.of(CONFIG, LoRAConfig.of(targets=targets))
    assert {p.name: layout.offsets_bytes[p.name] for p in plain.parameters} == plain.offsets_bytes
    assert layout.frozen_bytes == plain.total_bytes and layout.frozen == plain.parameters
    assert all(layout.offsets_bytes[p.name] >= plain.total_bytes and p.decayed for p in layout.trainable)
    assert [p.name for p in layout.trainable] == list(shapes(CONFIG, LoRAConfig.of(targets=targets)))


@pytest.mark.parametrize("targets", [("attn.q", "attn.v"), ("mlp.proj",), EVERY])
def test_nothing_frozen_has_a_gradient_or_moments(targets):
    settings = LoRAConfig.of(targets=targets)
    program, layout = Program(CONFIG, lora=settings), Layout.of(CONFIG, settings)
    tail = layout.total_bytes - layout.frozen_bytes
    assert {program.region_bytes()[region] for region in ("grads", "m", "v")} == {tail}
    nodes = step_graph(CONFIG, settings, lend=False).graph.nodes  # the gradients alone, without what is lent their memory
    in_grads = {v.offset_bytes + layout.frozen_bytes for node in nodes for v in node.written() if v.region == "grads"}
    assert in_grads == {layout.offsets_bytes[p.name] for p in layout.trainable}
    changed = {value.offset_bytes for node in nodes for value in node.written() if value.region == "params"}
    assert min(changed) == layout.frozen_bytes
    names = {node.kernel.name for node in nodes}
    assert not names & {"embedding_backward", "unembed_backward_weight", "linear_backward_weight", "layernorm_backward"}


def test_the_backward_stops_at_the_lowest_adapter():
    """Of the first block's qkv only the adapters' own gradients: nothing flows below."""
    nodes = training_step(CONFIG, DEFAULT).plan.graph.nodes
    count = {name: sum(node.kernel.name == name for node in nodes) for name in ("layernorm_backward_input", "lora_backward_input")}
    assert count == {"layernorm_backward_input": 2 * CONFIG.layers, "lora_backward_input": 2 * (CONFIG.layers - 1)}
    assert sum(node.kernel.name == "linear_backward_input" for node in nodes) == 4 * CONFIG.layers - 1
    assert sum(node.kernel.name == "add" for node in nodes) == 2 * CONFIG.layers, "residuals alone: adapters add in place"


def test_a_plain_model_has_the_tapes_it_had():
    assert Program(CONFIG).step.tape == training_step(CONFIG).tape == Program(CONFIG, lora=None).step.tape


# Gradients


@pytest.fixture(scope="module", params=[*((target,) for target in TARGETS), EVERY, ("attn.q", "attn.v", "mlp.fc")], ids="+".join)
def judged(request):
    """An adapter on those targets away from its start, its gradients in the judge, and the loss as a function."""
    config = GPTConfig(layers=2, channels=12, heads=3, context=7, vocabulary=19, batch=2)
    settings = LoRAConfig(3, 5, request.param, rslora=True)
    model = Model(ReferenceMachine(), config, adapter=random_adapter(config, settings))
    tokens, targets = batch(config, 3)
    rng = np.random.default_rng(0)
    for value in model.program.layout.values().values():
        model.write(value, model.read(value) + 0.3 * rng.standard_normal(value.shape))
    model.strength(0.7)
    model.step(tokens, targets, recipe(1, 0.0))
    graph, weights, step = Graph(), model.program.layout.values(), model.program.step
    named = trace(graph, config, weights, step.tokens, config.batch, config.context, lora=settings)
    rows = {"R": config.batch * config.context, "V": config.vocabulary}
    graph.call("cross_entropy", rows, logits=named["logits"], targets=step.targets, loss=LOSS)
    start = {weights[name]: value for name, value in model.weights().items()}
    slot = next(value for value in graph.values() if value.name == "strength")
    start |= {step.tokens: tokens, step.targets: targets, slot: np.array([0.7 * settings.scaling])}

    def loss(name, x):
        return float(execute(graph, start | {weights[name]: x})[LOSS][0])

    return model, loss


def test_every_gradient_of_an_adapter(judged):
    model, loss = judged
    weights, gradients = model.weights(), model.gradients()
    assert gradients.keys() == {p.name for p in model.program.layout.trainable}
    for name, gradient in gradients.items():
        check_gradient(name, lambda x, name=name: loss(name, x), weights[name], gradient, trials=1)


def test_the_norm_is_that_of_the_adapters_gradients(judged):
    model, _ = judged
    _, norm = model.step(*batch(model.config, 3), recipe(1, 0.0))
    assert norm == pytest.approx(np.sqrt(sum((g**2).sum() for g in model.gradients().values())), rel=1e-13)


# Settings


WRONG = [
    ({"rank": 0}, "rank is a whole number"),
    ({"rank": 5000}, "rank is a whole number"),
    ({"rank": True}, "rank is a whole number"),
    ({"alpha": 0}, "alpha is a number above 0"),
    ({"alpha": float("nan")}, "alpha is a number above 0"),
    ({"targets": ()}, "targets are some of"),
    ({"targets": ("attn.o",)}, "attn.o came"),
    ({"targets": ("attn.q", "attn.q")}, "each once"),
    ({"targets": ("attn.q", "attn.qkv")}, "covers attn.q"),
    ({"dropout": 0.1}, "settings are"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=str)
def test_settings_are_checked(changes, message):
    with pytest.raises(ConfigError, match=message):
        LoRAConfig.of(**changes)


def test_settings_come_back_from_json():
    settings = LoRAConfig(3, 5.5, ("mlp.proj", "attn.q"), True)
    assert settings.targets == ("attn.q", "mlp.proj") and LoRAConfig.from_dict(settings.to_dict()) == settings
    assert (DEFAULT.rank, DEFAULT.alpha, DEFAULT.targets, DEFAULT.rslora) == (4, 8, ("attn.q", "attn.v"), False)
