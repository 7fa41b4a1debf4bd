"""Decoding from the cache on a GPU: near the judge, near its own whole window, and refused where a position is none."""

import struct

import numpy as np
import pytest
from posttrainllm.backends.gpu.limits import DEFAULT
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.errors import DataError, DeviceError, DeviceLimitError, DeviceUnavailableError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import POSITION
from posttrainllm.waiting import now

from tests.helpers.cases import base_case
from tests.helpers.kernels import check_parity
from tests.helpers.models import recipe
from tests.model.test_cache import CONFIGS, EPS, logits, made, tokens_of, whole

CONFIG = CONFIGS["many heads"]
HALF_EPS = 2.0**-11


def allowed(judge, tokens, expected, eps):
    """What an engine may differ by: several times as far as the judge moves with weights moved by one eps of their size."""
    rng = np.random.default_rng(1)
    for name in judge.weight_names():
        weight = np.frombuffer(judge.weight_bytes(name), "<f4")
        judge.set_weight_bytes(name, (weight * (1 + eps * rng.choice([-1.0, 1.0], weight.size))).astype("<f4").tobytes())
    return 4 * max(np.abs(logits(judge, tokens, len(tokens)) - expected).max(), 4 * eps * np.abs(expected).max())


def in_pieces(model, tokens):
    """All logits of a text, asked for in pieces of several sizes."""
    found, done = [], 0
    for last in (1, 1, 5, 16, 3, len(tokens)):
        last = min(last, len(tokens) - done)
        done += last
        found.append(logits(model, tokens[:done], last))
    return np.concatenate(found)


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_logits_are_the_judges(open_gpu, precision):
    try:
        machine = open_gpu(DEFAULT, precision=precision)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    judge, model = made(ReferenceMachine(), CONFIG), made(machine, CONFIG)
    tokens = tokens_of(CONFIG)
    expected = whole(judge, tokens)
    eps = HALF_EPS if precision == "f16" else EPS
    room = allowed(judge, tokens, expected, eps)
    assert room < np.abs(expected).max() / (300 if precision == "f32" else 5)
    got = in_pieces(model, tokens)
    assert got.shape == expected.shape and np.abs(got - expected).max() <= room
    assert np.abs(got - whole(model, tokens)).max() <= room


@pytest.mark.parametrize("sizes", [{"P": 2048, "T": 3, "D": 64}, {"P": 1031, "T": 1, "D": 255}, {"P": 513, "T": 300, "D": 7}], ids=str)
def test_the_largest_cache_and_odd_heads(gpu, sizes):
    check_parity(gpu, base_case("attention_cached", H=2, **sizes))


def test_a_longer_cache_is_refused(gpu):
    with pytest.raises(DeviceLimitError, match="2,048 positions"):
        check_parity(gpu, base_case("attention_cached", H=1, D=4, T=1, P=2049))


def test_a_step_in_between_empties_the_cache(gpu):
    config = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=31, batch=2)
    model = made(gpu, config, training=True)
    tokens = tokens_of(config)
    before = logits(model, tokens)
    batch = np.array(tokens * 2, "<i4").tobytes()
    model.step(batch, batch, recipe(1, 0.01))
    assert not model.cached_tokens
    after = logits(model, tokens)
    assert np.abs(after - whole(model, tokens)[-1:]).max() < np.abs(after - before).max() / 100


def test_a_block_of_steps_empties_the_cache(gpu):
    config = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=31, batch=2)
    model = made(gpu, config, training=True)
    queue = now(model.steps())
    model.logits(tokens_of(config))
    assert model.cached_tokens
    batch = np.array(tokens_of(config) * 2, np.int32).reshape(1, 2, 8)
    queue.push(batch, batch, [recipe(1, 0.01)])
    assert not model.cached_tokens


@pytest.mark.parametrize("position", [-1, 8, 2**31 - 1, -(2**31)])
def test_a_position_outside_the_context_is_refused(gpu, position):
    config = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=31, batch=2)
    model = made(gpu, config)
    loaded = gpu.load(model.program.decoding(1).tape)
    gpu.upload(address(POSITION), struct.pack("<i", position))
    with pytest.raises(DeviceError, match=f"from 0 to 7.*{position} came"):
        gpu.replay(loaded)
    gpu.upload(address(POSITION), struct.pack("<i", 7))
    gpu.replay(loaded)


def test_a_token_outside_the_vocabulary_is_refused(gpu):
    config = GPTConfig(layers=1, channels=16, heads=2, context=8, vocabulary=31, batch=2)
    model = made(gpu, config)
    for bad in (31, -1):
        with pytest.raises(DataError):
            model.logits([1, bad])
