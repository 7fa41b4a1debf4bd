"""Keeping a GPU busy: blocks of steps are sent before the ones under way have come back."""

from __future__ import annotations

import math
import time
from collections import deque

from ..errors import NonFiniteError
from .reports import Report
from .schedule import recipe

BLOCK_SECONDS = 0.06
"""What a block should take: short enough that pausing feels immediate, long enough that the host's share is small."""
AHEAD_SECONDS = 0.2
"""Work sent ahead: more than the 100 ms at which a browser may look for finished work."""
LARGEST_BLOCK = 64
MOST_BLOCKS = 6
MOST_SKIPPED = 24
"""Steps in a row that half precision may skip: the loss scale is halved at each, so after these it is the model that is at fault."""


class Ahead:
    """Sends a Trainer's steps to a StepQueue and turns what comes back into its reports."""

    def __init__(self, trainer, queue) -> None:
        self._trainer, self._queue = trainer, queue
        self._sent = trainer.step
        self._block = 1
        self._rates: deque[float] = deque()
        self._cursors: deque[tuple[int, dict]] = deque()  # (first step, cursor before it) of the blocks under way
        self._failed: NonFiniteError | None = None
        self._skipped = 0  # in a row
        self._landed = time.perf_counter()
        self.host_seconds = 0.0
        """Seconds spent here on sending steps and on what came back: what Python costs."""
        if hasattr(trainer.model.machine, "reset_guard"):
            trainer.model.machine.reset_guard()

    async def advance(self, stop: int) -> list[Report]:
        """Send what there is room for, up to step `stop`, and report what is back. Raises NonFiniteError."""
        queue = self._queue
        if self.stuck:
            if queue.under_way:
                return await self.settle()
            self._failed = self._trainer.non_finite(math.inf, math.inf)
        if self._failed:
            await self.settle()
            raise self._failed
        if not queue.under_way and self._sent == self._trainer.step:
            self._landed = time.perf_counter()  # evaluating and sampling are not the step's time
        await queue.ready()
        while self._sent < stop and self._room():
            self._send(stop)
        rows = queue.poll()
        if not rows and (self._sent >= stop or not self._room()):
            rows = await queue.landed()
        return self._reports(rows)

    @property
    def stuck(self) -> bool:
        """Whether half precision skipped so many steps in a row that the scale cannot be the reason."""
        return self._skipped > MOST_SKIPPED

    async def settle(self) -> list[Report]:
        """Wait for all that was sent."""
        return self._reports(await self._queue.drain())

    def _room(self) -> bool:
        step_seconds, under_way = self._queue.step_seconds, self._queue.under_way
        if not under_way or not step_seconds:
            return not under_way
        return under_way < 2 or (under_way < MOST_BLOCKS and (self._sent - self._trainer.step) * step_seconds < AHEAD_SECONDS)

    def _send(self, stop: int) -> None:
        began, step_seconds, trainer = time.perf_counter(), self._queue.step_seconds, self._trainer
        if step_seconds:
            fitting = max(1, min(LARGEST_BLOCK, int(BLOCK_SECONDS / step_seconds)))
            self._block = min(fitting, 2 * self._block)
        count = min(self._block, stop - self._sent)
        self._cursors.append((self._sent, trainer.batches.cursor))
        recipes = [recipe(step, trainer.settings) for step in range(self._sent + 1, self._sent + count + 1)]
        self._queue.push(*trainer.batches.block(count), recipes)
        self._rates.extend(values[0] for values in recipes)
        self._sent += count
        self.host_seconds += time.perf_counter() - began

    def _reports(self, rows: list[tuple[float, float]]) -> list[Report]:
        at, trainer, reports = time.perf_counter(), self._trainer, []
        seconds = (at - self._landed) / len(rows) if rows else 0.0
        for loss, norm in rows:
            rate = self._rates.popleft()
            if self._failed:
                continue  # sent behind the bad step: its update was not made
            if not (math.isfinite(loss) and math.isfinite(norm)):
                if trainer.may_skip:
                    self._skipped += 1
                    reports.append(trainer.skip())
                else:
                    self._failed = trainer.non_finite(loss, norm)
                continue
            self._skipped = 0
            reports.append(trainer.record(loss, norm, rate, seconds))
        if rows:
            self._landed = at
        while len(self._cursors) > 1 and self._cursors[1][0] <= trainer.step:
            self._cursors.popleft()
        if self._failed and self._sent > trainer.step and not self._queue.under_way:
            self._rewind()
        self.host_seconds += time.perf_counter() - at
        return reports

    def _rewind(self) -> None:
        """The batches again as they were before the bad step."""
        trainer, (first, cursor) = self._trainer, self._cursors[0]
        trainer.batches = trainer.batches_at(cursor)
        if trainer.step > first:
            trainer.batches.block(trainer.step - first)
        self._sent = trainer.step
