"""Replay: the stated share of rows, of the training part alone, and on from any batch."""

import numpy as np
import pytest

from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pairs import Pairs
from posttrainllm.tune.continual.replay import Replayed

CONTEXT = 8
TEXT = Corpus.from_text("abcdefgh" * 40 + "ZYXWVUTS" * 10, "letters").split_at(0.2)
PAIRS = Pairs.from_list([(f"{number}", "11") for number in range(1, 6)], "ones").split_at(0.0)


def kinds(batch):
    """Of each row, whether it is a window: then every target counts."""
    targets = np.frombuffer(batch[1], "<i4").reshape(-1, CONTEXT)
    return [bool((row >= 0).all()) for row in targets]


@pytest.mark.parametrize(("share", "batch", "most"), [(0.25, 16, 4), (0.5, 2, 1), (0.25, 1, 1), (0.3, 3, 1), (0.0, 4, 0), (0.9, 2, 2)])
def test_the_share_of_rows_holds_over_the_batches(share, batch, most):
    batches = Replayed(PAIRS, TEXT, share).batches(CONTEXT, batch, 3)
    found = [kinds(batches.next()) for _ in range(100)]
    assert all(len(each) == batch for each in found) and max(map(sum, found)) <= most
    assert abs(sum(map(sum, found)) - 100 * share * batch) < 1


def test_windows_are_of_the_training_part_and_every_correction_comes():
    batches, seen = Replayed(PAIRS, TEXT, 0.5).batches(CONTEXT, 4, 3), set()
    for _ in range(20):
        batch = batches.next()
        rows = np.frombuffer(batch[0], "<i4").reshape(-1, CONTEXT)
        for row, window in zip(rows, kinds(batch)):
            text = bytes(row.astype(np.uint8))
            if window:
                assert set(text) <= set(b"abcdefgh")
            else:
                seen.add(text[:1])
    assert seen == {b"1", b"2", b"3", b"4", b"5"}


def test_it_goes_on_from_a_cursor_and_blocks_are_the_same_batches():
    made = Replayed(PAIRS, TEXT, 0.4)
    whole = made.batches(CONTEXT, 4, 9)
    expected = [whole.next() for _ in range(12)]
    part = made.batches(CONTEXT, 4, 9)
    for batch in expected[:5]:
        assert part.next() == batch
    rest = made.batches(CONTEXT, 4, 9, part.cursor)
    assert [rest.next() for _ in range(7)] == expected[5:]
    tokens, targets = made.batches(CONTEXT, 4, 9).block(12)
    assert tokens.shape == (12, 4, CONTEXT) and tokens.tobytes() == b"".join(a for a, _ in expected) and targets.tobytes() == b"".join(b for _, b in expected)


def test_other_splits_and_tokens_keep_the_text():
    again = Replayed(PAIRS, TEXT, 0.4).split_at(0.2).tokens(PAIRS.tokenizer)
    assert again.text is TEXT and again.share == 0.4 and isinstance(again, Pairs)
