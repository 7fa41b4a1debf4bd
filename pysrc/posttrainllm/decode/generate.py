"""Writing: one token after another, streamed as whole characters."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError, DataError
from ..waiting import each_now
from .sampler import Sampler, SamplerSettings

if TYPE_CHECKING:  # a text without a constraint needs none of it, and the tab's start not its time
    from .choices import Choice
    from .constrain import Constraint, Guide, State
    from .speculative import Acceptance

AHEAD = 5
"""Tokens that a draft proposes at a time: see docs/log.md, Speculative decoding."""


@dataclass(frozen=True)
class Piece:
    """A bit of text: what became readable with this token ("" inside a character), tokens so far, seconds so far.

    reason is None until the last piece: then "length", "stop", or "complete" for a text that its constraint accepts.
    choice is what the model held likely there, where that was asked for; acceptance tells of the draft's proposals so far.
    """

    text: str
    tokens: int
    seconds: float
    reason: str | None = None
    choice: Choice | None = None
    acceptance: Acceptance | None = None


def write(model, prompt: str, tokens: int = 200, **how) -> Iterator[Piece]:
    """Continue `prompt` by at most `tokens` tokens; stops before a stop string, which is not shown.

    `how` is stop, constraint, end, choices, draft, ahead, and SamplerSettings' fields: see `write_async`. Past the context the model sees the last ¾ to
    all of it: the window moves on by a quarter of the context at a time, so that most tokens need one row only (a KV cache
    holds while it stands still). Raises ConfigError or DataError at once, and NonFiniteError while writing.
    """
    return each_now(write_async(model, prompt, tokens, **how))


def write_async(
    model, prompt: str, tokens: int = 200, *, stop: tuple[str, ...] | str = (), constraint: Constraint | None = None, end: str = "model",
    choices: int = 0, draft=None, ahead: int = AHEAD, **sampler,
) -> AsyncIterator[Piece]:  # fmt: skip
    """`write` for code that awaits.

    constraint: what the text after the prompt must be (see constrain/); it is whole when it ends, unless a stop string cuts it. It
    masks the logits before the sampler's filters. end ("model", "first", "longest") tells where it ends: see constrain/guide.py.
    choices: how many of the likeliest tokens each Piece tells of (Piece.choice); 0 costs nothing.
    draft: a smaller model with the same tokenizer, which proposes `ahead` tokens (1 to 16) at a time for `model` to verify in one
    pass: the same text sooner where the sampler is greedy, else another of the very same distribution (see speculative.py).
    """
    settings = SamplerSettings(**sampler)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1_000_000:
        raise ConfigError("write", "tokens is a whole number from 1 to 1,000,000", f"{tokens!r} came", "change it")
    seen = list(model.tokenizer.encode(prompt))
    if not seen:
        raise DataError(
            "write", "a prompt of at least one character", "an empty one came", "type a word or a line break"
        )
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    guide = state = None
    if constraint is not None:
        from .constrain import Guide

        guide = Guide(constraint, end)
        state = guide.start(tokens, model.tokenizer)
    judge, text = _judge(choices), _Text(model.tokenizer.stream(), tuple(s for s in stops if s))
    if draft is None:
        source = OneByOne(model, Sampler(settings), guide)
    else:
        from .speculative import Speculation

        source = Speculation(model, draft, ahead, Sampler(settings), guide)
    return _write(source, seen, tokens, text, guide, state, judge)


def _judge(count: int):
    """(logits, token) to Piece.choice."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigError("write", "choices is a whole number, 0 for none", f"{count!r} came", "change it")
    if not count:
        return lambda logits, token: None
    from .choices import MOST, choice_of

    return lambda logits, token: choice_of(logits, token, min(count, MOST))


class OneByOne:
    """Tokens from a model, one pass each."""

    acceptance = None

    def __init__(self, model, sampler: Sampler, guide: Guide | None) -> None:
        self._model, self._sampler, self._guide = model, sampler, guide
        self._context, self._vocabulary = model.config.context, model.tokenizer.vocabulary

    async def next(self, seen: list[int], state: State | None, left: int) -> tuple[int, Sequence[float]]:
        """(the token after `seen`, the logits [V] that it was drawn from); `left` tokens may come, this one among them."""
        window = seen[window_start(len(seen), self._context) :]
        logits = (await self._model.logits_async(window))[: self._vocabulary]  # a model may have more rows than there are tokens
        allowed = None if self._guide is None else self._guide.allowed(state, left)
        return self._sampler.draw(logits, window, allowed), logits


async def _write(
    source, seen: list[int], tokens: int, text: _Text, guide: Guide | None, state: State | None, judge
) -> AsyncIterator[Piece]:
    started, count = time.perf_counter(), 0
    over = guide is not None and guide.ended(state, tokens)
    while not over:  # false at once only where the empty text is all
        left = tokens - count
        token, logits = await source.next(seen, state, left)
        if guide is not None:
            state = guide.take(state, token, left)
            if state is None:
                break
            over = guide.ended(state, left - 1)
        seen.append(token)
        count += 1
        shown, stopped = text.push(token, over or count == tokens)
        reason = "stop" if stopped else None
        if not stopped and (over or count == tokens):
            reason = "length" if guide is None else "complete"
        yield Piece(shown, count, time.perf_counter() - started, reason, judge(logits, token), source.acceptance)
        if reason:
            return
    yield Piece(text.held, count, time.perf_counter() - started, "complete", None, source.acceptance)


class _Text:
    """Tokens as text that can be shown: whole characters, and nothing that might be the beginning of a stop string."""

    def __init__(self, stream, stop: tuple[str, ...]) -> None:
        self._stream, self._stop, self.held = stream, stop, ""

    def push(self, token: int, last: bool) -> tuple[str, bool]:
        """(what can be shown now, whether a stop string came); the `last` token lets go of all."""
        self.held += self._stream.push(token)
        if last:
            self.held += self._stream.finish()
        shown, ended = _until_stop(self.held, self._stop)
        if not ended:
            keep = 0 if last else _might_begin_stop(self.held, self._stop)
            shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return shown, ended


def window_start(count: int, context: int) -> int:
    """Where the window on a text of `count` tokens begins: 0 while it fits the context, then in hops of a quarter of that.

    Keys and values of learned positions hold only while the window stands still.
    """
    hop = max(1, context // 4)
    return -(-max(0, count - context) // hop) * hop


def _until_stop(text: str, stop: tuple[str, ...]) -> tuple[str, bool]:
    found = [text.find(s) for s in stop if s in text]
    return (text[: min(found)], True) if found else (text, False)


def _might_begin_stop(text: str, stop: tuple[str, ...]) -> int:
    """How many characters at the end of `text` could be the beginning of a stop string."""
    longest = 0
    for s in stop:
        for length in range(min(len(s) - 1, len(text)), longest, -1):
            if text.endswith(s[:length]):
                longest = length
                break
    return longest
