"""dpo: ln 2 where nothing is preferred, a finite loss at any margin, and a push of one size on every row of a pair."""

import numpy as np
import pytest

from posttrainllm.compile import Graph, Value, differentiate
from posttrainllm.ops import kernel
from tests.helpers.cases import over_cases
from tests.helpers.gradients import check_gradient, execute
from tests.helpers.kernels import EPS, call, check_parity
from tests.helpers.mutants import MUTANTS, mutated

S, T, V = 3, 5, 7
SIZES = {"S": S, "T": T}


def given(seed=0, beta=0.1):
    """Losses of 2S rows and references near minus their sums."""
    losses = np.abs(np.random.default_rng(seed).standard_normal((2 * S, T))).astype(np.float32)
    reference = -losses.sum(1) + np.linspace(-1, 1, 2 * S)
    return {"losses": losses, "reference": reference.astype(np.float32), "beta": np.array([beta], np.float32)}


def backward(machine, margins, beta=0.1, dloss=1.0):
    sizes = {"S": len(margins), "T": T}
    made = call(machine, "dpo_backward", sizes, margins=margins, beta=np.array([beta]), dloss=np.array([dloss]))
    return made["dlosses"]


@over_cases("dpo", "dpo_backward")
def test_parity(machine, case):
    check_parity(machine, case)


def test_the_reference_itself_costs_ln_2(any_machine):
    values = given() | {"reference": -given()["losses"].sum(1)}
    made = call(any_machine, "dpo", SIZES, **values)
    assert np.abs(made["margins"]).max() < 1e-6
    assert made["loss"][0] == pytest.approx(np.log(2), rel=1e-6) and made["loss"][1] == S


def test_the_margin_is_beta_times_what_the_chosen_gained_over_the_rejected(any_machine):
    values = given(1)
    plain = call(any_machine, "dpo", SIZES, **values)["margins"]
    likelier = values["losses"].copy()
    likelier[1, 2] -= 0.5
    made = call(any_machine, "dpo", SIZES, **values | {"losses": likelier})["margins"]
    assert made - plain == pytest.approx([0, 0.05, 0], abs=1e-6)
    likelier = values["losses"].copy()
    likelier[S + 1, 0] -= 0.5
    made = call(any_machine, "dpo", SIZES, **values | {"losses": likelier})["margins"]
    assert made - plain == pytest.approx([0, -0.05, 0], abs=1e-6)
    doubled = call(any_machine, "dpo", SIZES, **values | {"beta": np.array([0.2])})["margins"]
    assert doubled == pytest.approx(2 * plain, rel=1e-6)


@pytest.mark.parametrize("margin", [0.0, 1e-4, 3.0, -3.0, 20.0, -20.0, 88.5, -88.5, 1e4, -1e4, 1e30, -1e30])
def test_loss_and_gradient_are_finite_and_right_at_any_margin(any_machine, margin):
    """By formulas that hold on each side: log(1 + e^-m) is -m + log(1 + e^m)."""
    values = {"losses": np.array([[0.0], [0.0]]), "reference": np.array([-margin, 0.0]), "beta": np.ones(1)}
    made = call(any_machine, "dpo", {"S": 1, "T": 1}, **values)
    m = float(made["margins"][0])
    assert m == pytest.approx(margin, rel=EPS)
    expected = np.log1p(np.exp(-m)) if m > 0 else -m + np.log1p(np.exp(m))
    assert made["loss"][0] == pytest.approx(expected, rel=4 * EPS, abs=1e-37)
    falling = backward(any_machine, np.array([margin]), beta=1.0)[0, 0]
    expected = np.exp(-m) / (1 + np.exp(-m)) if m > 0 else 1 / (1 + np.exp(m))
    assert falling == pytest.approx(expected, rel=4 * EPS, abs=1e-37)


def test_chosen_rows_fall_and_rejected_rise_by_one_number_a_pair(any_machine):
    dlosses = backward(any_machine, np.array([0.0, 5.0, -5.0]))
    assert (dlosses[:S] > 0).all() and np.array_equal(dlosses[S:], -dlosses[:S])
    assert np.array_equal(dlosses, np.repeat(dlosses[:, :1], T, 1))
    assert dlosses[0, 0] == pytest.approx(0.1 * 0.5 / S) and dlosses[1, 0] < dlosses[0, 0] < dlosses[2, 0] < 0.1 / S
    assert np.array_equal(backward(any_machine, np.array([0.0, 5.0, -5.0]), dloss=4.0), 4 * dlosses)


def test_sequences_without_a_counted_row(any_machine):
    """Their losses are 0: they stand where their reference says."""
    values = given(2)
    values["losses"][[0, S]] = 0
    values["reference"][[0, S]] = 0
    made = call(any_machine, "dpo", SIZES, **values)
    assert made["margins"][0] == 0 and np.isfinite(made["loss"][0])
    nothing = {"losses": np.zeros((2 * S, T)), "reference": np.zeros(2 * S), "beta": np.ones(1)}
    assert call(any_machine, "dpo", SIZES, **nothing)["loss"][0] == pytest.approx(np.log(2))


def test_a_pair_does_not_depend_on_the_others(machine):
    values = given(3)
    whole = call(machine, "dpo", SIZES, **values)["margins"]
    for i in range(S):
        rows = [i, S + i]
        alone = {"losses": values["losses"][rows], "reference": values["reference"][rows], "beta": values["beta"]}
        assert call(machine, "dpo", {"S": 1, "T": T}, **alone)["margins"][0] == whole[i]


class Chain:
    """logits to cross_entropy to dpo, as a tuning step has them; every third target is ignored."""

    def __init__(self):
        rows = 2 * S * T
        sizes = {"R": rows, "V": V} | SIZES
        self.graph, self.logits = Graph(), Value("logits", (rows, V), "f32", "params", 0)
        self.targets = Value("targets", (2 * S, T), "i32", "inputs", 0)
        slots = {"reference": Value("reference", (2 * S,), "f32", "slots", 0), "beta": Value("beta", (1,), "f32", "slots", 256)}
        self.loss, self.dloss = Value("loss", (2,), "f32", "metrics", 0), Value("dloss", (1,), "f32", "slots", 512)
        node = self.graph.call("cross_entropy", sizes, out="losses", logits=self.logits, targets=self.targets)
        self.graph.call("dpo", sizes, out="margins", losses=node.arg("losses"), loss=self.loss, **slots)
        self.forward = Graph()
        self.forward.nodes = list(self.graph.nodes)
        self.builder = differentiate(self.graph, self.loss, self.dloss, {"logits"})
        rng = np.random.default_rng(8)
        targets = np.where(np.arange(rows) % 3 == 2, -100, rng.integers(0, V, rows)).reshape(2 * S, T)
        self.given = {self.logits: rng.standard_normal((rows, V)), self.targets: targets, slots["reference"]: -2 * np.ones(2 * S)}
        self.given |= {slots["beta"]: np.array([0.7]), self.dloss: np.array([1.3])}

    def check(self, replaced=None):
        arrays = execute(self.graph, self.given, replaced)
        gradient = arrays[self.builder.gradient_of(self.logits)]

        def f(logits):
            return 1.3 * float(execute(self.forward, self.given | {self.logits: logits})[self.loss][0])

        check_gradient("logits", f, self.given[self.logits], gradient)


def test_the_chain_to_the_logits_is_the_gradient():
    chain = Chain()
    assert [node.kernel.name for node in chain.graph.nodes[2:]] == ["dpo_backward", "cross_entropy_backward_rows"]
    chain.check()


ALIKE = {("dpo_backward", "shifted by one"), ("dpo_backward", "last column dropped")}  # a row is one number; columns may be ignored
WRONG = [(name, how) for name in ("dpo_backward", "cross_entropy_backward_rows") for how in MUTANTS if (name, how) not in ALIKE]


@pytest.mark.parametrize(("name", "how"), WRONG)
def test_the_chain_notices_a_wrong_kernel(name, how):
    made_of = kernel(name)
    written = next(a.name for a in made_of.args if a.role == "out")
    with pytest.raises(AssertionError, match="differences say"):
        Chain().check({name: mutated(made_of, written, how)})
