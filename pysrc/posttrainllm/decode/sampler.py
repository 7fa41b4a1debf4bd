"""From logits to one token: repetition penalty, temperature, top-k, top-p, min-p, in that order, with a seed.

Plain Python on one row of V floats: a byte vocabulary takes well under a millisecond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ConfigError, NonFiniteError
from ..ops.normal import GOLDEN, mix


@dataclass(frozen=True)
class SamplerSettings:
    """temperature 0 is greedy; top_k 0, top_p 1, min_p 0 and repetition_penalty 1 are off."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 42

    def __post_init__(self) -> None:
        rules = (
            ("temperature", _number(self.temperature) and 0.0 <= self.temperature <= 100.0, "a number from 0 to 100"),
            ("top_k", _whole(self.top_k) and self.top_k >= 0, "a whole number, 0 for off"),
            ("top_p", _number(self.top_p) and 0.0 < self.top_p <= 1.0, "a number above 0, at most 1"),
            ("min_p", _number(self.min_p) and 0.0 <= self.min_p < 1.0, "a number from 0, below 1"),
            (
                "repetition_penalty",
                _number(self.repetition_penalty) and 0.0 < self.repetition_penalty <= 100.0,
                "a number above 0, at most 100",
            ),
            ("seed", _whole(self.seed) and 0 <= self.seed < 1 << 63, "a whole number from 0 to 2^63-1"),
        )
        for name, holds, rule in rules:
            if not holds:
                raise ConfigError("sampler", f"{name} is {rule}", f"{getattr(self, name)!r} came", "change it")


def _number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Sampler:
    """Draws tokens. Draw number n uses uniform(seed, n), so a sequence is repeated by its seed."""

    def __init__(self, settings: SamplerSettings) -> None:
        self.settings, self._draws = settings, 0

    def uniform(self) -> float:
        """The next number in [0, 1) with 53 random bits."""
        self._draws += 1
        return (mix(mix(self.settings.seed + GOLDEN) + GOLDEN * self._draws) >> 11) * 2.0**-53

    def draw(self, logits, seen=(), allowed: tuple[int, ...] | None = None) -> int:
        """One token from logits [V]; `seen` are the tokens that the repetition penalty weakens (arXiv 1909.05858).

        A logit of -inf is a token that may not come; with `allowed` (in order) all others are as good as that. Raises NonFiniteError where one is NaN or inf, or none is finite.
        """
        scores = self._scores(logits, seen, allowed)
        place = self._place(scores)
        return place if allowed is None else allowed[place]

    def distribution(self, logits, seen=(), allowed: tuple[int, ...] | None = None) -> dict[int, float]:
        """Every token that `draw` may give with its probability, likeliest first. Raises as `draw`."""
        scores = self._scores(logits, seen, allowed)
        ranked, weights = self._ranked(scores)
        if len(weights) == 1:
            places = [scores.index(ranked[0])]
        else:  # of equal ones the first comes first
            places = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[: len(weights)]
        total = math.fsum(weights)
        tokens = places if allowed is None else [allowed[place] for place in places]
        return {token: weight / total for token, weight in zip(tokens, weights) if weight}

    def pick(self, shares: dict[int, float]) -> int:
        """One token by shares, which need not add up to 1."""
        point = self.uniform() * math.fsum(shares.values())
        for token, share in shares.items():
            point -= share
            if point < 0:
                break
        return token

    def _scores(self, logits, seen, allowed: tuple[int, ...] | None) -> list[float]:
        """Logits after the penalty, of the allowed tokens only."""
        scores, penalty = list(logits), self.settings.repetition_penalty
        total = sum(scores)  # -inf where tokens may not come; inf or NaN from any such logit
        if math.isnan(total) or total == math.inf:
            raise NonFiniteError(
                "sampler", "logits are numbers", "NaN or infinity came", "the weights are broken; open an earlier save"
            )
        if penalty != 1.0:
            for token in set(seen):
                value = scores[token]
                scores[token] = value / penalty if value > 0 else value * penalty
        return scores if allowed is None else [scores[token] for token in allowed]

    def _ranked(self, scores: list[float]) -> tuple[list[float], list[float]]:
        """(scores in falling order, weights of as many of them as may come); the highest alone where the sampler is greedy."""
        settings = self.settings
        temperature = settings.temperature
        # numbers sort twice as fast as tokens by their scores
        ranked = sorted(scores, reverse=True) if temperature else [max(scores)]
        top = ranked[0]
        if top == -math.inf:
            raise NonFiniteError(
                "sampler", "an allowed token has a logit", "all of them are -infinity", "the weights are broken; open an earlier save"
            )
        if not temperature:
            return ranked, [1.0]
        weights = [math.exp((score - top) / temperature) for score in ranked[: settings.top_k or None]]
        return ranked, _cut(weights, settings.top_p, settings.min_p)

    def _place(self, scores: list[float]) -> int:
        """Where in `scores` the drawn one stands."""
        ranked, weights = self._ranked(scores)
        if self.settings.temperature == 0:
            return scores.index(ranked[0])
        point = self.uniform() * math.fsum(weights)
        rank = 0
        for weight in weights[:-1]:
            point -= weight
            if point < 0:
                break
            rank += 1
        return _at_rank(scores, ranked, rank)


def _at_rank(scores: list[float], ranked: list[float], rank: int) -> int:
    """Where in `scores` the one of that rank stands: of equal ones the first comes first."""
    score, place = ranked[rank], -1
    for _ in range(rank - ranked.index(score) + 1):
        place = scores.index(score, place + 1)
    return place


def _cut(weights: list[float], top_p: float, min_p: float) -> list[float]:
    """Keep the head of sorted weights: the fewest that reach top_p of the mass, and those at least min_p of the first."""
    if top_p < 1.0:
        goal, total = top_p * math.fsum(weights), 0.0
        for count, weight in enumerate(weights, 1):
            total += weight
            if total >= goal:
                weights = weights[:count]
                break
    if min_p > 0.0:
        weights = [weight for weight in weights if weight >= min_p * weights[0]]
    return weights
