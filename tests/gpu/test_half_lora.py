"""An adapter on a base in half precision: its own weights, gradients and sums stay single, and the base's halves are left alone."""

# ruff: noqa: F811 - a fixture has the name of the arguments that ask for it
import numpy as np
import pytest
from posttrainllm.backends.gpu.dispatch import HALVES
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import LOSS

from tests.gpu.half import fresh_state, half, read_buffer, set_state  # noqa: F401
from tests.gpu.test_half_training import HALF_EPS, compare
from tests.gpu.test_lora import KINDS, NAMES, USUAL, Tuned, check_merged, noise, tuned
from tests.gpu.test_training import ODD

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")


@pytest.mark.parametrize("config, lora", KINDS, ids=NAMES)
def test_logits_and_every_gradient(half, config, lora):
    runs = Tuned(half, config, lora), Tuned(ReferenceMachine(), config, lora), Tuned(ReferenceMachine(), config, lora, HALF_EPS)
    compare("logits", *(run.logits() for run in runs))
    for run in runs:
        run.train(1)
    scale = half.gradient_scale()
    assert scale == 65536.0
    for parameter in runs[0].layout.trainable:
        got, expected, near = (run.read(run.step, parameter.name) for run in runs)
        compare(parameter.name, got / scale, expected, near)


def test_two_hundred_steps_beside_f32(half, gpu):
    config = GPTConfig(layers=2, channels=32, heads=2, context=32, vocabulary=48, batch=4)
    runs, losses = (Tuned(half, config, USUAL), Tuned(gpu, config, USUAL)), []
    for number in range(1, 201):
        for run in runs:
            run.train(number)
        losses.append([run.number(LOSS) for run in runs])
    losses = np.array(losses)
    assert losses[-10:].mean() < 0.95 * losses[:10].mean(), "the curve must fall, or it shows nothing"
    assert np.abs(losses[:, 0] / losses[:, 1] - 1).max() < 0.01
    assert half.gradient_scale() == 65536.0


def test_an_overflow_leaves_the_adapter_alone(half):
    run = Tuned(half, ODD, USUAL)
    run.train(1)
    tail = [half.download(*_place(run, name)) for name in run.layout.trainable_names]
    set_state(half, 2.0**40)
    run.train(2)
    assert tail == [half.download(*_place(run, name)) for name in run.layout.trainable_names]
    assert half.loss_scale() == (2.0**39, 0.0)


def _place(run, name):
    value = run.layout.values()[name]
    return address(value), value.nbytes


def test_an_adapter_is_worked_into_the_weights_in_single_precision(half):
    check_merged(half, 4 * HALF_EPS)


def test_another_adapter_writes_no_halves_anew(half, monkeypatch):
    model = tuned(half)
    other, ran = noise(model, 2), []
    before = np.array(model.logits([1, 2, 3]))
    held = read_buffer(half, HALVES, "<u2").copy()
    decide = half._upkeep.before
    monkeypatch.setattr(half._upkeep, "before", lambda lowered: ran.append(decide(lowered)) or ran[-1])
    model.program.step = None
    model.swap(other)
    assert not (np.array(model.logits([1, 2, 3])) == before).any()
    assert ran and not any(refresh for refresh, _ in ran) and (read_buffer(half, HALVES, "<u2") == held).all()
