"""Writing as a Session does it: a few tokens a turn, also between training steps.

Events: writing (it begins: how much of the prompt the model sees), token, wrote (its reason is the text's, or "stopped" as
asked, "interrupted" where the model goes away, "failed").
"""

from __future__ import annotations

import time
from dataclasses import asdict

from ..data.pairs import Template
from ..decode.generate import AHEAD, window_start, write_async
from ..errors import ConfigError, DeviceError, PostTrainError
from .drafts import Drafts
from .messages import finite
from .rules import Rules

TURN_SECONDS = 0.03
PLAIN_TOKENS = 24
"""Written without the draft to tell what it gains, where nothing was written without one before."""
PLAIN_SECONDS = 0.3


class Writing:
    """The text being written, if any."""

    def __init__(self, session) -> None:
        self._session = session
        self.rules, self.drafts = Rules(session), Drafts(session)
        self._pieces = None
        self._request: int | None = None
        self._started = 0.0
        self._first: float | None = None
        self._tokens = self._prompt_tokens = self._context = self._choices = 0
        self._tokenizer = None
        self._pace = Pace()
        self._plain_rate: float | None = None  # tokens a second of this model without a draft, once that was measured
        self._acceptance = None

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"write.start": self.start, "write.stop": self.stop, "write.check": self.rules.check}

    async def start(self, identity, prompt: str, tokens: int = 400, stop=(), ask: bool = False, choices: int = 0, constraint: dict | None = None,
        draft: str | None = None, ahead: int = AHEAD, **sampler) -> None:  # fmt: skip
        """write.start: continue a prompt with the live model; replaces what was being written.

        ask: put the prompt as it is put where answers are learned, up to the end of the answer. choices: how many of the likeliest tokens each token is told with (0: none, at no cost). constraint: see rules.py.
        draft: a smaller saved run with the same tokenizer, which proposes `ahead` tokens at a time (decode/speculative.py).
        """
        model = self._session.model
        if model is None:
            raise ConfigError("write", "a model to write with", "there is none yet", "train one, or open a saved run")
        self.finish("stopped")
        self._session.improving.records.writes(prompt, {"tokens": tokens} | sampler | ({"ask": True} if ask else {}))
        if ask:
            template = Template()
            prompt, stop = template.ask(prompt), (template.end, *stop)
        self._session.comparing.cancel()  # the adapter counts again
        how = {"choices": choices, "stop": tuple(text for text in stop if isinstance(text, str))}
        if constraint is not None:
            how["constraint"], how["end"] = await self.rules.compiled(constraint, model.tokenizer)
        how |= sampler
        drafted = {} if draft is None else {"draft": await self.drafts.model(draft, model), "ahead": ahead}
        pieces = write_async(model, prompt, tokens, **how, **drafted)
        if drafted and self._plain_rate is None:
            await self._measure(model, prompt, min(tokens, PLAIN_TOKENS), how)
        self._tokenizer, self._context = model.tokenizer, model.config.context
        self._prompt_tokens = len(model.tokenizer.encode(prompt))
        self._pieces, self._pace, self._acceptance, self._choices = pieces, Pace(), None, choices
        self._request, self._started, self._first, self._tokens = identity, time.perf_counter(), None, 0
        self._session.emit(
            "writing", reply_to=identity, prompt_tokens=self._prompt_tokens, context=self._context, forgotten=self._forgotten(),
            unit="byte" if model.tokenizer.name == "bytes" else "token",
        )

    async def _measure(self, model, prompt: str, tokens: int, how: dict) -> None:
        """How fast the same goes without a draft, in a moment; unknown where the text is too short to tell."""
        await self._session.job.settle()
        pace, began = Pace(), time.perf_counter()
        try:
            pieces = write_async(model, prompt, tokens, **how)
            while (await pace.next(pieces)).reason is None and time.perf_counter() - began < PLAIN_SECONDS:
                pass
        except PostTrainError:  # a rule that so few tokens cannot keep to
            pass
        self._plain_rate = pace.rate

    async def stop(self, identity) -> None:
        """write.stop."""
        self.finish("stopped")

    async def turn(self) -> bool:
        """Write for a short while; False when there is nothing to write."""
        if self._pieces is None:
            return False
        await self._session.job.settle()  # or the first token waits behind the steps that are under way
        began, text, reason, told = time.perf_counter(), "", None, []
        try:
            while reason is None and time.perf_counter() - began < TURN_SECONDS:
                piece = await self._pace.next(self._pieces)
                text += piece.text
                self._tokens, reason, self._acceptance = piece.tokens, piece.reason, piece.acceptance
                if self._choices and (piece.choice or piece.text):
                    told.append(self._told(piece))
                if self._first is None:
                    self._first = time.perf_counter() - self._started
        except DeviceError:
            self.finish("failed")
            raise  # the session looks for another engine
        except Exception as error:  # noqa: BLE001 - told to the person; training must go on
            self.finish("failed")
            self._session.fail(error, self._request)
            return True
        if text or told:
            more = self._speculation() | ({"choices": told} if told else {})
            self._session.emit(
                "token", reply_to=self._request, text=text, tokens=self._tokens, tokens_per_second=self._rate(), forgotten=self._forgotten(), **more
            )
        if reason:
            self.finish(reason)
        return True

    def _speculation(self) -> dict:
        """How the draft does so far; {} without one."""
        found = self._acceptance
        if found is None:
            return {}
        rate, plain = self._pace.rate, self._plain_rate
        return {
            "speculation": asdict(found) | {
                "acceptance": found.rate, "tokens_per_pass": found.tokens_per_pass, "tokens_per_second": rate,
                "plain_tokens_per_second": plain, "speed_up": rate / plain if rate and plain else None,
            }
        }  # fmt: skip

    def _told(self, piece) -> dict:
        """A token with what the model held likely there: ids, texts, natural logarithms of probabilities (null for none at all)."""
        from ..decode.choices import token_text

        choice, tokenizer = piece.choice, self._tokenizer
        if choice is None:  # a rule's end lets go of what might have become a stop text
            return {"text": piece.text}
        return {
            "text": piece.text, "token": choice.token, "shown": token_text(tokenizer, choice.token), "logprob_nats": finite(choice.logprob_nats),
            "rank": choice.rank, "top": [[token, token_text(tokenizer, token), finite(value)] for token, value in choice.top],
        }

    def _forgotten(self) -> int:
        """Tokens at the beginning of prompt and text that lie outside the model's window."""
        return window_start(self._prompt_tokens + self._tokens, self._context)

    def _rate(self) -> float:
        return self._tokens / max(1e-9, time.perf_counter() - self._started)

    def finish(self, reason: str) -> None:
        """Say `wrote` and forget the text; nothing when none is being written."""
        if self._pieces is None:
            return
        self._pieces = None
        self._session.emit(
            "wrote", reply_to=self._request, tokens=self._tokens, tokens_per_second=self._rate(),
            first_token_seconds=self._first, reason=reason, forgotten=self._forgotten(), **self._speculation(),
        )
        if self._acceptance is None and self._pace.tokens >= PLAIN_TOKENS:
            self._plain_rate = self._pace.rate

    def cancel(self) -> None:
        """The model goes away: end the text."""
        self.finish("interrupted")
        self.rules.forget()
        self._plain_rate = None


class Pace:
    """Tokens and the seconds that writing them took, without what else the session did meanwhile. The first token, which reads the
    prompt, does not count."""

    def __init__(self) -> None:
        self.tokens, self._seconds = 0, 0.0

    async def next(self, pieces):
        """The next piece."""
        began = time.perf_counter()
        piece = await anext(pieces)
        if self.tokens:
            self._seconds += time.perf_counter() - began
        self.tokens += 1
        return piece

    @property
    def rate(self) -> float | None:
        """Tokens a second; None before the second token."""
        return (self.tokens - 1) / self._seconds if self.tokens > 1 and self._seconds else None
