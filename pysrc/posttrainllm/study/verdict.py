"""Whether a model knows its training text better than text it never saw: exact tests, and a sentence.

The rule, with runs of tokens that equal the true continuation's at the same places:

1. "memorised": training prefixes bring back their whole continuation more often than held-out ones by Fisher's exact test, one-sided,
   p < ALPHA, and at least MOSTLY of them do. "partly memorised": the same, but fewer do.
2. else "traces": runs on training text are longer on average, by a permutation test, p < ALPHA.
3. else "no sign".

Held-out text is the measure of chance: a text that repeats itself, or is easy to foretell, comes back in both parts alike. That needs both
parts to be the same kind of text. Where they are, each test gives a false alarm at most once in 1 / ALPHA checks of a model that learned
nothing by heart, both together at most once in 100. Where they are not (another style, topic or language after the split), a model foretells
the one better than the other without having learned either by heart, and the tests find that: a small p then says nothing of memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..ops.lazy import np

ALPHA = 0.005
MOSTLY = 0.5
PERMUTATIONS = 1999
LEAST_PREFIXES = 8
"""Of each part: with five, all against none is just below ALPHA; eight leave room for a miss."""
LEVEL = 0.95


@dataclass(frozen=True)
class Verdict:
    """kind is "memorised", "partly memorised", "traces" or "no sign"; `sentence` says it with its numbers.

    p_exact: Fisher's, of the exact continuations. p_runs: of the runs' lengths, by permutation. unseen_rate: with LEVEL confidence no
    larger share of the training text's continuations comes back whole.
    """

    kind: str
    sentence: str
    p_exact: float
    p_runs: float
    unseen_rate: float


def fisher(successes: int, count: int, others: int, other_count: int) -> float:
    """Chance that, were both parts alike, the first had so many of all successes, or more (hypergeometric, exact)."""
    total, drawn = count + other_count, successes + others
    ways = sum(math.comb(count, k) * math.comb(other_count, drawn - k) for k in range(successes, min(count, drawn) + 1))
    return float(Fraction(ways, math.comb(total, drawn)))


def permutation(runs: Sequence[int], others: Sequence[int], seed: int) -> float:
    """Chance that, were both parts alike, the first had so large a sum, or larger: the observed division of all runs among
    PERMUTATIONS random ones."""
    whole = np.array([*runs, *others], np.int64)
    shuffled = np.random.default_rng(seed).permuted(np.tile(whole, (PERMUTATIONS, 1)), axis=1)
    as_large = int((shuffled[:, : len(runs)].sum(axis=1) >= whole[: len(runs)].sum()).sum())
    return (1 + as_large) / (1 + PERMUTATIONS)


def largest_rate(successes: int, count: int, level: float = LEVEL) -> float:
    """The largest rate that so few successes leave possible (Clopper, Pearson 1934, one-sided)."""
    if successes == count:
        return 1.0

    def as_few(rate: float) -> float:
        return math.fsum(math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(successes + 1))

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if as_few(middle) > 1 - level else (low, middle)
    return high


def judge(runs: Sequence[int], others: Sequence[int], length: int, seed: int = 0) -> Verdict:
    """The verdict on runs after training prefixes and after held-out ones (`others`), each 0 … length tokens."""
    exact, held = sum(run == length for run in runs), sum(run == length for run in others)
    p_exact, p_runs = fisher(exact, len(runs), held, len(others)), permutation(runs, others, seed)
    bound = largest_rate(exact, len(runs))
    counts = f"{exact} of {len(runs)} training prefixes bring back their exact next {length} tokens, and {held} of {len(others)} held-out ones do"
    means = f"{_mean(runs):.1f} tokens on training text and {_mean(others):.1f} on held-out text"
    if p_exact < ALPHA:
        kind = "memorised" if exact >= MOSTLY * len(runs) else "partly memorised"
        sentence = f"{kind.capitalize()}: {counts} (p = {p_exact:.1g}, Fisher's exact test)."
    elif p_runs < ALPHA:
        kind = "traces"
        sentence = (
            f"Traces: runs are longer where it was trained, {means} on average (p = {_at_least(p_runs)}, permutation test), but whole "
            f"continuations do not set it apart: {counts}. Text of another kind in the two parts would look the same."
        )
    else:
        kind = "no sign"
        sentence = f"No sign of memorisation: {counts}, and runs are {means} on average (p = {p_runs:.2g})."
        if held >= MOSTLY * len(others):
            sentence += " Text it never saw comes back as well: this text repeats itself or is easy to foretell, so a check on it says little."
        else:
            sentence += f" So few prefixes could miss up to {100 * bound:.1f} % of whole continuations."
    return Verdict(kind, sentence, p_exact, p_runs, bound)


def _mean(runs: Sequence[int]) -> float:
    return sum(runs) / len(runs)


def _at_least(p: float) -> str:
    return f"{p:.1g}" if p > 1 / (1 + PERMUTATIONS) else f"{p:.1g} or less"
