"""recompute: a block forgets, is computed again just before its backward, and every gradient has the bits it had."""

import hypothesis
import numpy as np
import pytest

from posttrainllm.compile import Graph, Value, place, recompute, record
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import STRENGTH, Layout
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import initial_weights, regions_of, training_step, with_slots
from posttrainllm.model.saving import Saving
from posttrainllm.model.slots import DLOSS, RECIPE, SEED
from tests.compile.test_arena import check_plan, choices, few
from tests.helpers.gradients import execute
from tests.helpers.graphs import build
from tests.helpers.models import batch, recipe

CONFIG = GPTConfig(layers=4, channels=24, heads=2, context=12, vocabulary=40, batch=3)
ADAPTERS = [None, LoRAConfig(2, 4.0, ("attn.q", "attn.proj", "mlp.fc", "mlp.proj"))]
KINDS = pytest.mark.parametrize("lora", ADAPTERS, ids=["plain", "lora"])


def gradients(machine, saving, lora=None, change=None):
    """Bytes of loss, norm and all gradients after one step, from given weights, on an arena full of NaN."""
    step, layout = training_step(CONFIG, lora, saving), Layout.of(CONFIG, lora)
    if change is not None:
        change(step.plan.graph)
        step.plan = place(step.plan.graph)
        step.tape = record(step.plan)
    passes = initial_weights(CONFIG, False), initial_weights(CONFIG, True, lora)
    machine.allocate(with_slots(regions_of([step, *passes]), 1))
    machine.upload(address(Value("", (), "f32", "arena", 0)), np.full(step.plan.region_bytes["arena"] // 4, np.nan, "<f4").tobytes())
    machine.upload(address(SEED), (7).to_bytes(8, "little"))
    for each in passes:
        machine.replay(machine.load(each.tape))
    rng = np.random.default_rng(3)
    for name, value in layout.values().items():
        if name.endswith(".lora_up"):  # zeros at the start, which would hide half of the gradients
            machine.upload(address(value), rng.standard_normal(value.shape).astype("<f4").tobytes())
    for slot, numbers in ((STRENGTH, [2.0]), (DLOSS, [1.0]), (RECIPE, recipe(1, 0.0))):
        machine.upload(address(slot), np.array(numbers, "<f4").tobytes())
    for value, numbers in zip((step.tokens, step.targets), batch(CONFIG, 0)):
        machine.upload(address(value), np.ascontiguousarray(numbers, "<i4").tobytes())
    machine.replay(machine.load(step.tape))
    return {name: bytes(machine.download(*step.address(name))) for name in step.outputs}


@KINDS
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_every_gradient_has_the_bits_it_had(machine, lora, blocks):
    plain = gradients(machine, Saving(), lora)
    assert gradients(machine, Saving(recompute=blocks), lora) == plain
    assert np.isfinite(np.frombuffer(b"".join(plain.values()), "<f4")).all()
    assert any(any(data) for name, data in plain.items() if name.endswith(("lora_down", "qkv.weight")))


@KINDS
@pytest.mark.parametrize("which", range(9))
def test_a_clone_that_is_missing_is_noticed(machine, lora, which):
    """One of the block's nodes is not run again: what it would have made is NaN or another value."""

    def skip(graph):
        clones = [node for node in graph.nodes if node.written()[0].name.startswith("again(blocks.1.")]
        graph.nodes.remove(clones[which % len(clones)])

    assert gradients(machine, Saving(recompute=2), lora, skip) != gradients(machine, Saving(), lora)


def forgets(saving, lora=None):
    """Names of what lives from the forward into the backward."""
    step = training_step(CONFIG, lora, saving)
    nodes = step.plan.graph.nodes
    forward = next(index for index, node in enumerate(nodes) if node.kernel.name.startswith("cross_entropy_backward"))
    return {span.value.name for span in step.plan.arena if span.first < forward <= span.last}, step


@KINDS
def test_only_the_residual_into_a_block_is_kept(lora):
    kept, step = forgets(Saving(recompute=3), lora)
    small = {"blocks.0.mlp.proj", "blocks.1.mlp.proj", "blocks.2.mlp.proj"} if lora else set()
    inputs = {name for name in kept if name.startswith(("blocks.0.", "blocks.1.", "blocks.2."))}
    assert inputs == {"blocks.0.resid_post", "blocks.1.resid_post", "blocks.2.resid_post"} | small
    assert "blocks.3.attn.qkv" in kept and "embed" in kept
    plain, before = forgets(Saving(), lora)
    assert "blocks.1.attn.y" in plain and step.kept_bytes < 0.5 * before.kept_bytes


def test_the_last_product_of_a_block_is_not_done_again():
    """Nothing in the backward reads what mlp.proj gave, nor the sum after it."""
    nodes = training_step(CONFIG, saving=Saving(recompute=1)).plan.graph.nodes
    again = [node.written()[0].name for node in nodes if node.written()[0].name.startswith("again(")]
    parts = ("ln_1", "attn.qkv", "attn.y", "attn.out", "resid_mid", "ln_2", "mlp.pre", "mlp.post")
    assert again == [f"again(blocks.0.{part})" for part in parts]


@pytest.mark.parametrize("saving", [Saving(recompute=1), Saving(recompute=4), Saving(3, 2)], ids=str)
@KINDS
def test_the_planner_keeps_its_promises(saving, lora):
    check_plan(training_step(CONFIG, lora, saving).plan)


@few
@hypothesis.given(choices, hypothesis.strategies.integers(0, 8), hypothesis.strategies.integers(1, 8))
def test_any_graph_may_be_recomputed(steps, first, length):
    """Random models, any run of their nodes as a block: the judge finds every gradient as it was, and less is kept."""
    plain, model = build(steps), build(steps)
    builder = plain.finish()
    logits_nodes = len(model.graph.nodes)
    for node in model.graph.nodes[first % logits_nodes : first % logits_nodes + length]:
        for value in node.written():
            value.name = f"block.{value.name}"
    other = model.finish()
    recompute(model.graph, model.forward_nodes, ["block."])
    check_plan(place(model.graph))
    one, two = execute(plain.graph, plain.given()), execute(model.graph, model.given())
    for name, weight in plain.weights.items():
        grad, again = builder.gradient_of(weight), other.gradient_of(model.weights[name])
        assert (grad is None) == (again is None)
        assert grad is None or np.array_equal(one[grad], two[again]), name


def test_what_changes_a_kept_value_in_place_is_not_run_twice():
    """A block that adds to what came in: running it again would add once more, so its results are kept."""
    graph, x = Graph(), Value("x", (4, 6), "f32", "inputs", 0)
    weight, bias = Value("w", (6, 6), "f32", "params", 0), Value("b", (6,), "f32", "params", 256)
    down, up = Value("down", (6, 2), "f32", "params", 512), Value("up", (2, 6), "f32", "params", 768)
    strength, sizes = Value("strength", (1,), "f32", "slots", 0), {"R": 4, "I": 6, "O": 6, "K": 2, "J": 6, "N": 24}
    y = graph.call("linear", sizes, out="y", x=x, weight=weight, bias=bias).arg("y")
    hidden = graph.call("lora", sizes, (0,), out="block.l", x=x, down=down, up=up, strength=strength, y=y).arg("hidden")
    z = graph.call("gelu", sizes, out="block.z", x=y).arg("y")
    assert hidden.name.startswith("block.")
    forward = len(graph.nodes)
    graph.call("gelu_backward", sizes, dy=z, x=y)
    assert recompute(graph, forward, ["block."]) == 1  # gelu alone; y stays
    assert [node.kernel.name for node in graph.nodes] == ["linear", "lora", "gelu", "gelu", "gelu_backward"]
    assert graph.nodes[3].arg("x") is y


def test_nothing_changes_where_nothing_is_asked():
    assert training_step(CONFIG, saving=Saving()).tape == training_step(CONFIG).tape
    graph = build([("residual", 0, 0)])
    graph.finish()
    before = list(graph.graph.nodes)
    assert recompute(graph.graph, graph.forward_nodes, []) == 0 and graph.graph.nodes == before
    assert recompute(graph.graph, graph.forward_nodes, ["nowhere."]) == 0


