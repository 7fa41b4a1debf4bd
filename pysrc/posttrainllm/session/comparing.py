"""Base and tuned side by side: both continue the same prompt with the same seed, one after the other on the one model, a few tokens a
turn. Events: compare.token, compare.wrote (one a side; `last` on the one that ends it; its reason is the text's, or "stopped" as asked,
"interrupted" where the model was needed for something else, "failed").
"""

from __future__ import annotations

import time

from ..data.pairs import Template
from ..decode.generate import write_async
from ..errors import ConfigError, DeviceError
from .writing import TURN_SECONDS

SIDES = ("base", "tuned")


class Comparing:
    """The comparison in progress, if any. While the base's side is written the adapter's strength is 0."""

    def __init__(self, session) -> None:
        self._session = session
        self._how: tuple = ()
        self._side = ""
        self._pieces = None
        self._request: int | None = None
        self._began, self._tokens = 0.0, 0

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"compare.start": self._start, "compare.stop": self._stop}

    async def _start(self, identity, prompt: str, tokens: int = 200, ask: bool = False, **sampler) -> None:
        """compare.start: the sampler's settings are write.start's. ask: put the prompt as it is put where answers are learned, up to the
        end of the answer."""
        session = self._session
        session.adapters.require_rest("compare")
        if session.adapters.chosen is None:
            raise ConfigError("compare", "an adapter that is on", "there is none", "tune one, or choose one under Adapters")
        sampler["seed"] = sampler.get("seed", 1)
        if ask:
            template = Template()
            prompt, sampler["stop"] = template.ask(prompt), template.end
        session.stop_writing()
        self._how, self._request = (prompt, tokens, sampler), identity
        write_async(session.model, prompt, tokens, **sampler)  # a wrong setting is told before anything changes
        self._next("base")

    async def _stop(self, identity) -> None:
        """compare.stop."""
        self.cancel("stopped")

    def cancel(self, reason: str = "interrupted") -> None:
        """End it as it is; nothing where none goes on."""
        if self._pieces is not None:
            self._end(reason, True)

    @property
    def active(self) -> bool:
        """Whether the model stands for one side: its adapter may not count."""
        return self._pieces is not None

    def _next(self, side: str) -> None:
        prompt, tokens, sampler = self._how
        model, adapters = self._session.model, self._session.adapters
        model.strength = 0.0 if side == "base" else adapters.strength
        self._side, self._pieces = side, write_async(model, prompt, tokens, **sampler)
        self._began, self._tokens = time.perf_counter(), 0

    async def turn(self) -> bool:
        """Write for a short while; False when there is nothing to compare."""
        if self._pieces is None:
            return False
        try:
            await self._write()
        except DeviceError:
            self._tell("failed", True)
            raise  # the session looks for another engine, on which the adapter counts again
        except Exception as error:  # noqa: BLE001 - told to the person
            self._end("failed", True)
            self._session.fail(error, self._request)
        return True

    async def _write(self) -> None:
        began, text, reason = time.perf_counter(), "", None
        while reason is None and time.perf_counter() - began < TURN_SECONDS:
            piece = await anext(self._pieces)
            text += piece.text
            self._tokens, reason = piece.tokens, piece.reason
        if text:
            self._session.emit("compare.token", reply_to=self._request, side=self._side, text=text, tokens=self._tokens)
        if reason:
            self._end(reason, self._side == "tuned")

    def _end(self, reason: str, last: bool) -> None:
        """One side is over, and with the last all of it: the adapter counts again as it did."""
        session = self._session
        try:
            if last and session.model is not None and session.model.lora is not None and session.adapters.chosen is not None:
                session.model.strength = session.adapters.strength
        finally:  # also where the device does not answer any more
            self._tell(reason, last)
        if not last:
            self._next("tuned")

    def _tell(self, reason: str, last: bool) -> None:
        rate = self._tokens / max(1e-9, time.perf_counter() - self._began)
        self._pieces = None
        self._session.emit(
            "compare.wrote", reply_to=self._request, side=self._side, tokens=self._tokens, tokens_per_second=rate, reason=reason, last=last
        )
