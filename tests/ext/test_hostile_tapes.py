"""A tape is data, perhaps from a file or another program: whatever it says, the engine refuses in words and stays whole."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.ext.tapes import ARENA, KERNELS, Call, record

native = pytest.importorskip("posttrainllm._native", reason="the native module is not built")

BYTES = 4096
LINEAR = {"R": 4, "I": 4, "O": 4}
PLACES = [(ARENA, 0), (ARENA, 256), (ARENA, 512), (ARENA, 768)]


@pytest.fixture
def engine():
    engine = native.Engine(2)
    engine.allocate(ARENA, BYTES)
    return engine


def changed(**words: int) -> bytes:
    """A good record of linear with some of its words (w0, w1, ...) replaced."""
    values = list(struct.unpack("<32q", record("linear", LINEAR, [], PLACES)))
    for word, value in words.items():
        values[int(word[1:])] = value
    return struct.pack("<32q", *values)


ADD = {"N": 64}


@pytest.mark.parametrize("name, offsets, says", [
    ("add", (0, 256, 0), ""), ("add", (0, 256, 256), ""), ("add", (0, 0, 0), ""),
    ("add", (0, 512, 4), "y is written and overlaps a"), ("add", (512, 0, 252), "y is written and overlaps b"),
    ("gelu_backward", (0, 256, 256), ""), ("gelu_backward", (0, 256, 512 - 4), "overlaps x"),
    ("blend", (0, 256, 256), "y is written and overlaps given"),
])  # fmt: skip
def test_a_result_takes_the_very_place_of_what_its_kernel_may_overwrite_and_no_other(engine, name, offsets, says):
    tape = record(name, ADD, [], [(ARENA, offset) for offset in offsets])
    if not says:
        return engine.replay(tape)
    for run in (engine.check, engine.replay):
        with pytest.raises(RuntimeError, match=says):
            run(tape)


def test_the_good_record_runs(engine):
    engine.check(changed())
    engine.replay(changed())


@pytest.mark.parametrize(
    "words, says",
    [
        ({"w0": -1}, "kernel id"),
        ({"w0": len(KERNELS)}, "kernel id"),
        ({"w0": 2**62}, "kernel id"),
        ({"w1": 0}, "size R"),
        ({"w2": -4}, "size I"),
        ({"w3": 2**62}, "size O"),
        ({"w4": 1}, "not used"),
        ({"w9": 1}, "parameter"),
        ({"w15": 1}, "word 15"),
        ({"w20": 1}, "not used"),
        ({"w1": 2**31, "w2": 2**31}, "more bytes than an address can hold|needs bytes"),
        ({"w1": 2**40, "w2": 2**40}, "more bytes than an address can hold"),
        ({"w1": 2**30}, "needs bytes"),
        ({"w16": ARENA << 56 | 2}, "aligned"),
        ({"w16": ARENA << 56 | (BYTES - 60)}, "needs bytes"),
        ({"w16": ARENA << 56 | BYTES}, "needs bytes"),
        ({"w16": ARENA << 56 | (2**56 - 4)}, "needs bytes"),
        ({"w16": 9 << 56}, "region"),
        ({"w16": -4}, "region"),
        ({"w16": 1 << 56}, "needs bytes"),  # a region nobody allocated
        ({"w19": ARENA << 56 | 0}, "overlaps x"),
        ({"w19": ARENA << 56 | 316}, "overlaps weight"),
    ],
)
def test_a_bad_word_is_refused_by_check_and_by_replay(engine, words, says):
    tape = changed() + changed(**words)
    for run in (engine.check, engine.replay):
        with pytest.raises(RuntimeError, match=says) as caught:
            run(tape)
        assert str(caught.value).startswith("record 1 ")


@pytest.mark.parametrize(
    "name, sizes, parameters, says",
    [
        ("embedding", {"B": 1, "T": 3, "C": 1, "V": 2, "P": 2}, [], "positions"),
        ("embedding_at", {"B": 1, "T": 3, "C": 1, "V": 2, "P": 2}, [], "positions"),
        ("attention_cached", {"T": 3, "H": 1, "D": 1, "P": 2}, [], "positions"),
        ("attention_cached", {"T": 1, "H": 1, "D": 257, "P": 1}, [], "head width"),
        ("attention", {"B": 1, "T": 1, "H": 1, "D": 257}, [], "head width"),
        ("grad_norm", {"N": 20, "G": 2}, [], "ceil"),
        ("adamw", {"N": 4}, [2], "parameter 0"),
        ("adamw_bf16", {"N": 5, "W": 2}, [0], "ceil.* = 3"),
        ("adamw_8bit", {"N": 65, "W": 17}, [0], "ceil.* = 34"),
        ("layernorm_backward", {"R": 1, "C": 2**20}, [0], "exceeds"),
    ],
)
def test_rules_beyond_extents(engine, name, sizes, parameters, says):
    places = [(ARENA, 256 * i) for i in range(len(KERNELS[name].operands))]
    with pytest.raises(RuntimeError, match=f"record 0 {name}: .*{says}"):
        engine.check(record(name, sizes, parameters, places))


@pytest.mark.parametrize(
    "name, sizes",
    [
        ("embedding_at", {"B": 2, "T": 3, "C": 4, "V": 11, "P": 7}),
        ("attention_cached", {"T": 3, "H": 2, "D": 5, "P": 7}),
    ],
)
@pytest.mark.parametrize("position", [-1, 5, 2**31 - 1, -(2**31)])
def test_a_position_outside_the_context_is_named_and_nothing_is_written(engine, name, sizes, position):
    values = {"position": np.array([position], np.int32), "tokens": np.zeros(6, np.int32)}
    call = Call.make(name, sizes, [], {key: value for key, value in values.items() if key in call_operands(name)})
    with pytest.raises(RuntimeError, match=f"record 0 {name}: position {position} with T = 3 .*0..6"):
        call.run(engine)
    assert np.array_equal(np.frombuffer(engine.view(ARENA), np.uint32), call.image.view(np.uint32))


def call_operands(name):
    return [operand for operand, _, _ in KERNELS[name].operands]


@pytest.mark.parametrize("name", ["embedding", "embedding_backward", "embedding_at"])
@pytest.mark.parametrize("token", [-1, 11, 2**31 - 1, -(2**31)])
def test_a_token_outside_the_vocabulary_is_named(engine, name, token):
    sizes = {"B": 2, "T": 3, "C": 4, "V": 11, "P": 3}
    tokens = np.array([0, 10, 3, 4, token, 5], np.int32)
    values = {"tokens": tokens} | ({"position": np.zeros(1, np.int32)} if name == "embedding_at" else {})
    call = Call.make(name, sizes, [], values)
    with pytest.raises(RuntimeError, match=f"record 0 {name}: token {token} at batch 1, time 1 .*0..10"):
        call.run(engine)


@pytest.mark.parametrize("name", ["cross_entropy", "cross_entropy_backward", "cross_entropy_backward_rows"])
def test_a_target_outside_the_vocabulary_is_named(engine, name):
    call = Call.make(name, {"R": 3, "V": 7}, [], {"targets": np.array([0, -100, 7], np.int32)})
    with pytest.raises(RuntimeError, match=f"record 0 {name}: target 7 at row 2 .*0..6"):
        call.run(engine)


def test_tapes_of_random_words_do_no_harm(engine):
    random = np.random.default_rng(5)
    view = np.frombuffer(engine.view(ARENA), np.float32)
    for _ in range(3000):
        words = np.zeros(32, np.int64)
        words[0] = random.integers(-1, len(KERNELS) + 1)
        words[1:9] = random.choice([0, 1, 2, 3, 17, 300, 2**33, -1], 8, p=[0.1, 0.2, 0.2, 0.2, 0.15, 0.05, 0.05, 0.05])
        letters = len(KERNELS[list(KERNELS)[words[0]]].letters) if 0 <= words[0] < len(KERNELS) else 0
        words[1 + letters : 9] = 0
        words[16:] = (ARENA << 56) | (random.integers(0, BYTES // 4 + 4, 16) * 4)
        if 0 <= words[0] < len(KERNELS):
            words[16 + len(KERNELS[list(KERNELS)[words[0]]].operands) :] = 0
        view[:] = 0
        try:
            engine.replay(words.tobytes())
        except RuntimeError as error:
            assert str(error).startswith("record 0 ")


def test_an_engine_says_what_it_cannot_do():
    with pytest.raises(ValueError):
        native.Engine(0)
    with pytest.raises(ValueError, match="no build named"):
        native.Engine(1, "avx1024")
    engine = native.Engine(1)
    with pytest.raises(ValueError):
        engine.replay(b"\0" * 255)
    with pytest.raises(MemoryError):
        engine.allocate(ARENA, 2**62)
    with pytest.raises(ValueError):
        engine.allocate(9, 16)


def test_a_view_outlives_its_region():
    engine = native.Engine(1)
    engine.allocate(ARENA, 64)
    view = engine.view(ARENA)
    view[0] = 7
    engine.allocate(ARENA, 1 << 20)
    assert view[0] == 7 and len(view) == 64
    assert engine.view(ARENA)[0] == 0
    del engine
    assert view[0] == 7


def test_threads_of_python_may_share_an_engine():
    call = Call.make("fill", {"N": 100_000}, [1.5], {})
    engine = native.Engine(2)
    call.run(engine)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: engine.replay(call.record * 20), range(40)))
    assert (np.frombuffer(engine.view(ARENA), np.float32)[call.spans["x"]] == 1.5).all()
