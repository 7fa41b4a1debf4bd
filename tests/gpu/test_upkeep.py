"""What a host does beside tapes, without a GPU: when the halves are written anew, when the guard is let go."""

import struct
from itertools import pairwise

from posttrainllm.backends.gpu.dispatch import HALVES
from posttrainllm.backends.gpu.halves import Halves, Piece
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.upkeep import HALTED_BYTE, LAST_SCALE_BYTE, SCALE_BYTE, Upkeep
from posttrainllm.compile.tape import address
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.program import DLOSS, evaluation, forward, initial_weights, training_step

CONFIG = GPTConfig(layers=2, channels=24, heads=2, context=8, vocabulary=11, batch=2)
MADE = {
    "initial": initial_weights(CONFIG),
    "step": training_step(CONFIG),
    "evaluation": evaluation(CONFIG),
    "writing": forward(CONFIG, 1, 4),
}
WEIGHT = address(Layout.of(CONFIG).values()["blocks.1.mlp.fc.weight"])


def lowered(precision):
    return {name: lower(each.tape, Options(precision=precision, guard=True)) for name, each in MADE.items()}


def test_a_tape_says_what_it_does_to_weights():
    for precision in ("f32", "f16"):
        found = {name: each.weights for name, each in lowered(precision).items()}
        assert found == {"initial": "written", "step": "stepped", "evaluation": "read", "writing": "read"}


def test_halves_are_written_anew_when_weights_were_given_and_not_after_steps():
    tapes, upkeep = lowered("f16"), Upkeep(Options(precision="f16"))

    def refreshes(*names):
        return [upkeep.before(tapes[name])[0] for name in names]

    assert refreshes("initial", "step", "step", "evaluation", "writing") == [False, True, False, False, False]
    assert refreshes("initial", "writing", "step") == [False, True, False]
    upkeep.uploaded(WEIGHT, 4)
    assert refreshes("evaluation", "evaluation", "step") == [True, False, False]
    for place in (DLOSS, Layout.of(CONFIG).values()["ln_f.weight"]):  # what has no halves: slots, gains, an adapter
        upkeep.uploaded(address(place), 4)
        assert refreshes("step") == [False]
    upkeep.uploaded(address(Layout.of(CONFIG).values()["wte.weight"]), Layout.of(CONFIG).total_bytes)
    assert refreshes("step") == [True]


def test_the_guard_is_let_go_when_weights_were_given():
    tapes, upkeep = lowered("f32"), Upkeep(Options())
    clears = [upkeep.before(tapes[name])[1] for name in ("initial", "evaluation", "step", "step")]
    assert clears == [False, False, True, False]
    upkeep.uploaded(WEIGHT, 4)
    assert [upkeep.before(tapes["step"]) for _ in range(2)] == [(False, True), (False, False)]


def test_the_state_buffer_starts_with_the_scale():
    for precision, scale in (("f32", 1.0), ("f16", 65536.0)):
        state = Upkeep(Options(precision=precision)).state()
        assert len(state) == 256
        assert struct.unpack_from("<2f", state, SCALE_BYTE) == (scale, 0.0)
        assert struct.unpack_from("<f", state, HALTED_BYTE) == (0.0,)
        assert struct.unpack_from("<f", state, LAST_SCALE_BYTE) == (scale,)


def test_every_weight_of_a_product_has_its_halves_at_a_multiple_of_256_bytes():
    """Whatever the sizes; none overlaps another, and all tapes of a model agree on where they are."""
    made = lowered("f16")
    halves = made["step"].banks.halves
    assert halves == made["evaluation"].banks.halves == made["writing"].banks.halves
    assert len(halves.pieces) > 1, "sizes at which half an offset is no multiple of 256"
    layout, taken = Layout.of(CONFIG), []
    for parameter in layout.parameters:
        if parameter.decayed and parameter.name != "wpe.weight":
            start = layout.offsets_bytes[parameter.name]
            operand = halves.find(start, 4)
            assert operand.region == HALVES and operand.offset_bytes % 256 == 0
            taken.append((operand.offset_bytes, operand.offset_bytes + 2 * parameter.shape[0] * parameter.shape[1]))
    assert all(one[1] <= other[0] for one, other in pairwise(taken))
    assert taken[-1][1] <= halves.nbytes == made["step"].buffer_bytes()[HALVES]


def test_a_range_is_cut_at_the_pieces():
    first, second = Piece(256, 512, 0), Piece(1024, 1280, 128)
    assert list(Halves((first, second)).cut(0, 2048)) == [
        (0, 256, None), (256, 512, first), (512, 1024, None), (1024, 1280, second), (1280, 2048, None),
    ]  # fmt: skip
    assert list(Halves((first,)).cut(300, 400)) == [(300, 400, first)]
    assert list(Halves().cut(0, 8)) == [(0, 8, None)]


def test_single_precision_has_no_halves():
    assert all(not each.refresh and not each.banks.halves.pieces for each in lowered("f32").values())
