"""Activations on a GPU: nothing alive is overwritten, inputs and outputs stand apart, and memory is hardly more than the plan's."""

import pytest
from posttrainllm.backends.gpu.banks import place
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.compile.graph import ARENA
from posttrainllm.compile.tape import REGION_SHIFT
from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import evaluation, training_step

TAPES = {
    "tiny": training_step(GPTConfig.preset("tiny")),
    "medium": training_step(GPTConfig.preset("medium")),
    "evaluation": evaluation(GPTConfig.preset("small")),
}


@pytest.mark.parametrize("name", TAPES)
def test_no_two_values_alive_together_overlap(name):
    spans = place(TAPES[name].tape, DEFAULT).spans
    for index, one in enumerate(spans):
        for other in spans[:index]:
            alive = one.first <= other.last and other.first <= one.last
            apart = (
                one.bank != other.bank
                or one.offset + one.nbytes <= other.offset
                or other.offset + other.nbytes <= one.offset
            )
            assert apart or not alive, f"{one} {other}"
    assert all(span.offset % 256 == 0 for span in spans)


@pytest.mark.parametrize("name", TAPES)
def test_inputs_and_outputs_stand_apart(name):
    spans = place(TAPES[name].tape, DEFAULT).spans
    pairs = [(one, other) for one in spans for other in one.beside]
    assert len(pairs) > 20
    assert sum(one.bank == other.bank for one, other in pairs) <= 0.05 * len(pairs)


@pytest.mark.parametrize("name", TAPES)
def test_memory_is_hardly_more_than_the_plan(name):
    """A fused gelu holds what it was given beside what it gives, which a forward pass alone need not."""
    banks = place(TAPES[name].tape, DEFAULT)
    allowed = 1.4 if name == "evaluation" else 1.25
    assert sum(banks.bank_bytes) <= allowed * TAPES[name].plan.region_bytes["arena"]


def test_kept_values_can_be_found_and_lost_ones_not():
    each = TAPES["evaluation"]
    banks = place(each.tape, DEFAULT)
    start, nbytes = each.address("logits")
    whole, part = banks.find(start, nbytes), banks.find(start + 1024, 256)
    assert part.region == whole.region and part.offset_bytes == whole.offset_bytes + 1024
    with pytest.raises(DeviceError, match="after the tape that made them"):
        banks.find(ARENA << REGION_SHIFT | 1 << 40, 4)
