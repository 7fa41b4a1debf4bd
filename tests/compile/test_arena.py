"""place: whatever the graph, no two live values share a byte, and the tape computes what the graph says."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile import Graph, Value, place, record
from posttrainllm.compile.tape import address, decode
from posttrainllm.dims import ALIGN_BYTES, round_up
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import Program, step_graph, training_step
from posttrainllm.model.saving import Saving
from tests.helpers.gradients import execute
from tests.helpers.graphs import DLOSS, LOSS, STEPS, build

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies
few = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
choices = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=9)


def in_place(node):
    """Pairs of Values of a node that may have one address: a result, and what its kernel may write it over."""
    return {
        frozenset((node.arg(argument.name), node.arg(name))) for argument in node.kernel.args for name in argument.over
    }


def spans(graph, wanted):
    """First and last node of each wanted Value, worked out here again."""
    found = {}
    for index, node in enumerate(graph.nodes):
        for value in node.values.values():
            if value in wanted:
                first, _ = found.get(value, (index, index))
                found[value] = (first, index)
    end = len(graph.nodes) - 1
    return {value: (first, end if value.keep else last) for value, (first, last) in found.items()}


def check_lent(plan, found):
    """What lies in a region that lends its bytes is dead before any of these is written, or read, as what it is for."""
    hosts = {}
    for index, node in enumerate(plan.graph.nodes):
        for value in node.values.values():
            if value not in found:
                hosts.setdefault(value, index)
    for guest, (_, last) in found.items():
        for host, index in hosts.items() if guest.region != "arena" else ():
            apart = host.offset_bytes + host.nbytes <= guest.offset_bytes or guest.offset_bytes + guest.nbytes <= host.offset_bytes
            assert host.region != guest.region or apart or index > last, f"node {index}: {guest} still lives where {host} is"


def check_plan(plan):
    """The planner's promises, for one plan."""
    found = spans(plan.graph, {span.value for span in plan.arena})
    check_lent(plan, found)
    sizes = {value: round_up(value.nbytes, ALIGN_BYTES) for value in found}
    most = 0
    for index, node in enumerate(plan.graph.nodes):
        live = [v for v, (first, last) in found.items() if first <= index <= last]
        live.sort(key=lambda v: (v.region, v.offset_bytes))
        may_meet, shared = in_place(node), 0
        for below, above in zip(live, live[1:]):
            over = below.offset_bytes == above.offset_bytes and frozenset((below, above)) in may_meet
            if below.region != above.region:
                continue
            if over:
                old, new = sorted((below, above), key=lambda value: found[value][0])
                assert found[old][1] == index == found[new][0], f"node {index}: {new} is written over {old}, which is needed"
                shared += sizes[old] if old.region == "arena" else 0
            assert over or below.offset_bytes + below.nbytes <= above.offset_bytes, (
                f"node {index}: {below} and {above} share bytes"
            )
        most = max(most, sum(sizes[value] for value in live if value.region == "arena") - shared)
        operands = {id(value): value for value in node.values.values()}.values()
        for one in operands:
            for other in operands:
                if one is not other and one.region == other.region:
                    apart = (
                        one.offset_bytes + one.nbytes <= other.offset_bytes
                        or other.offset_bytes + other.nbytes <= one.offset_bytes
                    )
                    over = one.offset_bytes == other.offset_bytes and frozenset((one, other)) in may_meet
                    assert apart or over, f"node {index} {node.kernel.name}: operands {one} and {other} overlap"
    assert all(value.offset_bytes >= 0 and value.offset_bytes % ALIGN_BYTES == 0 for value in found), "not aligned"
    arena_bytes = plan.region_bytes["arena"]
    assert most <= arena_bytes <= sum(sizes.values()), "arena above the sum or below what is alive at once"
    assert arena_bytes == max((value.offset_bytes + sizes[value] for value in found if value.region == "arena"), default=0), (
        "arena longer than its use"
    )
    for value in plan.graph.values():
        assert value.offset_bytes + value.nbytes <= plan.region_bytes[value.region]


def on_machine(machine, plan, given, wanted):
    """Replay a plan on an arena full of NaN; returns wanted Values as float64 arrays."""
    machine.allocate(plan.region_bytes)
    for region in ("arena", "metrics"):
        start = address(Value("", (), "f32", region, 0))
        machine.upload(start, np.full(plan.region_bytes[region] // 4, np.nan, "<f4").tobytes())
    machine.upload(address(Value("", (), "f32", "grads", 0)), bytes(plan.region_bytes["grads"]))
    for value, array in given.items():
        machine.upload(address(value), array.tobytes())
    machine.replay(machine.load(record(plan)))
    read = getattr(
        machine, "download_f64", lambda at, n: np.frombuffer(machine.download(at, n), "<f4").astype(np.float64)
    )
    return [read(address(value), value.nbytes).reshape(value.shape) for value in wanted]


@few
@hypothesis.given(choices, st.integers(0, 5))
def test_promises_hold_for_any_graph(steps, kept):
    model = build(steps)
    model.pool[-1 - kept % len(model.pool)].keep = True
    model.finish()
    check_plan(place(model.graph))


@few
@hypothesis.given(choices)
def test_the_placed_tape_computes_the_graph(steps):
    """The judge on the tape, where values share memory, against the graph run with an array for each value."""
    model = build(steps)
    builder = model.finish()
    given = model.given()
    arrays = execute(model.graph, given)
    gradients = [g for g in map(builder.gradient_of, model.weights.values()) if g is not None]
    got = on_machine(ReferenceMachine(), place(model.graph), given, [LOSS, *gradients])
    for value, array in zip([LOSS, *gradients], got):
        assert np.allclose(array, arrays[value], rtol=1e-12, atol=1e-13), value


def test_the_engine_takes_any_such_tape(machine):
    """It refuses overlapping operands and computes the same loss."""

    @hypothesis.settings(few, max_examples=25)
    @hypothesis.given(choices)
    def check(steps):
        model = build(steps)
        model.finish()
        given = model.given()
        expected = execute(model.graph, given)[LOSS]
        (loss,) = on_machine(machine, place(model.graph), given, [LOSS])
        assert np.abs(loss - expected).max() < 1e-3 * max(1, expected[0])

    check()


def test_kept_values_survive_to_the_end():
    model = build([("layernorm", 0, 0), ("linear", 0, 0), ("gelu", 0, 0)])
    early = model.pool[1]
    early.keep = True
    model.finish()
    given = model.given()
    (got,) = on_machine(ReferenceMachine(), place(model.graph), given, [early])
    assert np.allclose(got, execute(model.graph, given)[early], rtol=1e-12)


def test_a_chain_needs_one_buffer_however_long():
    """gelu of gelu of …: each takes the place of the one before."""
    graph, x = Graph(), Value("x", (100,), "f32", "inputs", 0)
    for _ in range(12):
        x = graph.call("gelu", {"N": 100}, x=x).arg("y")
    assert place(graph).region_bytes["arena"] == 512


def test_a_chain_of_what_cannot_overwrite_needs_two():
    """blend, which nobody let do it: only one input and one output are ever alive."""
    graph, x, factor = Graph(), Value("x", (100,), "f32", "inputs", 0), Value("factor", (100,), "f32", "inputs", 512)
    for _ in range(12):
        x = graph.call("blend", {"N": 100}, factor=factor, given=x).arg("y")
    assert place(graph).region_bytes["arena"] == 2 * 512


def test_nothing_is_written_over_what_is_needed():
    """Read again later, kept, or given twice where only one of both arguments may be overwritten: then a place of its own."""
    graph, x = Graph(), Value("x", (100,), "f32", "inputs", 0)
    first = graph.call("gelu", {"N": 100}, out="first", x=x).arg("y")
    second = graph.call("gelu", {"N": 100}, out="second", x=first).arg("y")
    third = graph.call("add", {"N": 100}, out="third", a=first, b=second).arg("y")
    assert third.offset_bytes is None
    check_plan(place(graph))
    assert first.offset_bytes != second.offset_bytes and third.offset_bytes == first.offset_bytes
    first.keep = True
    place(graph)
    assert third.offset_bytes == second.offset_bytes != first.offset_bytes


def lending(preset, **how):
    return training_step(GPTConfig.preset(preset), saving=Saving(**how))


@pytest.mark.parametrize("preset, how, share", [("tiny", {}, 0.6), ("tiny", {"recompute": 2}, 0.3), ("medium", {}, 0.6), ("massive", {}, 0.9)])
def test_gradients_lend_their_memory_until_they_are(preset, how, share):
    """Most of it, for activations that are gone by then."""
    step = lending(preset, **how)
    check_plan(step.plan)
    apart = step_graph(GPTConfig.preset(preset), None, Saving(**how), lend=False)
    plain = place(apart.graph)
    assert plain.region_bytes["grads"] == step.plan.region_bytes["grads"]
    saved = plain.region_bytes["arena"] - step.plan.region_bytes["arena"]
    assert saved > share * plain.region_bytes["grads"] and not any(span.value.region != "arena" for span in plain.arena)
    assert lending(preset, micro_batches=2).plan.region_bytes["grads"] == plain.region_bytes["grads"]
    assert all(span.value.region != "grads" for span in lending(preset, micro_batches=2).plan.arena), "gradients of parts add up"


def test_a_guest_that_stays_too_long_is_noticed():
    step = lending("tiny")
    guest = max((span for span in step.plan.arena if span.value.region == "grads"), key=lambda span: span.last).value
    guest.offset_bytes = step.plan.region_bytes["grads"] - guest.nbytes
    with pytest.raises(AssertionError, match="still lives|share bytes|overlap"):
        check_plan(step.plan)


def test_a_gpu_gets_the_step_with_activations_apart():
    step = lending("tiny")
    apart = step.tape.apart()
    assert apart.apart is None and apart is step.tape.apart() and apart != step.tape
    assert [record.kernel.name for record in decode(apart)].count("fill") == 1 < [record.kernel.name for record in decode(step.tape)].count("fill")
    places = [(argument.role, region) for record in decode(apart) for argument, (region, _) in zip(record.kernel.args, record.operands)]
    assert ("out", "grads") in places and places.count(("out", "grads")) == 1, "the fill alone writes gradients whole"


def test_a_wrong_plan_is_noticed():
    """check_plan itself can fail: one byte too near, one misaligned, one arena too large."""
    for spoil, message in (("overlap", "share bytes|overlap"), ("misalign", "not aligned"), ("waste", "above the sum")):
        model = build([("residual", 0, 0), ("attention", 0, 0)])
        model.finish()
        plan = place(model.graph)
        value = model.pool[0]
        if spoil == "overlap":
            value.offset_bytes = model.graph.nodes[1].arg("y").offset_bytes
        elif spoil == "misalign":
            value.offset_bytes = plan.region_bytes["arena"] + 4
        else:
            plan.region_bytes["arena"] *= 64
        with pytest.raises(AssertionError, match=message):
            check_plan(plan)


@pytest.mark.parametrize("preset", ["tiny", "medium", "huge"])
def test_promises_hold_for_presets(preset):
    program = Program(GPTConfig.preset(preset))
    for each in program.passes():
        check_plan(each.plan)


def test_dloss_and_loss_are_not_in_the_arena():
    """They are slots and metrics: what changes per step is never a constant of the tape."""
    assert DLOSS.region == "slots" and LOSS.region == "metrics"
