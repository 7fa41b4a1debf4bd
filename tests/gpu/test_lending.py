"""Activations in the place of gradients that are still to come, and of a text's keys and values: nothing is overwritten, no dispatch
reads the buffer that it writes, and not a bit changes."""

from dataclasses import replace

import pytest
from posttrainllm.backends.gpu.banks import place
from posttrainllm.backends.gpu.lending import lenders
from posttrainllm.backends.gpu.limits import DEFAULT, Limits
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.memory import Memory
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.parts import LENT, PART_SHIFT, Cuts
from posttrainllm.backends.gpu.predict import Counted
from posttrainllm.compile.graph import REGIONS
from posttrainllm.compile.tape import decode
from posttrainllm.dims import product, round_up
from posttrainllm.model import program as programs
from posttrainllm.model import zeroing
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import Program, training_step
from posttrainllm.model.saving import Saving
from posttrainllm.ops import kernel
from posttrainllm.ops.spec import WRITTEN

from tests.gpu.test_parts import bits

CACHE = REGIONS.index("cache")
LARGE = Limits(buffer_bytes=(1 << 32) - 256, binding_bytes=(1 << 31) - 4)
CASES = {
    "mega": ("mega", 2, Saving()),
    "mega, recomputed": ("mega", 2, Saving(recompute=14)),
    "mega, in parts": ("mega", 2, Saving(micro_batches=2)),
    "behemoth": ("behemoth", 1, Saving()),
    "behemoth, 16 rows": ("behemoth", 16, Saving()),
    "behemoth, recomputed": ("behemoth", 16, Saving(recompute=24)),
    "behemoth, in parts": ("behemoth", 16, Saving(micro_batches=4)),
}


def options_for(program, limits, precision="f32"):
    memory = Memory(limits, Counted())
    memory.expect([each.tape for each in program.passes()])
    memory.allocate(program.region_bytes())
    return Options(limits, precision, cuts=memory.cuts)


def laid_out(name, limits, precision):
    preset, batch, saving = CASES[name]
    program = Program(GPTConfig.preset(preset, batch=batch), saving=saving)
    options = options_for(program, limits, precision)
    return program.step.tape.apart(), place(program.step.tape, options), options


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("limits", [LARGE, DEFAULT], ids=["4 GiB", "WebGPU's defaults"])
@pytest.mark.parametrize("name", ["mega", "mega, recomputed", "mega, in parts", "behemoth"])
@pytest.mark.native_only(reason="plans large models and touches no GPU: nothing in it is the browser's")
def test_no_guest_stays_when_its_place_is_needed(name, limits, precision):
    tape, made, options = laid_out(name, limits, precision)
    guests = [span for span in made.spans if span.lent == LENT]
    assert bool(guests) == ("in parts" not in name), "gradients of parts add up"
    firsts = {}
    for index, record in enumerate(decode(tape)):
        for argument, (region, offset) in zip(record.kernel.args, record.operands):
            if region == "grads":
                size = product(record.kernel.shape(argument, record.sizes)) * 4
                firsts.setdefault((offset, offset + size), index)
    for guest in guests:
        low, high = guest.offset, guest.offset + guest.nbytes
        assert all(guest.last < index for (start, stop), index in firsts.items() if start < high and low < stop)
        assert len(list(options.cuts.runs(LENT, low, guest.nbytes))) == 1


@pytest.mark.parametrize("name", CASES)
@pytest.mark.native_only(reason="plans large models and touches no GPU: nothing in it is the browser's")
def test_no_two_in_one_place(name):
    _, made, _ = laid_out(name, LARGE, "f32")
    places = {}
    for span in made.spans:
        places.setdefault((span.lent, span.bank if span.lent < 0 else -1), []).append(span)
    for own in places.values():
        own.sort(key=lambda span: span.offset)
        for index, one in enumerate(own):
            for other in own[index + 1 :]:
                if other.offset >= one.offset + round_up(one.nbytes, 256):
                    break
                assert one.last < other.first or other.last < one.first, f"{one} {other}"


@pytest.mark.parametrize("limits", [LARGE, DEFAULT], ids=["4 GiB", "WebGPU's defaults"])
@pytest.mark.parametrize("name", ["mega", "behemoth", "mega, in parts"])
@pytest.mark.native_only(reason="plans large models and touches no GPU: nothing in it is the browser's")
def test_what_is_lent_is_not_read_where_it_is_written(name, limits):
    """A matmul whose input is declared read_write runs at half its speed: none is for a guest's sake."""
    tape, _, options = laid_out(name, limits, "f32")
    guests = 0
    for dispatch in lower(tape, options).dispatches:
        if dispatch.kernel in ("adamw", "grad_norm"):
            continue
        args = kernel(dispatch.kernel).args
        for index, operand, writable in dispatch.bindings:
            if operand.region & 0xFFFF in (LENT, CACHE):
                guests += 1
                reads = index < len(args) and args[index].role not in WRITTEN
                assert not (reads and writable), f"{dispatch.kernel}'s {args[index].name}"
    assert guests > 50


def few(monkeypatch):
    """tiny, as if it were large: gradients in three buffers, zero a block at a time."""
    programs._step_apart.cache_clear()
    monkeypatch.setattr(zeroing, "FEW_BYTES", 1 << 10)
    monkeypatch.setattr(programs, "FEW_BYTES", 1 << 10)
    monkeypatch.setattr("posttrainllm.backends.gpu.memory.LENT_PART_BYTES", 200 << 10)


@pytest.mark.parametrize("limits", [None, Limits(100_000, 64 << 10)], ids=["three buffers", "many"])
def test_the_same_bits(open_gpu, monkeypatch, limits):
    config = GPTConfig.preset("tiny", batch=1)
    expected = bits(open_gpu(), config)
    few(monkeypatch)
    try:
        machine, found = open_gpu(limits), []
        machine.expect([each.tape for each in Program(config).passes()])
        monkeypatch.setattr("posttrainllm.backends.gpu.lower.place", lambda *given: found.append(place(*given)) or found[-1])
        assert bits(machine, config) == expected
        step = max(found, key=lambda made: len(made.steps))
        assert sum(span.lent == LENT for span in step.spans) > 5 and max(machine._memory.nbytes) >> PART_SHIFT
    finally:
        programs._step_apart.cache_clear()


def test_every_turn_of_parts_lies_as_the_first():
    tape = training_step(GPTConfig.preset("medium"), saving=Saving(micro_batches=4)).tape
    together = place(tape, DEFAULT)
    own = tape.apart()
    alone = place(replace(own, turns=range(0)), DEFAULT)
    assert len(together.spans) == len(alone.spans) and sum(together.bank_bytes) <= sum(alone.bank_bytes)
    turns = [[(s.offset, s.bank, s.lent) for s in together.spans if s.first in range(at, at + 10)] for at in own.turns]
    assert len(turns) == 4 and all(each == turns[0] for each in turns) and len(turns[0]) > 5


def test_a_few_gradients_are_one_fill_as_before():
    """A step of a small model has as many dispatches as one that lends nothing."""
    tape = training_step(GPTConfig.preset("medium")).tape.apart()
    assert [record.kernel.name for record in decode(tape)].count("fill") == 1
    assert [record.kernel.name for record in decode(training_step(GPTConfig.preset("mega")).tape.apart())].count("fill") == 6


def test_what_a_tape_leaves_is_lent_to_nobody():
    """Gradients that it adds to without making them zero first hold something."""
    tape = training_step(GPTConfig.preset("mega")).tape.apart()
    steps = place(tape, LARGE).steps
    assert lenders(steps, Cuts(), ())
    assert not lenders([step for step in steps if step.record.kernel.name != "fill"], Cuts(), ())
