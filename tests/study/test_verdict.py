"""The tests behind the verdict against sums over everything, and the verdict at the edges of its rule."""

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrainllm.study.verdict import __doc__ as module_doc
from posttrainllm.study.verdict import ALPHA, LEVEL, MOSTLY, PERMUTATIONS, fisher, judge, largest_rate, permutation

LENGTH = 16


def every_division(successes, count, others, other_count):
    """Fisher's p by naming which of all prefixes were drawn as training ones."""
    marks = [1] * (successes + others) + [0] * (count + other_count - successes - others)
    hits = [sum(marks[i] for i in chosen) >= successes for chosen in combinations(range(len(marks)), count)]
    return sum(hits) / len(hits)


@given(st.data())
def test_fisher_counts_divisions(data):
    count, other_count = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    successes, others = data.draw(st.integers(0, count)), data.draw(st.integers(0, other_count))
    assert fisher(successes, count, others, other_count) == pytest.approx(every_division(successes, count, others, other_count))


def test_permutation_agrees_with_every_division():
    runs, others = [9, 7, 8, 3, 12, 6], [2, 4, 3, 1, 5, 7]
    whole = runs + others
    hits = [sum(whole[i] for i in chosen) >= sum(runs) for chosen in combinations(range(12), 6)]
    exact = sum(hits) / len(hits)
    assert permutation(runs, others, 1) == pytest.approx(exact, abs=3 * (exact / PERMUTATIONS) ** 0.5)
    assert permutation(runs, others, 1) == permutation(runs, others, 1)
    assert permutation([1] * 9, [1] * 9, 0) == 1, "all alike: any division is as good"
    assert permutation([9] * 20, [0] * 20, 0) == 1 / (1 + PERMUTATIONS), "never zero: nobody saw all divisions"


def test_false_alarms_are_as_rare_as_promised():
    """Runs drawn alike for both parts: a p below 5 % in at most 5 % of checks, within what chance allows for 400."""
    import numpy as np

    draw = np.random.default_rng(5)
    alarms = 0
    for number in range(400):
        lengths = draw.geometric(0.3, 60).clip(0, LENGTH).tolist()
        alarms += permutation(lengths[:30], lengths[30:], number) < 0.05
    assert alarms < 400 * 0.05 + 3 * (400 * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(("successes", "count"), [(0, 8), (0, 64), (3, 20), (19, 20)])
def test_largest_rate_is_where_the_tail_is_small(successes, count):
    rate = largest_rate(successes, count)
    tail = sum(comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(successes + 1))
    assert tail == pytest.approx(1 - LEVEL)
    if not successes:
        assert rate == pytest.approx(1 - (1 - LEVEL) ** (1 / count))
    assert largest_rate(count, count) == 1


def runs(exact, count, other=1):
    return [LENGTH] * exact + [other] * (count - exact)


def test_memorised_from_the_significant_count_on():
    """Held-out: none. The verdict turns exactly where the p, counted here anew, passes ALPHA."""
    count = 20
    p = [comb(count, k) / comb(2 * count, k) for k in range(count + 1)]  # all k successes among the training prefixes
    turns = next(k for k in range(count + 1) if p[k] < ALPHA)
    assert p[turns - 1] >= ALPHA and 0 < turns < MOSTLY * count
    assert judge(runs(turns, count), runs(0, count), LENGTH).kind == "partly memorised"
    assert judge(runs(turns - 1, count), runs(0, count), LENGTH).p_exact == pytest.approx(p[turns - 1])
    assert judge(runs(turns - 1, count), runs(0, count), LENGTH).kind not in ("memorised", "partly memorised")


def test_memorised_means_at_least_half():
    assert judge(runs(10, 20), runs(0, 20), LENGTH).kind == "memorised"
    assert judge(runs(9, 20), runs(0, 20), LENGTH).kind == "partly memorised"


def test_traces_turn_where_the_runs_differ_enough():
    def verdict(longer):
        return judge([3] * longer + [1] * (20 - longer), [1] * 20, LENGTH)

    kinds = [verdict(longer) for longer in range(21)]
    assert [(each.kind == "traces") == (each.p_runs < ALPHA) for each in kinds] == [True] * 21
    assert kinds[0].kind == "no sign" and kinds[20].kind == "traces"
    turns = next(k for k in range(21) if kinds[k].kind == "traces")
    by_hand = comb(20, turns) / comb(40, turns)  # all that are longer among the training prefixes
    assert by_hand < 2 * ALPHA < comb(20, turns - 2) / comb(40, turns - 2) * 2


def test_parts_of_another_kind_look_like_traces_and_the_sentence_says_so():
    """A model that knows the kind of text before the split and not the one after it, and nothing by heart of either."""
    import numpy as np

    draw = np.random.default_rng(3)
    familiar, strange = (draw.geometric(share, 64).clip(0, LENGTH - 1).tolist() for share in (0.3, 0.8))
    verdict = judge(familiar, strange, LENGTH)
    assert verdict.kind == "traces" and verdict.sentence.endswith("Text of another kind in the two parts would look the same.")
    assert "the same kind of text" in " ".join(module_doc.split())


def test_shorter_runs_on_training_text_are_no_sign():
    assert judge([1] * 20, [5] * 20, LENGTH).kind == "no sign"
    assert judge(runs(0, 20), runs(20, 20), LENGTH).kind == "no sign"


def test_sentences_say_what_was_counted():
    said = judge(runs(19, 20), runs(0, 20), LENGTH).sentence
    assert said.startswith("Memorised: 19 of 20 training prefixes bring back their exact next 16 tokens, and 0 of 20 held-out ones do (p = ")
    said = judge([1] * 20, [1] * 20, LENGTH).sentence
    assert "could miss up to 13.9 % of whole" in said and largest_rate(0, 20) == pytest.approx(0.139, abs=5e-4)
    said = judge(runs(20, 20), runs(20, 20), LENGTH).sentence
    assert said.startswith("No sign") and "repeats itself" in said
