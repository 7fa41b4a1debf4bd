"""The tape of a DPO step: its gradients against differences of the loss, with all weights and with an adapter's alone; its room."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile import Graph
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import STRENGTH, Layout
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.preference import BETA, metric_bytes, preference_step, reference_slot, unpack_margins
from posttrainllm.model.program import DLOSS, LOSS, SLOT_BYTES, Program
from posttrainllm.model.steps import unpack_metrics
from posttrainllm.waiting import now
from tests.helpers.gradients import check_gradient, execute
from tests.helpers.models import recipe, text

CONFIG = GPTConfig(layers=2, channels=12, heads=3, context=7, vocabulary=19, batch=4)
PAIRS, BETA_GIVEN = 2, 0.4
LORA = LoRAConfig(rank=2, alpha=3, targets=("attn.q", "attn.v", "mlp.fc"))


def answers(config=CONFIG, pairs=PAIRS):
    """Tokens and targets [2S,T]; the first two positions are prompts, the last of some rows padding."""
    tokens = text(2 * pairs * (config.context + 1), config.vocabulary, 5).reshape(2 * pairs, -1)
    targets = tokens[:, 1:].copy()
    targets[:, :1] = targets[1, -2:] = -100
    return tokens[:, :-1].copy(), targets


class Step:
    """The step's forward in float64 as a function of one weight, and the gradients its whole graph gives."""

    def __init__(self, lora):
        self.step, self.layout = preference_step(CONFIG, PAIRS, lora, lend=False), Layout.of(CONFIG, lora)
        rng = np.random.default_rng(0)
        values = {}
        for node in self.step.plan.graph.nodes:
            for value in node.values.values():
                values[value.name, value.region] = value
        self.weights = {p.name: values[p.name, "params"] for p in self.layout.parameters}
        self.given = {value: 0.4 * rng.standard_normal(value.shape) for value in self.weights.values()}
        tokens, targets = answers()
        reference = values["reference", "slots"]
        self.given |= {self.step.tokens: tokens, self.step.targets: targets, BETA: np.array([BETA_GIVEN]), DLOSS: np.ones(1)}
        self.given |= {reference: -18 - rng.standard_normal(2 * PAIRS), STRENGTH: np.array([1.5])}
        nodes = self.step.plan.graph.nodes
        at = [node.kernel.name for node in nodes].index("dpo")
        self.forward, self.backward = Graph(), Graph()
        self.forward.nodes = nodes[1 : at + 1]
        self.backward.nodes = nodes[1 : [node.kernel.name for node in nodes].index("grad_norm")]
        self.arrays = execute(self.backward, self.given)

    def loss(self, name, x):
        return float(execute(self.forward, self.given | {self.weights[name]: x})[LOSS][0])

    def gradient(self, name):
        return self.arrays[self.step.outputs[name]]


@pytest.fixture(scope="module", params=[None, LORA], ids=["whole", "adapter"])
def step(request):
    return Step(request.param)


def test_every_gradient_of_the_step(step):
    for name in step.layout.trainable_names:
        check_gradient(name, lambda x, name=name: step.loss(name, x), step.given[step.weights[name]], step.gradient(name), trials=1)


def test_a_gradient_of_the_other_half_is_noticed(step):
    name = sorted(step.layout.trainable_names)[0]
    with pytest.raises(AssertionError, match="differences say"):
        check_gradient(name, lambda x: step.loss(name, x), step.given[step.weights[name]], -step.gradient(name))


def test_only_what_is_trained_has_gradients():
    names = {name for name in preference_step(CONFIG, PAIRS, LORA).outputs if name.startswith("blocks.")}
    assert names == Layout.of(CONFIG, LORA).trainable_names


def replay(model, pairs, beta=0.5):
    """One step at rate 0: (loss, norm, margins)."""
    step = preference_step(model.config, pairs, model.lora)
    model.make_room(step)
    model.machine.upload(address(BETA), np.array([beta], "<f4").tobytes())
    model.machine.upload(address(reference_slot(pairs)), np.linspace(-9, -7, 2 * pairs).astype("<f4").tobytes())
    tokens, targets = answers(model.config, pairs)
    batch = tokens.astype("<i4").tobytes(), targets.astype("<i4").tobytes()
    metrics = now(model.replay_step_async(step, *batch, recipe(1, 0.0), metric_bytes(pairs)))
    return *unpack_metrics(metrics), unpack_margins(metrics, pairs)


@pytest.mark.parametrize("pairs", [1, 2, 5, 70])
def test_any_number_of_pairs_finds_room_and_the_model_stays(any_machine, pairs):
    """More pairs than the program's batch, or the slots were made for, let the regions grow; weights and slots stay."""
    model = GPT(CONFIG, any_machine, Program(CONFIG))
    model.initialise(3)
    before, loss = model.weights_sha256(), model.evaluate(bytes(i % 19 for i in range(60)))
    got, norm, margins = replay(model, pairs)
    assert norm > 0 and len(margins) == pairs
    assert got == pytest.approx(np.logaddexp(0, -np.array(margins)).mean(), rel=1e-5)
    assert model.weights_sha256() == before and model.evaluate(bytes(i % 19 for i in range(60))) == loss


def test_an_adapters_preferences_need_no_room_beyond_its_program():
    """So that a tab, whose memory is fixed when a model is opened, can go on to prefer. (Of tiny the reserve holds a second arena.)"""
    for name in ("small", "medium"):
        config = GPTConfig.preset(name)
        have, need = Program(config, True, LORA).region_bytes(), preference_step(config, config.batch // 2, LORA).plan.region_bytes
        assert all(nbytes <= have[region] for region, nbytes in need.items())


def test_the_slots_do_not_overlap():
    assert BETA.offset_bytes >= STRENGTH.offset_bytes + 4 and reference_slot(1).offset_bytes >= BETA.offset_bytes + 4
    assert reference_slot(64).offset_bytes + reference_slot(64).nbytes <= SLOT_BYTES


def test_the_judge_and_an_engine_agree(machine):
    made = []
    for each in (ReferenceMachine(), machine):
        model = GPT(CONFIG, each, Program(CONFIG))
        model.initialise(3)
        loss, norm, margins = replay(model, 3)
        made.append([loss, norm, *margins])
    assert made[1] == pytest.approx(made[0], rel=2e-5, abs=1e-5)
