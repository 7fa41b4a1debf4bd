"""Speculative decoding: a small model proposes tokens, the model verifies all of them in one pass (arXiv 2211.17192).

A pass over few rows costs little more than one over one row, since it is the reading of the weights that takes the time. The
pass gives the model's logits after the last token that stands and after each proposal; from the first proposal on that is
refused the rest is dropped, and the model's own token takes its place, so that every pass gives one token at least. The caches of
both models keep what stands: what was refused is written over, which costs nothing.

What comes out. Greedy: the model's own choice at each place, whatever the draft proposed. On the CPU engine, whose rows do not
depend on how many are computed together, that is byte for byte the text without a draft; also where the window moves on, since
proposals never cross a hop and a window is filled by the same passes as without. On a GPU the same holds for models whose
products take the same tile for one row as for 17, which all of the presets' do (tests/gpu/test_speculative.py): it is the same
shader over each row in the same order. Across engines there is no such promise, with or without a draft.
Sampled: a proposal x that the draft drew with probability q(x) stays with probability min(1, p(x)/q(x)), where p is the model's
distribution after the same penalty, constraint and filters; in place of a refused one comes a token by max(0, p - q). So the text
has exactly the distribution of one written without a draft, though the same seed gives another text. A draft that knows
nothing costs time only, and so does one that is larger than the model. Beside a model on a GPU a small draft is quicker on the CPU
engine: each of its passes is over one row, and a round trip to the GPU takes longer than that (docs/log.md).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .generate import window_start
from .sampler import Sampler

if TYPE_CHECKING:
    from .constrain import Guide, State

MOST_AHEAD = 16


@dataclass(frozen=True)
class Acceptance:
    """How a draft did so far: tokens that it proposed and how many of them stood, the model's passes and the tokens they gave, and the
    seconds of both. A text that stops can leave the last few of those tokens unwritten."""

    proposed: int = 0
    accepted: int = 0
    passes: int = 0
    tokens: int = 0
    draft_seconds: float = 0.0
    model_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """The share of proposals that stood; 0 before the first."""
        return self.accepted / max(1, self.proposed)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of a pass of the model: 1 without a draft, at most `ahead` + 1."""
        return self.tokens / max(1, self.passes)


class Speculation:
    """Tokens from a model, several a pass where its draft is right. Used as generate.OneByOne."""

    def __init__(self, model, draft, ahead: int, sampler: Sampler, guide: Guide | None) -> None:
        if isinstance(ahead, bool) or not isinstance(ahead, int) or not 1 <= ahead <= MOST_AHEAD:
            raise ConfigError("write", f"ahead is a whole number from 1 to {MOST_AHEAD}", f"{ahead!r} came", "change it")
        if draft.tokenizer is not model.tokenizer and draft.tokenizer.to_dict() != model.tokenizer.to_dict():
            raise ConfigError(
                "draft", "a draft has the model's tokenizer",
                f"a {_named(draft.tokenizer)} came for a model with a {_named(model.tokenizer)}",
                "train the draft with the model's tokenizer, or choose another run",
            )  # fmt: skip
        self.acceptance = Acceptance()
        self._model, self._draft, self._ahead, self._sampler, self._guide = model, draft, ahead, sampler, guide
        self._vocabulary = model.tokenizer.vocabulary
        self._ready: deque[tuple[int, Sequence[float]]] = deque()
        self._start = -1  # of the window that the last pass saw

    async def next(self, seen: list[int], state: State | None, left: int) -> tuple[int, Sequence[float]]:
        """As OneByOne.next."""
        if not self._ready:
            await self._round(seen, state, left)
        return self._ready.popleft()

    async def _round(self, seen: list[int], state: State | None, left: int) -> None:
        """One pass of the model, over as many proposals as its window and the text's length leave room for."""
        began, context = time.perf_counter(), self._model.config.context
        start = window_start(len(seen), context)
        window = seen[start:]
        room = min(self._ahead, left - 1, context - len(window)) if start == self._start else 0
        self._start = start
        proposals = await self._propose(seen, window, state, left, room) if room else []
        proposed = time.perf_counter()
        tokens = [token for token, _ in proposals]
        rows = await self._model.logits_of_async(window + tokens, len(tokens) + 1)
        accepted = self._verify(window, proposals, rows, state, left)
        before, done = self.acceptance, time.perf_counter()
        self.acceptance = Acceptance(
            before.proposed + len(tokens), before.accepted + accepted, before.passes + 1, before.tokens + len(self._ready),
            before.draft_seconds + proposed - began, before.model_seconds + done - proposed,
        )  # fmt: skip

    async def _propose(
        self, seen: list[int], window: list[int], state: State | None, left: int, room: int
    ) -> list[tuple[int, dict[int, float]]]:
        """(token, the distribution that it was drawn from) for up to `room` places; fewer where the text ends before."""
        draft, sampler, guide, found, context = self._draft, self._sampler, self._guide, [], self._draft.config.context
        seen, window = list(seen), list(window)
        for left in range(left, left - room, -1):
            if guide is not None and (state is None or guide.ended(state, left)):
                break
            logits = await draft.logits_async(seen[window_start(len(seen), context) :])
            allowed = None if guide is None else guide.allowed(state, left)
            # the penalty is of what the model sees, not of what the draft does
            shares = sampler.distribution(logits[: self._vocabulary], window, allowed)
            token = sampler.pick(shares)
            found.append((token, shares))
            seen.append(token)
            window.append(token)
            if guide is not None:
                state = guide.take(state, token, left)
        return found

    def _verify(
        self, window: list[int], proposals: list[tuple[int, dict[int, float]]], rows: list[Sequence[float]], state: State | None, left: int
    ) -> int:
        """Make the tokens of one pass ready; how many of them were proposed."""
        sampler, guide, seen = self._sampler, self._guide, list(window)
        for number, row in enumerate(rows):
            if guide is not None and (state is None or guide.ended(state, left)):
                return number  # the last proposal ends the text
            logits = row[: self._vocabulary]
            allowed = None if guide is None else guide.allowed(state, left)
            if number == len(proposals):
                self._ready.append((sampler.draw(logits, seen, allowed), logits))
                return number
            proposal, drafted = proposals[number]
            token = settled(sampler, proposal, drafted, sampler.distribution(logits, seen, allowed))
            self._ready.append((token, logits))
            if token != proposal:
                return number
            seen.append(token)
            if guide is not None:
                state = guide.take(state, token, left)
            left -= 1
        return len(proposals)


def settled(sampler: Sampler, proposal: int, drafted: dict[int, float], wanted: dict[int, float]) -> int:
    """A token distributed as `wanted`, made of one that was drawn from `drafted`: arXiv 2211.17192, appendix A.1."""
    if sampler.uniform() * drafted[proposal] < wanted.get(proposal, 0.0):
        return proposal
    rest = {token: share - drafted.get(token, 0.0) for token, share in wanted.items() if share > drafted.get(token, 0.0)}
    return sampler.pick(rest or wanted)  # nothing is left only by rounding, where both are equal


def _named(tokenizer) -> str:
    return f"{getattr(tokenizer, 'name', type(tokenizer).__name__)} tokenizer of {tokenizer.vocabulary:,} tokens"
