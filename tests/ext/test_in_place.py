"""A kernel whose result may take the place of an argument gives the same bits there, from every build, whatever the length."""

import numpy as np
import pytest

from posttrainllm.ops import KERNELS
from tests.ext.tapes import ARENA, record

native = pytest.importorskip("posttrainllm._native", reason="the native module is not built")

PAIRS = [(made_of, a, over) for made_of in KERNELS for a in made_of.args for over in a.over]
SIZES = [{"N": 1, "R": 1, "V": 1}, {"N": 77, "R": 3, "V": 19}, {"N": 20011, "R": 37, "V": 541}]


def run(isa, made_of, sizes, arrays, places):
    engine = native.Engine(2, isa)
    engine.allocate(ARENA, 1 << 20)
    memory = np.frombuffer(engine.view(ARENA), np.uint8)
    for argument, (_, offset) in zip(made_of.args, places, strict=True):
        if argument.role == "in":
            memory[offset : offset + arrays[argument.name].nbytes] = arrays[argument.name].view(np.uint8).reshape(-1)
    engine.replay(record(made_of.name, sizes, [], places))
    return memory, places


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"N{sizes['N']}")
@pytest.mark.parametrize("made_of, result, over", PAIRS, ids=[f"{m.name}-{a.name}-over-{o}" for m, a, o in PAIRS])
def test_the_same_bits_in_place(made_of, result, over, sizes, isa):
    try:
        native.Engine(1, isa)
    except RuntimeError as error:
        pytest.skip(f"{error}")
    sizes = {letter: sizes[letter] for letter in made_of.letters}
    rng, arrays, offset, places = np.random.default_rng(5), {}, 0, {}
    for argument in made_of.args:
        shape = made_of.shape(argument, sizes)
        normal = rng.standard_normal(shape).astype("<f4")
        arrays[argument.name] = rng.integers(-1, sizes.get("V", 1), shape).astype("<i4") if argument.dtype == "i32" else abs(normal)
        places[argument.name] = (ARENA, offset)
        offset += -(-normal.nbytes // 256) * 256
    nbytes, apart = arrays[result.name].nbytes, list(places.values())
    together = list((places | {result.name: places[over]}).values())
    found = []
    for chosen in (apart, together):
        memory, _ = run(isa, made_of, sizes, arrays, chosen)
        start = chosen[made_of.args.index(result)][1]
        found.append(memory[start : start + nbytes].tobytes())
    assert found[0] == found[1] and (any(found[0]) or sizes.get("V") == 1)
