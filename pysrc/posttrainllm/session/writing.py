"""Writing as a Session does it: a few tokens a turn, also between training steps. Events: token, wrote."""

from __future__ import annotations

import time

from ..decode.generate import write_async
from ..errors import ConfigError, DeviceError

TURN_SECONDS = 0.03


class Writing:
    """The text being written, if any."""

    def __init__(self, session) -> None:
        self._session = session
        self._pieces = None
        self._request: int | None = None
        self._started = 0.0
        self._first: float | None = None
        self._tokens = 0

    async def start(self, identity, prompt: str, tokens: int = 400, stop=(), **sampler) -> None:
        """write.start: continue a prompt with the live model; replaces what was being written."""
        model = self._session.model
        if model is None:
            raise ConfigError("write", "a model to write with", "there is none yet", "train one, or open a saved run")
        self.finish("stopped")
        texts = tuple(text for text in stop if isinstance(text, str))
        self._pieces = write_async(model, prompt, tokens, stop=texts, **sampler)
        self._request, self._started, self._first, self._tokens = identity, time.perf_counter(), None, 0

    async def stop(self, identity) -> None:
        """write.stop."""
        self.finish("stopped")

    async def turn(self) -> bool:
        """Write for a short while; False when there is nothing to write."""
        if self._pieces is None:
            return False
        await self._session.training.settle()  # or the first token waits behind the steps that are under way
        began, text, reason = time.perf_counter(), "", None
        try:
            while reason is None and time.perf_counter() - began < TURN_SECONDS:
                piece = await anext(self._pieces)
                text += piece.text
                self._tokens, reason = piece.tokens, piece.reason
                if self._first is None:
                    self._first = time.perf_counter() - self._started
        except DeviceError:
            self._pieces = None
            raise  # the session looks for another engine
        except Exception as error:  # noqa: BLE001 - told to the person; training must go on
            self._pieces = None
            self._session.fail(error, self._request)
            return True
        if text:
            self._session.emit("token", reply_to=self._request, text=text, tokens=self._tokens, tokens_per_second=self._rate())
        if reason:
            self.finish(reason)
        return True

    def _rate(self) -> float:
        return self._tokens / max(1e-9, time.perf_counter() - self._started)

    def finish(self, reason: str) -> None:
        """Say `wrote` and forget the text; nothing when none is being written."""
        if self._pieces is None:
            return
        self._pieces = None
        self._session.emit(
            "wrote", reply_to=self._request, tokens=self._tokens, tokens_per_second=self._rate(),
            first_token_seconds=self._first, reason=reason,
        )

    def cancel(self) -> None:
        """The model goes away: end the text."""
        self.finish("stopped")
