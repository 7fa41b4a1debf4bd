"""Training in half precision beside f32 and the reference; the loss scale, the guard, and the weights' halves."""

# ruff: noqa: F811 - a fixture has the name of the arguments that ask for it
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from posttrainllm.backends.gpu.dispatch import HALVES, STATE, Dispatch
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.dims import product
from posttrainllm.errors import DeviceError, DeviceUnavailableError, SelfTestError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import DLOSS, LOSS, NORM
from posttrainllm.model.webgpu_check import check_now

from tests.gpu.half import fresh_state, half, read_buffer, set_state  # noqa: F401
from tests.gpu.test_training import EVEN, OTHER, ODD, Run

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
HALF_EPS = 2.0**-11


def compare(name, got, expected, near):
    """As in test_training, with f16's step: three times what one rounding of every weight does, or one of the result.

    A path of two blocks there and back has some thirty roundings, whose squares add up; a third of the bound was measured.
    """
    size = np.sqrt((expected**2).mean())
    sway = np.sqrt(((near - expected) ** 2).mean())
    error = np.sqrt(((got - expected) ** 2).mean())
    allowed = 3 * max(sway, HALF_EPS * size)
    assert np.isfinite(got).all() and size > 0, name
    assert allowed < 0.1 * size, f"{name}: the bound {allowed:.2g} shows nothing at {size:.2g}"
    assert error <= allowed, f"{name}: off by {error:.3g}, allowed {allowed:.3g}, size {size:.3g}"
    return error / allowed


@pytest.mark.parametrize("config", [ODD, EVEN, OTHER], ids=["odd", "even", "a head of its own, exact gelu"])
def test_logits_and_every_gradient(half, config):
    mine, judge, near = (
        Run(half, config),
        Run(ReferenceMachine(), config),
        Run(ReferenceMachine(), config, nudge=HALF_EPS),
    )
    for run in (mine, judge, near):
        run.feed(1, run.evaluation)
        run.machine.replay(run.machine.load(run.evaluation.tape))
    compare("logits", *(run.read(run.evaluation, "logits") for run in (mine, judge, near)))
    for run in (mine, judge, near):
        run.train(1)
    scale = mine.machine.gradient_scale()
    assert scale == 65536.0
    for parameter in Layout.of(config).parameters:
        got, expected, moved = (run.read(run.step, parameter.name) for run in (mine, judge, near))
        compare(parameter.name, got / scale, expected, moved)


def test_two_hundred_steps_beside_f32(half, gpu):
    config = GPTConfig(layers=2, channels=32, heads=2, context=32, vocabulary=48, batch=4)
    halves, singles = Run(half, config), Run(gpu, config)
    losses = []
    for number in range(1, 201):
        for run in (halves, singles):
            run.train(number)
        losses.append((halves.number(LOSS), singles.number(LOSS)))
    losses = np.array(losses)
    assert losses[-10:].mean() < losses[0].mean() - 1, "the curve must fall, or it shows nothing"
    assert np.abs(losses[:, 0] / losses[:, 1] - 1).max() < 0.01
    assert halves.machine.gradient_scale() == 65536.0
    assert (halves_of(halves) == np.concatenate(weights_of(halves, np.float16))).all()


def weights_of(run, dtype):
    """The weights that have a half-precision copy, flat."""
    layout, found = Layout.of(run.config), []
    for parameter in layout.parameters:
        if parameter.decayed and parameter.name != "wpe.weight":
            value = layout.values()[parameter.name]
            raw = run.machine.download(address(value), product(value.shape) * 4)
            found.append(np.frombuffer(raw, "<f4").astype(dtype))
    return found


def halves_of(run):
    """The copy, in the same order."""
    layout, held = Layout.of(run.config), read_buffer(run.machine, HALVES, "<f2")
    halves, found = run.loaded.lowered.banks.halves, []
    for parameter in layout.parameters:
        if parameter.decayed and parameter.name != "wpe.weight":
            start = layout.offsets_bytes[parameter.name]
            operand = halves.find(start, product(parameter.shape) * 4)
            assert operand.offset_bytes % 256 == 0
            found.append(held[operand.offset_bytes // 2 : (operand.offset_bytes + operand.nbytes) // 2])
    return np.concatenate(found)


def test_an_overflow_halves_the_scale_and_leaves_the_weights_alone(half):
    run = Run(half, ODD)
    run.train(1)
    before, copy = weights_of(run, np.float32), halves_of(run)
    set_state(run.machine, 2.0**24, good=500.0)
    run.train(2)
    assert not np.isfinite(run.number(NORM))
    state = read_buffer(run.machine, STATE, "<f4")
    assert state[:5].tolist() == [2.0**23, 0.0, 0.0, 2.0**-23, 2.0**24]
    assert all((one == other).all() for one, other in zip(before, weights_of(run, np.float32)))
    assert (copy == halves_of(run)).all()
    for number in range(3, 20):  # it goes down until a step is good again
        run.train(number)
    assert np.isfinite(run.number(NORM)) and run.machine.gradient_scale() < 2.0**23
    assert any((one != other).any() for one, other in zip(before, weights_of(run, np.float32)))


@pytest.mark.parametrize("scale, after", [(1024.0, 2048.0), (2.0**24, 2.0**24)])
def test_a_thousand_good_steps_double_the_scale(half, scale, after):
    run = Run(half, ODD)
    run.machine.upload(address(DLOSS), struct.pack("<f", 2.0**-12))  # so that the largest scale does not overflow
    set_state(run.machine, scale, good=998.0)
    for number, expected in ((1, [scale, 999.0]), (2, [after, 0.0]), (3, [after, 1.0])):
        run.train(number)
        assert np.isfinite(run.number(NORM))
        assert read_buffer(run.machine, STATE, "<f4")[:2].tolist() == expected


def test_new_weights_reach_the_halves(half):
    """By an upload and by a tape that writes weights; and an evaluation sees them without a step between."""
    run = Run(half, ODD)
    run.train(1)
    layout = Layout.of(ODD)
    value = layout.values()["blocks.1.mlp.fc.weight"]
    fresh = np.random.default_rng(1).normal(0, 0.1, product(value.shape)).astype("<f4")
    run.machine.upload(address(value), fresh)
    run.feed(2, run.evaluation)
    loaded = run.machine.load(run.evaluation.tape)
    run.machine.replay(loaded)
    once = run.read(run.evaluation, "logits")
    assert (halves_of(run) == np.concatenate(weights_of(run, np.float16))).all()
    run.machine.replay(loaded)
    assert (run.read(run.evaluation, "logits") == once).all()
    run.machine.replay(run.machine.load(run.initial.tape))
    run.machine.replay(loaded)
    assert (halves_of(run) == np.concatenate(weights_of(run, np.float16))).all()
    assert (run.read(run.evaluation, "logits") != once).any()


def test_the_guard_holds_weights_until_the_host_lets_go(gpu):
    run = Run(gpu, ODD)
    run.train(1)
    before = weights_of(run, np.float32)

    def same():
        return all((one == other).all() for one, other in zip(before, weights_of(run, np.float32)))

    run.machine.upload(address(DLOSS), struct.pack("<f", np.inf))
    run.train(2)
    assert not np.isfinite(run.number(NORM)) and same()
    run.machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    run.train(3)
    assert np.isfinite(run.number(NORM)) and same()
    run.machine.reset_guard()
    run.train(4)
    assert not same()
    assert run.machine.gradient_scale() == 1.0


def test_weights_given_anew_end_the_guard(gpu):
    run = Run(gpu, ODD)
    run.machine.upload(address(DLOSS), struct.pack("<f", np.inf))
    run.train(1)
    run.machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    value = Layout.of(ODD).values()["wte.weight"]
    before = run.machine.download(address(value), 256)
    run.machine.upload(address(value), before)
    run.train(2)
    assert run.machine.download(address(value), 256) != before


def test_activations_in_half_precision_cannot_be_read_as_single(half):
    run = Run(half, ODD)
    run.feed(1, run.evaluation)
    loaded = half.load(run.evaluation.tape)
    half.replay(loaded)
    last = next(span for span in reversed(loaded.lowered.banks.spans) if span.nbytes != span.tape_bytes)
    for span in loaded.lowered.banks.spans:
        if span is not last:
            span.start += 1 << 30
    with pytest.raises(DeviceError, match="half precision was asked for"):
        half.download(last.start | 4 << 56, 4)


def test_the_start_up_self_test(half, monkeypatch):
    """It passes, and what it allows in half precision still finds a residual that is lost."""
    check_now(half)
    source = Dispatch.source
    right, wrong = "ElementSum(other[at])", "0.5 * ElementSum(other[at])"
    monkeypatch.setattr(Dispatch, "source", lambda self: source(self).replace(right, wrong))
    monkeypatch.setattr(half, "_pipelines", {})
    with pytest.raises(SelfTestError):
        check_now(half)


def test_an_adapter_without_half_precision_is_refused():
    from posttrainllm.backends.webgpu import WebGPUMachine

    with pytest.raises(DeviceUnavailableError, match="shader-f16"):
        WebGPUMachine(SimpleNamespace(features=["timestamp-query"]), DEFAULT, "f16")
    with pytest.raises(DeviceError, match="f32, f16"):
        Options(precision="bf16")
