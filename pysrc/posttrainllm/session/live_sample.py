"""The sample that changes while a model learns: a small share of the time goes into it. Event: sample."""

from __future__ import annotations

import time

from ..decode.generate import write_async

SHARE = 0.06
"""Of the steps' time."""
TOKENS = 160
MOST_SECONDS = 0.5
BURST_SECONDS = 0.25
"""Where many steps are under way at once, a sample waits for them: so it writes for this long at a time."""


class LiveSample:
    """The sample being written on a job's live model, if any; `prompt` is what it begins with, 0 for `every_seconds` is never."""

    def __init__(self, session, job) -> None:
        self._session, self._job = session, job
        self.prompt, self.every_seconds = "\n", 4.0
        self._pieces, self._text, self._first = None, "", 0
        self._budget, self._next = 0.0, 0.0

    def begin(self) -> None:
        """A run begins: the first sample comes soon."""
        self._pieces, self._next, self._budget = None, 0.0, 0.3

    def drop(self) -> None:
        """Forget what was written: the model or the prompt is another."""
        self._pieces = None

    async def after_steps(self, seconds: float) -> None:
        """Steps took `seconds`: write a few tokens, or many after many steps."""
        self._budget = min(self._budget + SHARE * seconds, MOST_SECONDS)
        if self.every_seconds == 0 or time.perf_counter() < self._next:
            return
        if self._job.trainer.ahead:
            if self._budget < BURST_SECONDS:
                return
            await self._job.settle()
        if self._job.active:
            await self._write()

    async def at_the_end(self) -> bool:
        """Write a little of one sample of the finished model; True when it is whole, or there is to be none."""
        session, trainer = self._session, self._job.trainer
        if trainer is None or session.model is not trainer.model or self.every_seconds == 0:  # another model may have taken its place
            return True
        self._budget, self._next = 0.03, 0.0
        return await self._write()

    async def _write(self) -> bool:
        """Write until the budget is spent; True when the sample is whole and was sent."""
        trainer = self._job.trainer
        while self._budget > 0:
            if self._pieces is None:
                self._pieces = write_async(self._session.model, self.prompt, TOKENS, seed=trainer.settings["seed"])
                self._text, self._first = "", trainer.step
            began = time.perf_counter()
            piece = await anext(self._pieces)
            self._budget -= time.perf_counter() - began
            self._text += piece.text
            if piece.reason:
                self._session.emit("sample", first_step=self._first, step=trainer.step, prompt=self.prompt, text=self._text)
                self._pieces, self._next = None, time.perf_counter() + self.every_seconds
                return True
        return False
