"""The KV cache: logits that begin after what is cached are those of the whole text, bit for bit on the CPU engine."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.tape import address
from posttrainllm.decode.generate import window_start, write
from posttrainllm.errors import DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.past import MOST_TOGETHER, chunks, shared_length
from posttrainllm.model.program import Program, forward
from tests.helpers.machines import open_once
from tests.helpers.models import recipe, text

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies

CONFIGS = {
    "odd": GPTConfig(layers=2, channels=30, heads=3, context=37, vocabulary=61, batch=1),
    "three tiles of keys": GPTConfig(layers=2, channels=32, heads=1, context=150, vocabulary=300, batch=1),
    "a head of its own, exact gelu": GPTConfig(2, 30, 3, 37, 61, 1, tied=False, activation="gelu", hidden=50),
    "many heads": GPTConfig(layers=1, channels=64, heads=4, context=70, vocabulary=256, batch=1),
}
EPS = 2.0**-23


def made(machine, config, training=False):
    """A model with weights that matter: attention as made from a seed is nearly uniform."""
    model = GPT(config, machine, Program(config, training))
    model.initialise(5)
    rng = np.random.default_rng(6)
    for name in model.weight_names():
        weight = np.frombuffer(model.weight_bytes(name), "<f4")
        model.set_weight_bytes(name, (weight + 0.1 * rng.standard_normal(weight.size)).astype("<f4").tobytes())
    return model


def tokens_of(config, seed=1):
    """Text of a whole context."""
    return text(config.context, config.vocabulary, seed).tolist()


def whole(model, tokens):
    """Logits [T,V] of a text by the pass that knows no cache."""
    each = forward(model.config, 1, len(tokens), model.lora)
    model.machine.upload(address(each.tokens), np.array(tokens, "<i4").tobytes())
    model.machine.replay(model.machine.load(each.tape))
    place, nbytes = each.address("logits")
    return np.frombuffer(model.machine.download(place, nbytes), "<f4").reshape(len(tokens), -1)


def logits(model, tokens, last=1):
    return np.array([list(row) for row in model.logits_of(tokens, last)], np.float32)


def same(model, got, expected):
    """Bit for bit; on the judge, whose logits are rounded to float32 from float64, to the last digit."""
    if model.machine.name == "reference":
        return np.allclose(got, expected, rtol=0, atol=EPS * np.abs(expected).max())
    return got.tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.parametrize("name", CONFIGS)
def test_one_token_after_another_gives_the_rows_of_the_whole_text(any_machine, name):
    model = made(any_machine, CONFIGS[name])
    tokens = tokens_of(model.config)
    expected = whole(model, tokens)
    for count in range(1, len(tokens) + 1):
        assert same(model, logits(model, tokens[:count]), expected[count - 1 : count]), f"{count} tokens"
        assert model.cached_tokens == tokens[:count]


@pytest.mark.native_only(reason="Pyodide's engine is opened with one number of threads")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512", "neon"])
def test_every_build_and_number_of_threads_gives_the_same_rows(isa, threads):
    from posttrainllm.backends.native import CpuMachine
    from posttrainllm.errors import DeviceError

    try:
        machine = CpuMachine(threads, isa)
    except (ValueError, DeviceError) as error:
        pytest.skip(f"this host does not run it: {error}")
    config = CONFIGS["three tiles of keys"]
    usual = made(open_once("cpu"), config)
    tokens = tokens_of(config)
    expected = whole(usual, tokens)
    model = made(machine, config)
    for count in (1, 2, 63, 64, 65, 130, 131, 132, 150):
        assert same(model, logits(model, tokens[:count]), expected[count - 1 : count]), f"{count} tokens"
    machine.close()


def test_a_text_in_pieces_of_any_size(any_machine):
    """What was asked for before, and how many rows are asked for now, never shows in a logit."""
    model = made(any_machine, CONFIGS["three tiles of keys"])
    tokens = tokens_of(model.config)
    expected = whole(model, tokens)

    @hypothesis.settings(max_examples=25, deadline=None, derandomize=True)
    @hypothesis.given(st.lists(st.tuples(st.integers(1, len(tokens)), st.integers(1, 70)), min_size=1, max_size=4), st.booleans())
    def check(cuts, afresh):
        if afresh:
            model.forget_cache()
        for count, last in cuts:
            last = min(count, last)
            assert same(model, logits(model, tokens[:count], last), expected[count - last : count])

    check()


def test_another_continuation_replaces_what_was_cached(any_machine):
    """As after a draft that was refused: the shared beginning stays, the rest is computed anew."""
    model = made(any_machine, CONFIGS["many heads"])
    tokens = tokens_of(model.config)
    other = tokens[:40] + [(token + 1) % model.config.vocabulary for token in tokens[40:]]
    logits(model, tokens)
    assert same(model, logits(model, other, 9), whole(model, other)[-9:])
    assert model.cached_tokens == other
    assert same(model, logits(model, tokens[:50], 3), whole(model, tokens[:50])[-3:])
    assert not np.array_equal(whole(model, tokens)[-1], whole(model, other)[-1])


def test_only_what_is_new_is_computed(machine, monkeypatch):
    """Rows of each pass: the cache is used, and rows that are asked for run together."""
    model = made(machine, CONFIGS["many heads"])
    tokens = tokens_of(model.config)
    made_for, right = [], model.program.decoding
    monkeypatch.setattr(model.program, "decoding", lambda time: made_for.append(time) or right(time))
    for count, last, rows in ((41, 1, [32, 8, 1]), (42, 1, [1]), (42, 1, [1]), (50, 5, [2, 1, 5]), (50, 40, [32, 8])):
        made_for.clear()
        model.logits_of(tokens[:count], last)
        assert made_for == rows
    made_for.clear()
    model.logits([9, *tokens[1:42]])
    assert sum(made_for) == 42, "the first token differs"


def test_weights_that_change_empty_the_cache(machine):
    model = made(machine, CONFIGS["odd"], training=True)
    tokens = tokens_of(model.config)
    before = logits(model, tokens)

    def step():
        batch = np.array(tokens, "<i4").tobytes()
        model.step(batch, batch, recipe(1, 0.01))

    def weight():
        model.set_weight_bytes("ln_f.bias", np.ones(30, "<f4").tobytes())

    for change in (step, weight, lambda: model.initialise(9)):
        model.logits(tokens[:-1])
        assert model.cached_tokens
        change()
        assert not model.cached_tokens
        after = logits(model, tokens)
        assert not np.array_equal(before, after) and same(model, after, whole(model, tokens)[-1:])
        before = after


def test_a_checkpoint_filled_in_empties_the_cache(machine):
    from posttrainllm.train.filling import fill
    from posttrainllm.train.state import weights_checkpoint

    model = made(machine, CONFIGS["odd"])
    checkpoint = weights_checkpoint(model, "kept")
    model.logits(tokens_of(model.config))
    fill(model, checkpoint, False)
    assert not model.cached_tokens


def test_a_pass_that_fails_leaves_no_claim(machine):
    """After a token outside the vocabulary the cache says only what it holds."""
    model = made(machine, CONFIGS["odd"])
    tokens = tokens_of(model.config)
    model.logits(tokens[:20])
    for bad in (61, -1):
        with pytest.raises(DataError):
            model.logits([*tokens[:10], bad, *tokens[11:16]])
        assert model.cached_tokens == tokens[:10]
        assert same(model, logits(model, tokens[:16]), whole(model, tokens[:16])[-1:])


@pytest.mark.parametrize(("count", "last"), [(0, 1), (38, 1), (5, 0), (5, 6)])
def test_what_cannot_be_asked_for(any_machine, count, last):
    with pytest.raises(DataError):
        made(any_machine, CONFIGS["odd"]).logits_of([1] * count, last)


def test_greedy_text_is_that_of_whole_windows(machine):
    """Across several hops of the window, with nothing but the pass that knows no cache as the judge."""
    config = GPTConfig(layers=2, channels=48, heads=3, context=32, vocabulary=256, batch=1)
    model = made(machine, config)
    seen = list(b"To be, or not")
    for _ in range(100):
        seen.append(int(whole(model, seen[window_start(len(seen), 32) :])[-1].argmax()))
    pieces = list(write(model, "To be, or not", 100, temperature=0))
    stream = model.tokenizer.stream()
    expected = "".join(stream.push(token) for token in seen[13:]) + stream.finish()
    assert "".join(piece.text for piece in pieces) == expected
    assert len(set(seen[13:])) > 3, "it must say something"


def test_the_judge_is_near(machine):
    """A float32 engine against float64, where the judge moves with weights moved by one eps (see test_parity)."""
    config = CONFIGS["odd"]
    judge, model = made(ReferenceMachine(), config), made(machine, config)
    tokens = tokens_of(config)
    expected, got = logits(judge, tokens, 37), logits(model, tokens, 37)
    rng = np.random.default_rng(1)
    for name in judge.weight_names():
        weight = np.frombuffer(judge.weight_bytes(name), "<f4")
        judge.set_weight_bytes(name, (weight * (1 + EPS * rng.choice([-1.0, 1.0], weight.size))).astype("<f4").tobytes())
    allowed = 4 * max(np.abs(logits(judge, tokens, 37) - expected).max(), 4 * EPS * np.abs(expected).max())
    assert np.abs(got - expected).max() <= allowed < np.abs(expected).max() / 300


def test_chunks_cover_the_rows_in_powers_of_two_and_end_with_those_asked_for():
    for rows in range(1, 200):
        for last in range(1, rows + 1):
            found = list(chunks(rows, last))
            assert sum(found) == rows and len(found) <= 9
            powers = found[:-1] if 1 < last <= MOST_TOGETHER else found
            assert all(chunk & (chunk - 1) == 0 for chunk in powers)
            assert not 1 < last <= MOST_TOGETHER or found[-1] == last


@pytest.mark.parametrize(("one", "other", "length"), [("", "abc", 0), ("abc", "abd", 2), ("abc", "abc", 3), ("ab", "abc", 2), ("x", "abc", 0)])
def test_shared_length(one, other, length):
    assert shared_length(list(one), list(other)) == shared_length(list(other), list(one)) == length
