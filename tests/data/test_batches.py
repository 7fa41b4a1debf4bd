"""Batches: every window once an epoch, in an order that seed and cursor give, the same on every platform."""

from itertools import pairwise

import pytest

from posttrainllm.data.batches import Batches, evaluation_batches, permutation, permute, tokens_to_i32
from posttrainllm.errors import DataError

hypothesis = pytest.importorskip("hypothesis", reason="properties need hypothesis")
st = hypothesis.strategies
few = hypothesis.settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
keys = st.integers(0, (1 << 64) - 1)


def rows(data, context):
    """i32 bytes as lists of `context` integers."""
    values = list(memoryview(data).cast("i"))
    return [values[begin : begin + context] for begin in range(0, len(values), context)]


@few
@hypothesis.given(st.integers(1, 1500), keys)
def test_permute_is_a_permutation(size, key):
    assert sorted(permute(index, size, key) for index in range(size)) == list(range(size))


@few
@hypothesis.given(st.integers(1, 900), keys)
def test_permutation_is_permute_at_once(size, key):
    assert permutation(size, key).tolist() == [permute(index, size, key) for index in range(size)]


@few
@hypothesis.given(st.integers(1, 9), st.integers(1, 7), st.integers(12, 200), st.integers(0, 99), st.integers(1, 9), st.booleans())
def test_a_block_is_so_many_batches(context, batch, length, seed, count, wide):
    text = list(range(1000, 1000 + length)) if wide else bytes(range(256))[:length]
    one_by_one, at_once = (Batches(text, context, batch, seed) for _ in range(2))
    for _ in range(2):
        expected = [one_by_one.next() for _ in range(count)]
        tokens, targets = at_once.block(count)
        assert [(x.tobytes(), y.tobytes()) for x, y in zip(tokens, targets, strict=True)] == expected
        assert at_once.cursor == one_by_one.cursor


def test_permute_scatters():
    """Neighbours must not stay neighbours: by chance 2 of 1,000 pairs do."""
    places = [permute(index, 1000, 7) for index in range(1000)]
    assert sum(abs(a - b) == 1 for a, b in pairwise(places)) < 12
    assert sum(place == index for index, place in enumerate(places)) < 8
    assert places != [permute(index, 1000, 8) for index in range(1000)]


@few
@hypothesis.given(st.integers(1, 12), st.integers(1, 5), st.integers(2, 400), st.integers(0, 2**63 - 1))
def test_an_epoch_reads_every_window_once(context, batch, count, seed):
    hypothesis.assume(count >= context + 1)
    made = Batches(list(range(count)), context, batch, seed)
    offset, windows = made._offset, made.windows
    assert 0 <= offset and offset + windows * context + 1 <= count
    assert windows >= 1 and count - 1 - windows * context < 2 * context, "no more than one window is left over"
    seen = []
    while len(seen) < windows:
        tokens, targets = made.next()
        for x, y in zip(rows(tokens, context), rows(targets, context), strict=True):
            assert y == [value + 1 for value in x], "targets are tokens shifted by one"
            assert x == list(range(x[0], x[0] + context)), "a window is a run of the text"
            seen.append(x[0])
    assert sorted(seen[:windows]) == [offset + context * index for index in range(windows)]


@few
@hypothesis.given(st.integers(1, 9), st.integers(1, 7), st.integers(12, 200), st.integers(0, 99), st.integers(0, 30))
def test_a_cursor_goes_on_exactly(context, batch, count, seed, before):
    straight = Batches(bytes(range(256))[:count], context, batch, seed)
    for _ in range(before):
        straight.next()
    resumed = Batches(bytes(range(256))[:count], context, batch, seed, straight.cursor)
    for _ in range(6):
        assert resumed.next() == straight.next()
        assert resumed.cursor == straight.cursor


def test_a_batch_larger_than_an_epoch_crosses_into_the_next():
    made = Batches(list(range(30)), 9, 10, 1)  # 3 windows an epoch
    tokens, _ = made.next()
    assert len(rows(tokens, 9)) == 10 and made.cursor["epoch"] >= 3
    assert made.cursor["window"] <= 3


def test_epochs_and_seeds_differ():
    def first_starts(seed, epoch):
        made = Batches(list(range(5000)), 16, 8, seed, {"epoch": epoch, "window": 0})
        return [row[0] for row in rows(made.next()[0], 16)]

    orders = [tuple(first_starts(seed, epoch)) for seed in range(6) for epoch in range(6)]
    assert len(set(orders)) == 36
    assert len({order[0] % 16 for order in orders}) > 6, "each epoch cuts the text elsewhere"


def test_bytes_and_numbers_give_the_same_batches():
    data = bytes((7 * i) % 251 for i in range(500))
    for made_of in (bytearray(data), memoryview(data), list(data)):
        a, b = Batches(data, 12, 5, 3), Batches(made_of, 12, 5, 3)
        assert [a.next() for _ in range(9)] == [b.next() for _ in range(9)]
    assert tokens_to_i32(b"\x00\xff") == tokens_to_i32([0, 255]) == b"\0\0\0\0\xff\0\0\0"
    assert tokens_to_i32([-100, 1 << 20]) == b"\x9c\xff\xff\xff\0\0\x10\0"


def test_the_order_is_the_same_everywhere():
    """Integers only, so these starts hold natively and in a browser. A change here changes what every seed trains on."""
    made = Batches(list(range(10_000)), 64, 4, 42)
    starts = [row[0] for _ in range(2) for row in rows(made.next()[0], 64)]
    assert starts == [5745, 8369, 6641, 8497, 4401, 7153, 2545, 4081]


def test_too_few_tokens_are_refused():
    Batches(b"123456789", 8, 2, 1).next()
    with pytest.raises(DataError) as caught:
        Batches(b"12345678", 8, 2, 1)
    assert caught.value.code == "E-DATA-SHORT" and "9 tokens" in str(caught.value)


@few
@hypothesis.given(st.integers(1, 9), st.integers(2, 300), st.integers(1, 400))
def test_evaluation_windows_do_not_depend_on_the_batch(context, count, wanted):
    hypothesis.assume(count >= context + 1)
    tokens = list(range(count))

    def windows(batch):
        kept = []
        for inputs, targets in evaluation_batches(tokens, context, batch, wanted):
            assert len(inputs) == len(targets) == 4 * batch * context
            for x, y in zip(rows(inputs, context), rows(targets, context), strict=True):
                if y[0] == -100:
                    assert set(y) == {-100} and set(x) == {0}, "a missing row counts nothing"
                else:
                    assert y == [value + 1 for value in x]
                    kept.append(x[0])
        return kept

    first = windows(1)
    assert first and len(set(first)) == len(first) == min((count - 1) // context, max(1, wanted // context))
    for batch in (2, 3, 7):
        assert windows(batch) == first


def test_evaluation_windows_spread_over_the_whole_part():
    starts = [rows(x, 10)[0][0] for x, _ in evaluation_batches(list(range(1001)), 10, 1, 50)]
    assert starts == [0, 200, 400, 600, 800]
    assert evaluation_batches([1, 2, 3], 10, 4, 50) == []
