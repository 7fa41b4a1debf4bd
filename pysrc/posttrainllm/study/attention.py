"""Where heads look: patterns of a text, and scores that name heads for what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ConfigError, DataError
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen
from .checks import number, text_tokens, whole
from .picture import heat, label, table
from .running import Run, labels_of, tokens_of

THRESHOLDS = {"previous": 0.4, "first": 0.6, "duplicate": 0.4, "induction": 0.4}
"""From this mean share of a head's attention on it looks like a head of that kind: several times what it has by chance there."""
MEANINGS = {
    "previous": "looks at the token before",
    "first": "looks at the first token",
    "duplicate": "looks at the same token where it stood before",
    "induction": "looks at what came after the same token before",
}
SEQUENCES, MOST_REPEATED = 4, 64


@dataclass(frozen=True)
class Patterns:
    """pattern [L,H,T,T] float64: how much each position (a row, summing to 1) takes from each before it. labels: the tokens [T]."""

    pattern: object
    tokens: object
    labels: list[str]

    def __str__(self) -> str:
        layers, heads, _, _ = self.pattern.shape
        parts = [self.picture(layer, head) for layer in range(layers) for head in range(heads)]
        return "\n\n".join(parts)

    def picture(self, layer: int, head: int) -> str:
        """One head as a heat map: a row a position, from which it looks; full is 1. Raises ConfigError."""
        layer, head = self._which(layer, head)
        rows = [label(each, 6) for each in self.labels]
        return "\n".join([f"blocks.{layer}.attn.pattern, head {head}", *heat(self.pattern[layer, head], rows, 1.0, 2)])

    def lines(self, layer: int, head: int, least: float = 0.1) -> list[tuple[int, int, float]]:
        """(from position, to position, weight) of a head wherever the weight is at least `least`: lines between tokens.
        Raises ConfigError."""
        layer, head = self._which(layer, head)
        there = self.pattern[layer, head]
        return [(int(at), int(to), float(there[at, to])) for at, to in np.argwhere(there >= number("study", "least", least))]

    def _which(self, layer, head) -> tuple[int, int]:
        layers, heads = self.pattern.shape[:2]
        return whole("study", "layer", layer, 0, layers - 1), whole("study", "head", head, 0, heads - 1)

    def to_dict(self) -> dict:
        """{"tokens", "labels", "arrays": {"pattern": float32 [L,H,T,T]}}."""
        return {"tokens": self.tokens.tolist(), "labels": self.labels, "arrays": {"pattern": self.pattern.astype(np.float32)}}


async def patterns_async(model, text) -> Patterns:
    """`patterns`, for code that awaits."""
    tokens = tokens_of(model, text)
    if tokens.ndim != 1:
        raise DataError("study", "patterns are of one text", f"{len(tokens)} came", "ask for one at a time")
    return Patterns(await _patterns(model, tokens), tokens, labels_of(model, tokens))


async def _patterns(model, tokens):
    """[L,H,T,T] of tokens [T]."""
    wanted = chosen(model.config, "blocks.*.attn.pattern")
    found = await Run(model, tokens[None]).read(wanted)
    return np.stack([found[place.address][0] for place in wanted])


def patterns(model, text) -> Patterns:
    """Attention patterns of every layer and head on a text or tokens [T]. Raises DataError."""
    return now(patterns_async(model, text))


@dataclass(frozen=True)
class HeadScores:
    """scores: kind ("previous", "first", "duplicate", "induction") to [L,H], each head's mean share of attention there, the lesser
    of two lengths of what repeats: a head that looks a fixed way back has it at one of them only.

    chance: what a head that spreads evenly over what it may see would have. `named`: (layer, head, kind, score) above the
    thresholds, layer by layer.
    """

    scores: dict[str, object]
    chance: dict[str, float]
    thresholds: dict[str, float] = field(default_factory=lambda: dict(THRESHOLDS))

    @property
    def named(self) -> list[tuple[int, int, str, float]]:
        """Heads that are of a kind: of each the kind it has most of, beyond that kind's threshold."""
        found = []
        layers, heads = next(iter(self.scores.values())).shape
        for layer in range(layers):
            for head in range(heads):
                over = {kind: float(each[layer, head]) for kind, each in self.scores.items() if each[layer, head] >= self.thresholds[kind]}
                if over:
                    kind = max(over, key=over.get)
                    found.append((layer, head, kind, over[kind]))
        return found

    def __str__(self) -> str:
        lines = []
        layers, heads = next(iter(self.scores.values())).shape
        rows = [
            (f"{layer}.{head}", *(f"{float(each[layer, head]):.2f}" for each in self.scores.values()))
            for layer in range(layers) for head in range(heads)
        ]  # fmt: skip
        rows.append(("chance", *(f"{self.chance[kind]:.2f}" for kind in self.scores)))
        lines.append(table(("head", *self.scores), rows))
        for layer, head, kind, score in self.named:
            lines.append(f"Head {layer}.{head} {MEANINGS[kind]}: {score:.2f}")
        if not self.named:
            lines.append("No head is above the thresholds.")
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """{"named": [...], "chance", "thresholds", "arrays": kind to float32 [L,H]}."""
        named = [{"layer": layer, "head": head, "kind": kind, "score": score} for layer, head, kind, score in self.named]
        arrays = {kind: each.astype(np.float32) for kind, each in self.scores.items()}
        return {"named": named, "chance": self.chance, "thresholds": self.thresholds, "arrays": arrays}


def repeated(model, sequences: int = SEQUENCES, length: int | None = None, seed: int = 0, pool=None):
    """Random tokens twice over: int32 [sequences, 2·length], each half drawn from `pool` without a repeat where it is large enough."""
    most, sequences = model.config.context // 2, whole("study", "sequences", sequences, 1)
    length = min(most, MOST_REPEATED) if length is None else whole("study", "length", length, 0)
    known = min(model.config.vocabulary, model.tokenizer.vocabulary)
    pool = np.arange(known) if pool is None else np.unique(text_tokens("study", list(model.tokenizer.encode(pool)) if isinstance(pool, str) else pool))
    if not pool.size or pool.min() < 0 or pool.max() >= known:
        raise DataError("study", f"a pool of tokens from 0 to {known - 1}", f"{pool.size} tokens came", "give a text, or tokens of the model")
    if not 2 <= length <= most:
        raise ConfigError("study", f"a half is 2 to {most} tokens (half the context)", f"{length} came", "change the length")
    rng = np.random.default_rng(whole("study", "seed", seed, 0))
    half = np.stack([rng.choice(pool, length, replace=length > len(pool)) for _ in range(sequences)])
    return np.concatenate([half, half], 1).astype(np.int32)


def _masks(time: int) -> dict[str, tuple[object, object]]:
    """Of each kind a mask [T,T] of what is looked at, and the rows that are counted."""
    half, at = time // 2, np.arange(time)
    back = at[:, None] - at[None, :]
    later = at >= half
    return {
        "previous": (back == 1, at >= 1),
        "first": ((at[None, :] == 0) & (back > 0), at >= 1),
        "duplicate": (back == half, later),
        "induction": (back == half - 1, later),
    }


async def head_scores_async(model, *, sequences: int = SEQUENCES, length: int | None = None, seed: int = 0, pool=None, thresholds=None) -> HeadScores:
    """`head_scores`, for code that awaits."""
    limits = THRESHOLDS | (thresholds or {})
    if set(limits) != set(THRESHOLDS):
        raise ConfigError("study", f"thresholds are for {', '.join(THRESHOLDS)}", f"{', '.join(set(limits) - set(THRESHOLDS))} came", "leave it out")
    limits = {kind: number("study", f"the threshold for {kind}", each) for kind, each in limits.items()}
    most = repeated(model, 1, length, seed, pool).shape[1] // 2
    scores: dict[str, object] = {}
    for size in sorted({max(2, 2 * most // 3), most}):
        pattern, time = 0.0, 2 * size
        for row in repeated(model, sequences, size, seed, pool):
            pattern = pattern + await _patterns(model, row) / sequences
        even = np.tril(np.ones((time, time))) / np.arange(1, time + 1)[:, None]
        chance = {}
        for kind, (mask, rows) in _masks(time).items():
            found = (pattern * mask).sum(-1)[..., rows].mean(-1)
            scores[kind] = np.minimum(found, scores.get(kind, 1.0))
            chance[kind] = float((even * mask).sum(-1)[rows].mean())
    return HeadScores(scores, chance, limits)


def head_scores(model, *, sequences: int = SEQUENCES, length: int | None = None, seed: int = 0, pool=None, thresholds=None) -> HeadScores:
    """What each head looks at on random tokens that come twice: the token before, the first one, the same one, what followed it.

    A repeat of random tokens can be foreseen only by looking back, so a head that looks at what came after the same token
    before is an induction head (arXiv 2209.11895, its prefix-matching score). `pool`: text or tokens to draw from, default the
    whole vocabulary. `length` of a half: default half the context, at most 64. Raises ConfigError, DataError.
    """
    return now(head_scores_async(model, sequences=sequences, length=length, seed=seed, pool=pool, thresholds=thresholds))
