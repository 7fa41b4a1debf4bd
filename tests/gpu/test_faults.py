"""What must stop a run: a lost device, a wrong command, a size past the limits. Never a number after it."""

import math
from dataclasses import replace

import pytest
from posttrainllm.backends.gpu.dispatch import Dispatch
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.compile.tape import address
from posttrainllm.errors import (
    DeviceError,
    DeviceLimitError,
    DeviceLostError,
    DeviceOutOfMemoryError,
    DeviceUnavailableError,
    SelfTestError,
)
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.kernel_check import checked
from posttrainllm.model.program import LOSS, NORM, initial_weights, training_step
from posttrainllm.model.webgpu_check import check
from posttrainllm.ops import KERNELS
from posttrainllm.waiting import now

from tests.gpu.hosts import break_dispatch, lose, refuse_memory, wrong_shader, zeros
from tests.gpu.test_training import ODD, Run
from tests.helpers.cases import base_case
from tests.helpers.kernels import check_parity

FEATURES = ("timestamp-query", "subgroup", "subgroups", "shader-f16", "chromium-experimental-subgroup-matrix")
ON_THE_WAY = ("fill", "normal", "embedding", "layernorm", "linear", "attention", "unembed", "cross_entropy", "embedding_at", "attention_cached")
REFUSED = {  # kernel, and what the self-test says against a step whose kernel writes zeros
    **{name: f"op {name}: " for name in (*ON_THE_WAY, *(each.name for each in checked()))},
    "embedding_backward": r"gradient of wpe\.weight; only zeros",
    "layernorm_backward": r"gradient of ln_f\.weight; only zeros",
    "linear_backward_input": r"gradient of blocks\.1\.mlp\.fc\.weight; only zeros",
    "linear_backward_weight": r"gradient of blocks\.1\.mlp\.proj\.weight; only zeros",
    "attention_backward": r"gradient of blocks\.1\.attn\.qkv\.weight; only zeros",
    "unembed_backward_input": r"gradient of ln_f\.weight; only zeros",
    "unembed_backward_weight": r"gradient of wte\.weight",
    "cross_entropy_backward": r"gradient of ln_f\.weight; only zeros",
    "grad_norm": "gradient norm; only zeros",
    "adamw": r"new wte\.weight; only zeros",
}
FUSED = {  # kernel, and what the self-test says against a step whose kernel writes zeros
    "fill": "reference's loss",
    "normal": "reference's loss",
    "embedding": "reference's loss",
    "embedding_backward": r"gradient of wpe\.weight; only zeros",
    "layernorm": "reference's loss",
    "layernorm_backward": r"gradient of ln_f\.weight; only zeros",
    "linear": "reference's loss",
    "linear_backward_input": r"gradient of blocks\.1\.mlp\.fc\.weight; only zeros",
    "linear_backward_weight": r"gradient of blocks\.1\.mlp\.proj\.weight; only zeros",
    "attention": r"reference's gradient of ln_f\.weight",
    "attention_backward": r"gradient of blocks\.1\.attn\.qkv\.weight; only zeros",
    "unembed": "reference's loss",
    "unembed_backward_input": r"gradient of ln_f\.weight; only zeros",
    "unembed_backward_weight": r"gradient of wte\.weight",
    "cross_entropy": "loss; only zeros",
    "cross_entropy_backward": r"gradient of ln_f\.weight; only zeros",
    "grad_norm": "gradient norm; only zeros",
    "adamw": r"new wte\.weight; only zeros",
    "embedding_at": "reference's logits",
    "attention_cached": "reference's logits",
}
FUSED = {  # gelu and the residual's add are part of linear: what stands there, what does nothing, and what is said
    "gelu": ("linear", "0.5 * x * (1.0 + inner_tanh(x))", "0.0 * x", "op gelu: "),
    "gelu_backward": (
        "linear_backward_input",
        "return 0.5 * (1.0 + t)",
        "return 0.0 * (1.0 + t)",
        r"gradient of blocks\.1\.mlp\.fc",
    ),
    "add": ("linear", "value + ElementSum(other[at])", "0.0 * value", "op add: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_shader_that_writes_zeros_is_refused(gpu, name):
    with wrong_shader(gpu, name, zeros) as replaced, pytest.raises(SelfTestError, match=REFUSED[name]):
        now(check(gpu))
    assert replaced, "the fault was not put in"


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_op_that_gives_zeros_is_refused(gpu, name):
    kernel, right, wrong, said = FUSED[name]
    hit = []

    def change(dispatch, text):
        hit.append(right in text)
        return text.replace(right, wrong)

    with wrong_shader(gpu, kernel, change), pytest.raises(SelfTestError, match=said):
        now(check(gpu))
    assert any(hit), "the fault was not put in"


def test_every_kernel_has_its_fault():
    assert {kernel.name for kernel in KERNELS} == {*REFUSED, *FUSED}


def test_the_same_gpu_passes_without_the_fault(gpu):
    now(check(gpu))


def test_a_device_lost_while_a_step_is_under_way(open_gpu):
    run = Run(open_gpu(DEFAULT), ODD)
    run.train(1)
    with pytest.raises(DeviceLostError):
        run.train(2)
        lose(run.machine)
        run.number(LOSS)
    for _ in range(2):
        with pytest.raises(DeviceLostError):
            run.train(3)
            run.number(LOSS)


class Start:
    """Only the tape that makes the starting weights: two shaders, compiled soon."""

    def __init__(self, machine):
        self.machine, initial = machine, initial_weights(ODD)
        machine.allocate(initial.plan.region_bytes | {"metrics": 512})
        self.loaded = machine.load(initial.tape)

    def run(self):
        self.machine.replay(self.loaded)
        return self.machine.download(address(LOSS), 4)


def test_a_wrong_dispatch_stops_the_run(open_gpu):
    start = Start(open_gpu(DEFAULT))
    start.run()
    break_dispatch(start.loaded, 1)
    for _ in range(2):
        with pytest.raises(DeviceError, match="reported"):
            start.run()


def test_a_shader_that_does_not_compile_is_named(open_gpu, monkeypatch):
    machine = open_gpu(DEFAULT)
    monkeypatch.setattr(Dispatch, "source", lambda self: "@compute @workgroup_size(1) fn fill() { let x: u32 = 1.5; }")
    with pytest.raises(DeviceError, match="reported"):
        Start(machine)


def test_memory_that_is_refused_stops_the_run(open_gpu, monkeypatch):
    start = Start(open_gpu(DEFAULT))
    start.run()
    refuse_memory(start.machine, monkeypatch)
    with pytest.raises(DeviceOutOfMemoryError, match="smaller model or a smaller batch"):
        start.machine.allocate({"params": 1 << 24})
        start.run()


def test_without_any_optional_feature(gpu, open_gpu):
    """The same run, and half precision is refused."""
    machine = open_gpu(DEFAULT, without=FEATURES)
    assert not machine.features & set(FEATURES)
    runs = [Run(gpu, ODD), Run(machine, ODD)]
    for number in (1, 2, 3):
        for run in runs:
            run.train(number)
    mine, plain = (run.number(LOSS) for run in runs)
    assert math.isclose(mine, plain, rel_tol=1e-5)
    with pytest.raises(DeviceUnavailableError, match="shader-f16"):
        open_gpu(DEFAULT, without=FEATURES, precision="f16")


def test_at_the_limits_of_the_adapter(gpu, open_gpu):
    """What is larger there changes which way is taken, not what comes out."""
    machine = open_gpu()
    assert machine.limits.buffer_bytes >= gpu.limits.buffer_bytes == DEFAULT.buffer_bytes
    runs = [Run(gpu, ODD), Run(machine, ODD)]
    for number in (1, 2, 3):
        for run in runs:
            run.train(number)
    assert math.isclose(runs[0].number(LOSS), runs[1].number(LOSS), rel_tol=1e-5)


@pytest.mark.native_only(reason="lowering is the same on both hosts, and SwiftShader compiles for long")
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
    with pytest.raises(DeviceLimitError, match="65,536 bytes of a buffer.*linear's weight has 76,800"):
        lower(training_step(GPTConfig(1, 80, 2, 8, 512, 1)).tape, limits)


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
    large = Run(gpu, replace(ODD, layers=3, batch=7))
    large.train(1)
    again = Run(gpu, ODD)
    again.train(1)
    loss = again.number(LOSS)
    small.train(2)  # its bind groups pointed at buffers that are gone
    assert abs(small.number(LOSS) - loss) < 1
