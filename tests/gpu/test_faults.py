"""What must stop a run: a lost device, a wrong command, a size past the limits. Never a number after it."""

from dataclasses import replace

import pytest
from posttrainllm.backends.gpu.dispatch import Dispatch
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.errors import DeviceError, DeviceLimitError, DeviceLostError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import LOSS, NORM, training_step

from tests.gpu.test_training import ODD, Run
from tests.helpers.cases import base_case
from tests.helpers.kernels import check_parity

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")


def test_lost_device(open_gpu):
    run = Run(open_gpu(DEFAULT), ODD)
    run.train(1)
    run.machine._device.destroy()
    with pytest.raises(DeviceLostError):
        run.train(2)
        run.number(LOSS)
    with pytest.raises(DeviceError):
        run.number(LOSS)


def test_a_wrong_dispatch_stops_the_run(open_gpu):
    run = Run(open_gpu(DEFAULT), ODD)
    run.train(1)
    run.loaded.calls[3] = (*run.loaded.calls[3][:2], 70000, 1, 1)
    with pytest.raises(DeviceError, match="reported"):
        run.train(2)


def test_a_shader_that_does_not_compile_is_named(open_gpu, monkeypatch):
    machine = open_gpu(DEFAULT)
    monkeypatch.setattr(Dispatch, "source", lambda self: "@compute @workgroup_size(1) fn fill() { let x: u32 = 1.5; }")
    with pytest.raises(DeviceError, match="reported"):
        Run(machine, ODD)


def test_a_region_past_the_largest_buffer_is_refused_with_figures(gpu):
    with pytest.raises(DeviceLimitError, match="at most 268,435,456 bytes.*region params needs 300,000,000"):
        gpu.allocate({"params": 300_000_000})


def test_an_arena_past_the_largest_buffer_lies_in_more_of_them(gpu, open_gpu):
    """The same numbers as in three, to the bit, and an evaluation's losses can be read wherever they lie."""
    config = GPTConfig(layers=2, channels=16, heads=2, context=32, vocabulary=16, batch=8)
    whole = Run(gpu, config)
    largest = max(whole.loaded.lowered.banks.bank_bytes)
    assert len(whole.loaded.lowered.banks.bank_bytes) == 3
    cut = Run(open_gpu(replace(DEFAULT, buffer_bytes=largest * 2 // 3)), config)
    assert len(cut.loaded.lowered.banks.bank_bytes) == 6
    for run in (whole, cut):
        for number in (1, 2, 3):
            run.train(number)
    assert whole.number(LOSS) == cut.number(LOSS) and whole.number(NORM) == cut.number(NORM)
    for run in (whole, cut):
        run.feed(4, run.evaluation)
        run.machine.replay(run.machine.load(run.evaluation.tape))
    assert (whole.read(whole.evaluation, "losses") == cut.read(cut.evaluation, "losses")).all()


def test_a_weight_past_the_largest_binding_is_refused_with_figures():
    limits = replace(DEFAULT, binding_bytes=1 << 16)
    with pytest.raises(DeviceLimitError, match="65,536 bytes of a buffer.*embedding's wte has 131,072"):
        lower(training_step(GPTConfig(1, 64, 2, 8, 512, 1)).tape, limits)


@pytest.mark.parametrize(
    "name, count, binding_bytes",
    [("fill", 100_003, 1 << 16), ("adamw", 100_003, 1 << 16), ("grad_norm", 2_200_003, 1 << 22)],
)
def test_flat_kernels_are_cut_at_the_largest_binding(open_gpu, name, count, binding_bytes):
    """A flat buffer may be larger than what a shader sees at once."""
    case = base_case(name, N=count)
    machine = open_gpu(replace(DEFAULT, binding_bytes=binding_bytes))
    check_parity(machine, case)


def test_a_region_may_grow_between_runs(gpu):
    small, large = Run(gpu, ODD), None
    small.train(1)
    large = Run(gpu, GPTConfig(layers=2, channels=40, heads=2, context=20, vocabulary=29, batch=4))
    large.train(1)
    again = Run(gpu, ODD)
    again.train(1)
    loss = again.number(LOSS)
    small.train(2)  # its bind groups pointed at buffers that are gone
    assert abs(small.number(LOSS) - loss) < 1
