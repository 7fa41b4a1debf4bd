"""What a model held likely where it wrote a token: that token's log-probability and those of the likeliest ones, for a page to show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import nlargest

from ..data.symbols import shown

MOST = 50


@dataclass(frozen=True)
class Choice:
    """A token that was written: id, its log-probability in nats (-inf where it has none), its rank (0 is the likeliest), and `top`,
    the likeliest tokens as (id, log-probability), likeliest first.

    They are the model's own, of all tokens of the vocabulary: before temperature, filters, penalty and constraint.
    """

    token: int
    logprob_nats: float
    rank: int
    top: tuple[tuple[int, float], ...]


def choice_of(logits, token: int, count: int) -> Choice:
    """The choice of `token` where the model gave `logits` [V]; `count` of the likeliest tokens are named."""
    scores = list(logits)
    highest = max(scores)
    total = highest + math.log(math.fsum(math.exp(score - highest) for score in scores))
    score = scores[token]
    best = nlargest(count, range(len(scores)), key=scores.__getitem__)  # of equal ones the first, as a sampler takes them
    return Choice(token, score - total, sum(each > score for each in scores), tuple((each, scores[each] - total) for each in best))


def token_text(tokenizer, token: int) -> str:
    """A token as a person reads it: bytes that are no whole character as \\xNN."""
    return shown(tokenizer.tokens[token] if hasattr(tokenizer, "tokens") else bytes((token,)))
