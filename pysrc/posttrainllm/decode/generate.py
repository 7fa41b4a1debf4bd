"""Writing: one token after another, streamed as whole characters."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError, DataError
from ..waiting import each_now
from .sampler import Sampler, SamplerSettings

if TYPE_CHECKING:  # a text without a constraint needs none of it, and the tab's start not its time
    from .choices import Choice
    from .constrain import Constraint, Guide, State


@dataclass(frozen=True)
class Piece:
    """A bit of text: what became readable with this token ("" inside a character), tokens so far, seconds so far.

    reason is None until the last piece: then "length", "stop", or "complete" for a text that its constraint accepts.
    choice is what the model held likely there, where that was asked for.
    """

    text: str
    tokens: int
    seconds: float
    reason: str | None = None
    choice: Choice | None = None


def write(model, prompt: str, tokens: int = 200, **how) -> Iterator[Piece]:
    """Continue `prompt` by at most `tokens` tokens; stops before a stop string, which is not shown.

    `how` is stop, constraint, end, and SamplerSettings' fields: see `write_async`. Past the context the model sees the last ¾ to
    all of it: the window moves on by a quarter of the context at a time, so that most tokens need one row only (a KV cache
    holds while it stands still). Raises ConfigError or DataError at once, and NonFiniteError while writing.
    """
    return each_now(write_async(model, prompt, tokens, **how))


def write_async(
    model, prompt: str, tokens: int = 200, *, stop: tuple[str, ...] | str = (), constraint: Constraint | None = None, end: str = "model",
    choices: int = 0, **sampler,
) -> AsyncIterator[Piece]:  # fmt: skip
    """`write` for code that awaits.

    constraint: what the text after the prompt must be (see constrain/); it is whole when it ends, unless a stop string cuts it. It
    masks the logits before the sampler's filters. end ("model", "first", "longest") tells where it ends: see constrain/guide.py.
    choices: how many of the likeliest tokens each Piece tells of (Piece.choice); 0 costs nothing.
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
    return _write(model, seen, tokens, tuple(s for s in stops if s), Sampler(settings), guide, state, _judge(choices))


def _judge(count: int):
    """(logits, token) to Piece.choice."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigError("write", "choices is a whole number, 0 for none", f"{count!r} came", "change it")
    if not count:
        return lambda logits, token: None
    from .choices import MOST, choice_of

    return lambda logits, token: choice_of(logits, token, min(count, MOST))


async def _write(
    model, seen: list[int], tokens: int, stop: tuple[str, ...], sampler: Sampler, guide: Guide | None, state: State | None,
    judge,
) -> AsyncIterator[Piece]:
    started, stream, held = time.perf_counter(), model.tokenizer.stream(), ""
    context, vocabulary = model.config.context, model.tokenizer.vocabulary
    over = guide is not None and guide.ended(state, tokens)
    for count in range(1, tokens + 1):
        if over:  # only here where the empty text is all
            break
        window, left = seen[window_start(len(seen), context) :], tokens - count + 1
        logits = await model.logits_async(window)
        allowed = None if guide is None else guide.allowed(state, left)
        logits = logits[:vocabulary]  # a model may have more rows than there are tokens
        token = sampler.draw(logits, window, allowed)
        if guide is not None:
            state = guide.take(state, token, left)
            if state is None:
                break
            over = guide.ended(state, left - 1)
        seen.append(token)
        held += stream.push(token)
        last = over or count == tokens
        if last:
            held += stream.finish()
        cut, ended = _until_stop(held, stop)
        if ended:
            yield Piece(cut, count, time.perf_counter() - started, "stop", judge(logits, token))
            return
        keep = 0 if last else _might_begin_stop(held, stop)
        shown, held = held[: len(held) - keep], held[len(held) - keep :]
        reason = ("length" if guide is None else "complete") if last else None
        yield Piece(shown, count, time.perf_counter() - started, reason, judge(logits, token))
        if last:
            return
    yield Piece(held, count - 1, time.perf_counter() - started, "complete")


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
