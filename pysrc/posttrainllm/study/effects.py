"""Ablation and patching: take a part away, or put another text's in its place, and see what that does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import ConfigError, DataError
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen
from .checks import position_of
from .picture import label, shade
from .running import Run, labels_of, tokens_of

PARTS = {  # what is changed: its address in a block, and what a map has across
    "heads": ("attn.y", "head"),
    "attention": ("attn.out", "layer"),
    "mlps": ("mlp.out", "layer"),
    "residual": ("resid_pre", "position"),
    "attention by position": ("attn.out", "position"),
    "mlps by position": ("mlp.out", "position"),
}
HOW = ("zero", "mean")
Between = Callable[[int, int], Awaitable[None]]
"""Awaited after each pass of a map with how many of all are done, for who has to see to other things; what it raises ends the map."""


@dataclass(frozen=True)
class Effect:
    """A map [L, columns] of what changing each part does: logit_difference (answer's logit less the other's, at `position`) and
    loss_nats (mean over the text's next tokens). Columns are heads, positions, or one for a whole layer.

    before: both without any change. source: with the whole second text, where one was patched from.
    """

    what: str
    how: str
    columns: list[str]
    labels: list[str]
    position: int
    answer: str
    other: str
    logit_difference: object
    loss_nats: object
    before: tuple[float, float]
    source: tuple[float, float] | None = None

    @property
    def change(self):
        """[L, columns]: the logit difference less what it was before."""
        return self.logit_difference - self.before[0]

    @property
    def loss_change(self):
        """[L, columns]: nats of loss more than before."""
        return self.loss_nats - self.before[1]

    @property
    def recovered(self):
        """[L, columns]: the share of the way from this text's logit difference to the second text's, NaN where both are the same; None
        without a second."""
        if self.source is None:
            return None
        way = self.source[0] - self.before[0]
        return self.change / way if way else np.full_like(self.change, np.nan)

    def __str__(self) -> str:
        change = self.change
        top = float(np.abs(change).max()) or 1.0
        lines = [f"{self.what}, {self.how}: {label(self.answer)} against {label(self.other)} is {self.before[0]:+.2f} before"]
        wide = max(7, *(len(label(each, 6)) + 1 for each in self.columns))
        lines.append(" " * 9 + "".join(label(each, 6).rjust(wide) for each in self.columns))
        for layer, row in enumerate(change):
            cells = "".join(f"{shade(abs(float(each)), 0.0, top)}{float(each):+.2f}".rjust(wide) for each in row)
            lines.append(f"blocks.{layer}".ljust(9) + cells)
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """{"what", "how", "columns", "labels", "position", "answer", "other", "before", "source", "arrays"}."""
        plain = {name: getattr(self, name) for name in ("what", "how", "columns", "labels", "position", "answer", "other", "before", "source")}
        return plain | {"arrays": {name: getattr(self, name).astype(np.float32) for name in ("logit_difference", "loss_nats")}}


@dataclass(frozen=True)
class _Judge:
    """Logits [B,T,V] to (logit differences [B], losses [B])."""

    tokens: object
    position: int
    answer: int
    other: int

    def __call__(self, logits):
        logits = logits.astype(np.float64)
        there = logits[:, self.position]
        if len(self.tokens) == 1:
            return there[:, self.answer] - there[:, self.other], np.full(len(logits), np.nan)
        top = logits.max(-1, keepdims=True)
        total = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
        own = np.take_along_axis(logits[:, :-1], np.broadcast_to(self.tokens[1:, None], (len(logits), len(self.tokens) - 1, 1)), 2)[..., 0]
        return there[:, self.answer] - there[:, self.other], (total[:, :-1] - own).mean(1)


def _chosen_token(model, given, default: int) -> int:
    if given is None:
        return default
    if isinstance(given, (int, np.integer)):
        return int(tokens_of(model, [int(given)])[0])
    found = tokens_of(model, given)
    if len(found) != 1:
        raise DataError("study", "answer and other are one token each", f"{given!r} is {len(found)}", "give a token's number")
    return int(found[0])


async def _logits(model, tokens):
    return (await Run(model, tokens[None]).read(chosen(model.config, "logits")))["logits"]


async def ablate_async(
    model, text, what: str = "heads", how: str = "zero", *, reference=None, position: int = -1, answer=None, other=None, between: Between | None = None
) -> Effect:
    """`ablate`, for code that awaits."""
    tokens = _text(model, text)
    kind, across = _part(what)
    if how not in HOW:
        raise ConfigError("study", f"how is one of {', '.join(HOW)}", f"{how!r} came", "choose one; patch() swaps from a second text")
    given = tokens if reference is None else tokens_of(model, reference)
    rows = given if given.ndim == 2 else given[None]
    means = {}
    if how == "mean":
        found = await Run(model, rows).read(chosen(model.config, f"blocks.*.{kind}"))
        means = {name: each.astype(np.float64).mean((0, 1)) for name, each in found.items()}

    def instead(address: str):
        return means.get(address, 0.0)

    logits = await _logits(model, tokens)
    judge = _judge(model, tokens, position, answer, other, logits, None)
    return await _map(model, tokens, what, how, kind, across, instead, judge, judge(logits), None, between)


def ablate(model, text, what: str = "heads", how: str = "zero", *, reference=None, position: int = -1, answer=None, other=None) -> Effect:
    """Take away one part at a time: zero it, or put its mean over the positions of `reference` (default the text itself) there.

    what: "heads" (a map layers × heads), "attention", "mlps" (layers), "residual", "attention by position", "mlps by position"
    (layers × positions; residual is blocks.i.resid_pre). answer and other: tokens whose logits after `position` are compared,
    default the likeliest and the next. Raises ConfigError, DataError.
    """
    return now(ablate_async(model, text, what, how, reference=reference, position=position, answer=answer, other=other))


async def patch_async(
    model, text, source, what: str = "heads", *, position: int = -1, answer=None, other=None, between: Between | None = None
) -> Effect:
    """`patch`, for code that awaits."""
    tokens, origin = _text(model, text), _text(model, source)
    if len(tokens) != len(origin):
        raise DataError("study", "both texts have as many tokens", f"{len(tokens)} and {len(origin)} came", "make them equally long")
    kind, across = _part(what)
    there = await Run(model, origin[None]).read(chosen(model.config, [f"blocks.*.{kind}", "logits"]))
    logits, from_source = await _logits(model, tokens), there.pop("logits")
    judge = _judge(model, tokens, position, answer, other, logits, from_source)
    ends = judge(logits), judge(from_source)
    return await _map(model, tokens, what, "patched", kind, across, lambda address: there[address][0], judge, *ends, between)


def patch(model, text, source, what: str = "heads", *, position: int = -1, answer=None, other=None) -> Effect:
    """Put what `source`, a text of as many tokens, has at one part at a time into the run of `text`.

    `what` as in `ablate`. answer and other: default the likeliest token after `source` and after `text` at `position` (the next
    likeliest of the text where both agree), so a part that carries the difference brings the logit difference up. `recovered`
    is 0 for nothing and 1 for the whole of it. Raises ConfigError, DataError.
    """
    return now(patch_async(model, text, source, what, position=position, answer=answer, other=other))


def _text(model, text):
    tokens = tokens_of(model, text)
    if tokens.ndim != 1:
        raise DataError("study", "this is of one text", f"{len(tokens)} came", "ask for one at a time")
    return tokens


def _part(what: str) -> tuple[str, str]:
    if not isinstance(what, str) or what not in PARTS:
        raise ConfigError("study", f"what is one of {', '.join(PARTS)}", f"{what!r} came", "choose one")
    return PARTS[what]


def _judge(model, tokens, position: int, answer, other, logits, from_source) -> _Judge:
    position = position_of(tokens, position)
    first, second = (int(each) for each in np.argsort(-logits[0, position], kind="stable")[:2])
    if from_source is not None:
        theirs = int(from_source[0, position].argmax())
        first, second = theirs, first if first != theirs else second
    answer = _chosen_token(model, answer, first)
    other = _chosen_token(model, other, second if second != answer else first)
    if answer == other:
        raise DataError("study", "answer and other are two tokens", f"{answer} came twice", "choose another")
    return _Judge(tokens, position, answer, other)


async def _map(model, tokens, what, how, kind, across, instead: Callable, judge: _Judge, before, source, between: Between | None) -> Effect:
    """One variant of the text a row of a batch: each has one part changed."""
    config, time = model.config, len(tokens)
    count = {"head": config.heads, "layer": 1, "position": time}[across]
    most = max(1, config.batch * config.context // time)
    difference, loss = np.empty((config.layers, count)), np.empty((config.layers, count))
    for layer in range(config.layers):
        address = f"blocks.{layer}.{kind}"
        for first in range(0, count, most):
            columns = range(first, min(first + most, count))
            run = Run(model, np.repeat(tokens[None], len(columns), 0))
            shape = chosen(config, address)[0].shape(config, len(columns), time)
            new, whole = np.full(shape, np.nan, np.float32), np.broadcast_to(instead(address), shape[1:])
            for row, column in enumerate(columns):
                part = {"head": np.s_[:, column], "layer": np.s_[:], "position": np.s_[column]}[across]
                new[row][part] = whole[part]
            await run.change(address, new)
            logits = (await run.read(chosen(config, "logits")))["logits"]
            difference[layer, columns.start : columns.stop], loss[layer, columns.start : columns.stop] = judge(logits)
            if between is not None:
                await between(layer * count + columns.stop, config.layers * count)
    labels = labels_of(model, tokens)
    names = labels if across == "position" else [f"h{each}" for each in range(count)] if across == "head" else ["layer"]
    pair = labels_of(model, np.array([judge.answer, judge.other]))
    ends = [None if each is None else tuple(float(part[0]) for part in each) for each in (before, source)]
    return Effect(what, how, names, labels, judge.position, *pair, difference, loss, *ends)
