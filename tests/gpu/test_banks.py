"""Activations on a GPU: nothing alive is overwritten, inputs and outputs stand apart, and memory is hardly more than what is alive."""

import pytest
from posttrainllm.backends.gpu.banks import place
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.gpu.options import Options
from posttrainllm.compile.graph import ARENA
from posttrainllm.compile.tape import REGION_SHIFT, decode
from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import evaluation, training_step
from posttrainllm.model.saving import Saving

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
def test_memory_is_hardly_more_than_what_is_alive_at_once(name):
    """The arena is no measure: there a result may take the place of what it is made of, which two bindings of a shader cannot share."""
    banks = place(TAPES[name].tape, DEFAULT)
    alive = [sum(s.nbytes for s in banks.spans if s.first <= at <= s.last) for at in range(len(TAPES[name].tape))]
    assert sum(banks.bank_bytes) <= 1.15 * max(alive)


def test_kept_values_can_be_found_and_lost_ones_not():
    each = TAPES["evaluation"]
    banks = place(each.tape, DEFAULT)
    start, nbytes = each.address("logits")
    whole, part = banks.find(start, nbytes), banks.find(start + 1024, 256)
    assert part.region == whole.region and part.offset_bytes == whole.offset_bytes + 1024
    with pytest.raises(DeviceError, match="after the tape that made them"):
        banks.find(ARENA << REGION_SHIFT | 1 << 40, 4)
