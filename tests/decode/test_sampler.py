"""The sampler: which tokens may come, how often, and that a seed repeats. Seeds are fixed, so a verdict does not change."""

import math
from itertools import pairwise

import pytest

from posttrainllm.decode.sampler import Sampler, SamplerSettings
from posttrainllm.errors import ConfigError, NonFiniteError

LOGITS = [1.0, -0.5, 2.0, 0.25, -3.0, 1.5, 0.0, -1.25]
OFF = {"temperature": 1.0, "top_k": 0}
DRAWS = 20_000


def draws(logits=LOGITS, count=DRAWS, **settings):
    sampler = Sampler(SamplerSettings(**{**OFF, **settings}))
    return [sampler.draw(logits) for _ in range(count)]


def shares(logits, temperature=1.0):
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def chi_square(tokens, expected):
    """Pearson's statistic of the counts against expected shares; tokens of share 0 must not come at all."""
    counts = [tokens.count(token) for token in range(len(expected))]
    assert all(count == 0 for count, share in zip(counts, expected, strict=True) if share == 0)
    return sum((c - len(tokens) * p) ** 2 / (len(tokens) * p) for c, p in zip(counts, expected, strict=True) if p > 0)


# 7 degrees of freedom: above 29.9 once in 10,000 honest samples.
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_shares_are_the_softmax_at_that_temperature(temperature):
    assert chi_square(draws(temperature=temperature), shares(LOGITS, temperature)) < 29.9


def test_the_chi_square_test_sees_a_wrong_temperature():
    assert chi_square(draws(temperature=1.1), shares(LOGITS, 1.0)) > 29.9
    assert chi_square(draws(temperature=0.9), shares(LOGITS, 1.0)) > 29.9


def renormalised(kept, temperature=1.0):
    all_shares = shares(LOGITS, temperature)
    total = sum(all_shares[token] for token in kept)
    return [share / total if token in kept else 0.0 for token, share in enumerate(all_shares)]


RANKED = sorted(range(8), key=lambda token: -LOGITS[token])


@pytest.mark.parametrize("k", [1, 2, 5, 8, 99])
def test_top_k_keeps_the_k_likeliest_in_their_shares(k):
    tokens = draws(top_k=k)
    assert set(tokens) == set(RANKED[:k])
    assert chi_square(tokens, renormalised(RANKED[:k])) < 29.9


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8, 0.95, 0.99])
def test_top_p_keeps_the_fewest_that_reach_the_share(p):
    tokens, all_shares, kept = draws(top_p=p), shares(LOGITS), []
    for token in RANKED:
        kept.append(token)
        if sum(all_shares[t] for t in kept) >= p:
            break
    assert set(tokens) == set(kept)
    assert chi_square(tokens, renormalised(kept)) < 29.9


@pytest.mark.parametrize("p", [0.02, 0.1, 0.3, 0.61, 0.99])
def test_min_p_keeps_those_that_likely_beside_the_first(p):
    tokens, all_shares = draws(min_p=p), shares(LOGITS)
    kept = [token for token in range(8) if all_shares[token] >= p * max(all_shares)]
    assert set(tokens) == set(kept)
    assert chi_square(tokens, renormalised(kept)) < 29.9


def test_temperature_comes_before_top_p_and_min_p():
    hot = renormalised(range(8), 3.0)
    kept = [token for token in range(8) if hot[token] >= 0.4 * max(hot)]
    assert set(draws(temperature=3.0, min_p=0.4)) == set(kept)
    assert len(kept) > sum(share >= 0.4 * max(shares(LOGITS)) for share in shares(LOGITS))


def test_all_cuts_together_keep_what_each_keeps():
    assert set(draws(top_k=4, top_p=0.9, min_p=0.2)) == {2, 5, 0}


def test_temperature_zero_takes_the_first_of_the_likeliest():
    assert draws(temperature=0, count=50) == [2] * 50
    assert draws([1.0, 3.0, 3.0], temperature=0, count=3) == [1] * 3


def test_a_seed_repeats_and_another_does_not():
    assert draws(seed=5, count=200) == draws(seed=5, count=200)
    assert len({tuple(draws(seed=seed, count=40)) for seed in range(20)}) == 20
    sampler = Sampler(SamplerSettings(seed=5))
    assert [sampler.uniform() for _ in range(3)] == [0.9798413679101445, 0.10586891218534489, 0.8638631627895343]


def test_uniform_is_uniform():
    sampler = Sampler(SamplerSettings(seed=1))
    drawn = [sampler.uniform() for _ in range(DRAWS)]
    assert all(0 <= value < 1 for value in drawn)
    assert chi_square([int(10 * value) for value in drawn], [0.1] * 10) < 33.7  # 9 degrees of freedom, 1 in 10,000
    rises = sum(a < b for a, b in pairwise(drawn))
    assert abs(rises - DRAWS / 2) < 4 * math.sqrt(DRAWS / 12), "one draw must not tell of the next"


def test_the_repetition_penalty_weakens_what_was_seen_whatever_its_sign():
    sampler = Sampler(SamplerSettings(temperature=0, repetition_penalty=4.0))
    assert sampler.draw([2.0, 1.0, -1.0], seen=[0]) == 1  # 2/4 < 1
    assert sampler.draw([-1.0, -2.0], seen=[0]) == 1  # -1·4 < -2
    assert sampler.draw([2.0, 1.0], seen=[]) == 0


def test_a_forbidden_token_never_comes_and_extremes_do_no_harm():
    assert set(draws([0.0, -math.inf, 0.0])) == {0, 2}
    assert draws([1e30, -1e30, 1e30], count=100).count(1) == 0
    assert set(draws([0.0, 1e-9], temperature=1e-300, count=50)) == {1}
    assert draws([3.0], count=5) == [0] * 5


@pytest.mark.parametrize("logits", [[math.nan, 1.0], [1.0, math.nan], [math.inf, 1.0], [-math.inf, -math.inf]])
def test_broken_logits_are_an_error_not_a_token(logits):
    for temperature in (0, 1.0):
        with pytest.raises(NonFiniteError, match="earlier save"):
            Sampler(SamplerSettings(temperature=temperature)).draw(logits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", "warm"), ("temperature", 101), ("temperature", True),
        ("top_k", -1), ("top_k", 1.5), ("top_k", True), ("top_p", 0), ("top_p", 1.01), ("top_p", None), ("min_p", 1.0),
        ("min_p", -0.1), ("repetition_penalty", 0), ("seed", 1.0), ("seed", -1), ("seed", 1 << 63),
    ],
)  # fmt: skip
def test_settings_outside_their_range_are_a_sentence(name, value):
    with pytest.raises(ConfigError, match=f"sampler: {name} is a .*came; change it"):
        SamplerSettings(**{name: value})
