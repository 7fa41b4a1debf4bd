"""Smaller moments of a file that are not what they must be: refused in a sentence, before a model changes."""

import numpy as np
import pytest

from posttrainllm.errors import FormatError
from posttrainllm.store.buffers import Tensor
from posttrainllm.train.state import check_run, model_of, trainer_of

from .making import text
from .test_moments import saved, trainer_on


def changed(run, **tensors):
    """The run's checkpoint with tensors replaced, by field: {name: Tensor, or None to leave it out}."""
    checkpoint = saved(run)
    for field, changes in tensors.items():
        group = getattr(checkpoint, field)
        for name, tensor in changes.items():
            group.pop(name, None)
            if tensor is not None:
                group[name] = tensor
    return checkpoint


NAME = "blocks.0.attn.qkv.weight"
BLOCKS = 16 * 48 // 64


def scales(*numbers):
    return Tensor("F32", (BLOCKS,), np.resize(np.float32(numbers), BLOCKS).tobytes())


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("8bit", {"m_scale": {NAME: None}}, "holds adamw.m_scale.*missing"),
        ("8bit", {"v_scale": {NAME: scales(1, float("nan"))}}, "scales of adamw.v_scale.*numbers from 0 on"),
        ("8bit", {"m_scale": {NAME: scales(1, -1)}}, "scales of adamw.m_scale.*numbers from 0 on"),
        ("8bit", {"m_scale": {NAME: Tensor("F32", (1,), bytes(4))}}, r"m_scale.* is F32 \[12\]"),
        ("8bit", {"m_scale": {NAME: Tensor("I32", (BLOCKS,), bytes(4 * BLOCKS))}}, r"m_scale.* is F32 \[12\]"),
        ("8bit", {"v": {NAME: Tensor("F32", (16, 48), bytes(4 * 16 * 48))}}, r"adamw.v.*is U8 \[16, 48\]"),
        ("8bit", {"m": {NAME: Tensor("U8", (16, 48), bytes(16 * 48))}}, r"adamw.m.*is I8 \[16, 48\]"),
        ("bf16", {"m_scale": {NAME: scales(1)}}, "scales of 8-bit moments alone"),
        ("bf16", {"v": {NAME: Tensor("F16", (16, 48), bytes(2 * 16 * 48))}}, r"adamw.v.*is BF16 \[16, 48\]"),
        ("bf16", {"m": {NAME: None}}, "holds adamw.m.*missing"),
        ("f32", {"v": {NAME: Tensor("BF16", (16, 48), bytes(2 * 16 * 48))}}, r"adamw.v.*is F32 \[16, 48\]"),
        ("f32", {"m_scale": {NAME: scales(1)}}, "scales of 8-bit moments alone"),
    ],
)
def test_wrong_moments_are_refused(machine, kind, changes, says):
    run = trainer_on(machine, kind)
    run.train_step()
    with pytest.raises(FormatError, match=says):
        trainer_of(changed(run, **changes), text(), machine=machine)
    if "holds adamw.m." not in says:  # without all of them it is weights only, which one may write with
        with pytest.raises(FormatError, match=says):
            check_run(changed(run, **changes), text())
    model_of(changed(run, **changes), machine=machine)


def test_a_scale_of_no_weight_is_refused_when_the_file_is_read(machine):
    run = trainer_on(machine, "8bit")
    checkpoint = changed(run, m_scale={"ghost": scales(1)})
    with pytest.raises(FormatError, match="'adamw.m_scale.ghost' has none"):
        checkpoint.to_bytes()
