"""The self-test lets a right GPU pass and refuses one whose shader is wrong, saying where."""

from dataclasses import replace

import pytest
from posttrainllm.backends.gpu.dispatch import Dispatch
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.model import webgpu_check
from posttrainllm.model.webgpu_check import check_now
from posttrainllm.errors import SelfTestError

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
SOURCE = Dispatch.source
FAULTS = [
    ("attention_backward", "dqkv[at] = Element(value.x);", "dqkv[at] = Element(0.0);", r"op attention or linear: .*gradient of blocks\.1\.attn\.qkv"),
    ("layernorm_backward", "dweight[c] += sum;", "dweight[c] += 0.0 * sum;", r"op layernorm: .*gradient of ln_f\.weight; only zeros"),
    (
        "cross_entropy_backward",
        "dlogits[i] = change;",
        "dlogits[i] = -change;",
        r"gradient of ln_f\.(weight|bias); values off by 200",
    ),
    ("unembed", "logits[at] = value;", "logits[at] = 2.0 * value;", "op unembed: .*reference's loss"),
    ("adamw", "let new_m = beta1 * m[i] +", "let new_m = beta2 * m[i] + 2.0 *", "op adamw: .*new "),
]


def test_a_right_gpu_passes(gpu):
    check_now(gpu)


@pytest.mark.parametrize("kernel, right, wrong, where", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_wrong_shader_is_refused(open_gpu, monkeypatch, kernel, right, wrong, where):
    hit = []

    def source(self):
        text = SOURCE(self)
        if self.kernel == kernel and right in text:
            hit.append(kernel)
            return text.replace(right, wrong)
        return text

    monkeypatch.setattr(Dispatch, "source", source)
    machine = open_gpu(DEFAULT)
    with pytest.raises(SelfTestError, match=where):
        check_now(machine)
    assert hit, "the fault was not put in"


def test_a_gpu_whose_subgroups_are_wrong_goes_on_without_them(open_gpu, monkeypatch):
    machine, tried = open_gpu(DEFAULT), []
    machine.options = replace(machine.options, subgroups=True)

    async def check(it):
        tried.append(it.options.subgroups)
        if it.options.subgroups:
            raise SelfTestError("gpu", "its loss is right", "it is not")

    monkeypatch.setattr(webgpu_check, "_check", check)
    check_now(machine)
    assert tried == [True, False] and not machine.options.subgroups
    tried.clear()

    async def never(it):
        raise SelfTestError("gpu", "its loss is right", "it is not")

    monkeypatch.setattr(webgpu_check, "_check", never)
    with pytest.raises(SelfTestError):
        check_now(machine)
