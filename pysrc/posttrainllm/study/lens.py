"""What a model would say at each layer (logit lens), and what each part of it adds to that (direct logit attribution)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError, DataError
from ..ops.layernorm import EPS
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen
from .checks import position_of, whole
from .picture import bars, label, table
from .running import Run, labels_of, softmax, tokens_of
from .tuned_lens import TunedLens
from .weights import weight_async

MOST_LENS_BYTES = 64 << 20
"""Logits of layers that one pass makes; more layers take several passes."""


@dataclass(frozen=True)
class LogitLens:
    """Layers (rows: the embedding, then each block) by positions T.

    top_tokens [L+1,T,K] int32 and top_probability [L+1,T,K], likeliest first; for the token that came next: probability and rank
    [L+1,T] (0 is likeliest; -1 and NaN at the last position, after which none came). loss_nats [L+1]: mean -ln of that probability.
    """

    layers: list[str]
    tokens: object
    labels: list[str]
    top_tokens: object
    top_labels: list
    top_probability: object
    probability: object
    rank: object
    loss_nats: object

    def __str__(self) -> str:
        wide = 8
        head = " " * 12 + "".join(label(each, wide - 1).ljust(wide) for each in self.labels)
        lines = [head]
        for at, name in enumerate(self.layers):
            cells = "".join(
                (label(self.top_labels[at][t][0], wide - 2) + ("✓" if self.rank[at, t] == 0 else "")).ljust(wide) for t in range(len(self.labels))
            )
            lines.append(f"{name.ljust(12)}{cells}".rstrip())
        if len(self.labels) < 2:
            return "\n".join([*lines, "None came after this one token, so there is no loss."])
        losses = ", ".join(f"{name} {float(loss):.2f}" for name, loss in zip(self.layers, self.loss_nats))
        return "\n".join([*lines, "✓: the token that came next. Loss by layer, nats: " + losses])

    def to_dict(self) -> dict:
        """{"layers", "tokens", "labels", "top_labels", "loss_nats", "arrays": …}."""
        arrays = {"top_tokens": self.top_tokens, "rank": self.rank}
        arrays |= {name: getattr(self, name).astype(np.float32) for name in ("top_probability", "probability")}
        return {
            "layers": self.layers, "tokens": self.tokens.tolist(), "labels": self.labels, "top_labels": self.top_labels,
            "loss_nats": [float(each) for each in self.loss_nats], "arrays": arrays,
        }  # fmt: skip


def _residuals(config, mid: bool) -> list[tuple[str, str]]:
    """(row's name, engine's value) of the residual stream, from the embedding on."""
    found = [("embed", "embed")]
    for layer in range(config.layers):
        if mid:
            found.append((f"{layer} attn", f"blocks.{layer}.resid_mid"))
        found.append((f"blocks.{layer}", f"blocks.{layer}.resid_post"))
    return found


async def lens_logits_async(model, tokens, mid: bool = False):
    """(row names, logits) of each row in turn, [T,V] in float64: the stream through ln_f and the unembedding, on the engine."""
    rows = _residuals(model.config, mid)
    run = Run(model, tokens[None])
    most = max(1, MOST_LENS_BYTES // (4 * run.padded * model.config.vocabulary))
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        values = await run.values(frozenset(), tuple(value for _, value in part))
        for name, value in part:
            yield name, values[f"lens.{value}"][0].astype(np.float64)


async def tuned_logits_async(model, tokens, tuned):
    """As `lens_logits_async`, each row through its map of a TunedLens first; in NumPy."""
    if not isinstance(tuned, TunedLens):
        raise ConfigError("lens", "a TunedLens", f"{type(tuned).__name__} came", "give trainer.lens of a LensTrainer, or TunedLens.load(path)")
    tuned.require_fit(model.config)
    rows = _residuals(model.config, False)
    there = await Run(model, tokens[None]).values(frozenset(value for _, value in rows))
    gain, shift, head = [await weight_async(model, name) for name in ("ln_f.weight", "ln_f.bias", model.config.head)]
    for name, value in rows[:-1]:
        x = tuned(value, there[value][0].astype(np.float64))
        x = x - x.mean(-1, keepdims=True)
        yield name, (x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gain + shift) @ head.T
    async for name, logits in lens_logits_async(model, tokens):
        if name == rows[-1][0]:
            yield name, logits


async def logit_lens_async(model, text, top: int = 5, mid: bool = False, tuned=None) -> LogitLens:
    """`logit_lens`, for code that awaits."""
    tokens, top = _one(model, text), _top(model, top)
    rows = lens_logits_async(model, tokens, mid) if tuned is None else tuned_logits_async(model, tokens, tuned)
    after, found = tokens[1:], {name: [] for name in ("layers", "top_tokens", "top_probability", "probability", "rank")}
    async for name, logits in rows:
        shares = softmax(logits)
        best = _best(logits, top)
        own = np.take_along_axis(logits[:-1], after[:, None], 1)
        rank = np.append((logits[:-1] > own).sum(1), -1)
        true = np.append(np.take_along_axis(shares[:-1], after[:, None], 1)[:, 0], np.nan)
        for key, value in zip(found, (name, best, np.take_along_axis(shares, best, 1), true, rank)):
            found[key].append(value)
    layers = found.pop("layers")
    arrays = {name: np.stack(each) for name, each in found.items()}
    losses = -np.log(arrays["probability"][:, :-1]).mean(1) if len(after) else np.full(len(layers), np.nan)
    best = arrays["top_tokens"].astype(np.int32)
    names = [labels_of(model, rows) for rows in best]
    return LogitLens(
        layers, tokens, labels_of(model, tokens), best, names, arrays["top_probability"], arrays["probability"],
        arrays["rank"].astype(np.int32), losses,
    )  # fmt: skip


def logit_lens(model, text, top: int = 5, mid: bool = False, tuned=None) -> LogitLens:
    """What the residual stream at each layer would say next, were it the last: through ln_f and the unembedding.

    `mid` adds a row after each block's attention; with a `tuned` lens (LensTrainer) each layer's map comes first, and there are
    no such rows. Raises DataError, ConfigError, ShapeError.
    """
    return now(logit_lens_async(model, text, top, mid, tuned))


@dataclass(frozen=True)
class Contributions:
    """contribution [parts, K]: what each part adds to the logits of `targets` (K tokens) after `position`; columns sum to `logits` [K].

    Parts are token and position (the embedding), each block's attention (or its heads and their shared bias) and MLP, and ln_f's
    bias; each goes through ln_f with the scale that the whole stream had there.
    """

    position: int
    parts: list[str]
    targets: object
    target_labels: list[str]
    contribution: object
    logits: object

    def __str__(self) -> str:
        rows = [(name, *(f"{float(each):+.2f}" for each in line)) for name, line in zip(self.parts, self.contribution)]
        rows.append(("logit", *(f"{float(each):+.2f}" for each in self.logits)))
        return table(("part", *(label(each) for each in self.target_labels)), rows)

    def to_dict(self) -> dict:
        """{"position", "parts", "targets", "labels", "arrays": {"contribution", "logits"}}."""
        arrays = {"contribution": self.contribution.astype(np.float32), "logits": self.logits.astype(np.float32)}
        return {"position": self.position, "parts": self.parts, "targets": self.targets.tolist(), "labels": self.target_labels, "arrays": arrays}


async def contributions_async(model, text, position: int = -1, targets=None, heads: bool = False) -> Contributions:
    """`contributions`, for code that awaits."""
    tokens = _one(model, text)
    position = position_of(tokens, position)
    wanted = ["embed", "logits", "ln_f.mean", "ln_f.rstd", "blocks.*.mlp.out", "blocks.*.attn.result" if heads else "blocks.*.attn.out"]
    found = await Run(model, tokens[None]).read(chosen(model.config, wanted))
    there = {name: each[0, position].astype(np.float64) for name, each in found.items()}
    weight = {name: await weight_async(model, name) for name in {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias", model.config.head}}
    targets = _best(there["logits"][None], 5)[0] if targets is None else _targets(model, targets)
    directions = weight[model.config.head][targets].T
    parts = [("token", weight["wte.weight"][tokens[position]]), ("position", weight["wpe.weight"][position])]
    for layer in range(model.config.layers):
        if heads:
            parts += [(f"{layer}.{head}", each) for head, each in enumerate(there[f"blocks.{layer}.attn.result"])]
            parts.append((f"{layer} attn bias", await weight_async(model, f"blocks.{layer}.attn.proj.bias")))
        else:
            parts.append((f"{layer} attn", there[f"blocks.{layer}.attn.out"]))
        parts.append((f"{layer} mlp", there[f"blocks.{layer}.mlp.out"]))
    stream = np.stack([each for _, each in parts])
    scaled = (stream - stream.mean(1, keepdims=True)) * there["ln_f.rstd"] * weight["ln_f.weight"]
    contribution = np.concatenate([scaled, weight["ln_f.bias"][None]]) @ directions
    names = [*(name for name, _ in parts), "ln_f bias"]
    return Contributions(position, names, np.asarray(targets), labels_of(model, targets), contribution, there["logits"][targets])


def contributions(model, text, position: int = -1, targets=None, heads: bool = False) -> Contributions:
    """What each layer (with `heads`, each head) adds to the logits of `targets` (text or tokens; default the top five) after a position.

    Raises DataError.
    """
    return now(contributions_async(model, text, position, targets, heads))


@dataclass(frozen=True)
class NextToken:
    """The likeliest tokens after `position`: tokens [K], labels, probability [K], logits [K]; `by_layer` [L+1,K] their probability
    at each layer (see LogitLens), and `adds`, what each part contributes to their logits."""

    position: int
    tokens: object
    labels: list[str]
    probability: object
    logits: object
    layers: list[str]
    by_layer: object
    adds: Contributions

    def __str__(self) -> str:
        notes = [f"{100 * float(each):.1f} %" for each in self.probability]
        return "\n".join(bars([label(each) for each in self.labels], self.probability, notes))

    def to_dict(self) -> dict:
        """{"position", "labels", "layers", "parts", "arrays": …}."""
        arrays = {
            "tokens": self.tokens.astype(np.int32), "probability": self.probability.astype(np.float32), "logits": self.logits.astype(np.float32),
            "by_layer": self.by_layer.astype(np.float32), "contribution": self.adds.contribution.astype(np.float32),
        }  # fmt: skip
        return {"position": self.position, "labels": self.labels, "layers": self.layers, "parts": self.adds.parts, "arrays": arrays}


async def next_token_async(model, text, position: int = -1, top: int = 10, heads: bool = False) -> NextToken:
    """`next_token`, for code that awaits."""
    tokens, top = _one(model, text), _top(model, top)
    position = position_of(tokens, position)
    rows = [(name, logits[position]) async for name, logits in lens_logits_async(model, tokens)]
    last = rows[-1][1]
    best = _best(last[None], top)[0]
    shares = np.stack([softmax(each)[best] for _, each in rows])
    adds = await contributions_async(model, tokens, position, best, heads)
    return NextToken(position, best, labels_of(model, best), shares[-1], last[best], [name for name, _ in rows], shares, adds)


def next_token(model, text, position: int = -1, top: int = 10, heads: bool = False) -> NextToken:
    """The likeliest tokens after a position of a text (default its end), with what each layer makes of them. Raises DataError."""
    return now(next_token_async(model, text, position, top, heads))


def _one(model, text):
    tokens = tokens_of(model, text)
    if tokens.ndim != 1:
        raise DataError("study", "this is of one text", f"{len(tokens)} came", "ask for one at a time")
    return tokens


def _top(model, top: int) -> int:
    return min(whole("study", "top", top, 1), model.config.vocabulary)


def _targets(model, given):
    """Tokens that are asked about, [K]: unlike a text they may be more than the context."""
    given = list(model.tokenizer.encode(given)) if isinstance(given, str) else np.atleast_1d(np.asarray(given))
    most = model.config.context
    return np.concatenate([tokens_of(model, given[first : first + most]) for first in range(0, max(1, len(given)), most)])


def _best(logits, top: int):
    """The `top` largest of each row [T,V], largest first; of equal ones the first."""
    return np.argsort(-logits, axis=-1, kind="stable")[:, :top]
