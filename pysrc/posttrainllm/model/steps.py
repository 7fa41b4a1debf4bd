"""Many training steps under way at once: batches go to the engine in blocks, losses come back behind them.

A block is one upload of rows, each a step's tokens, targets and recipe slot; the engine copies a row to its place before the
step and the metrics away after it, so that nothing waits for the host between steps.
"""

from __future__ import annotations

import struct

from ..compile.tape import OFFSET_MASK, address
from ..dims import ALIGN_BYTES, round_up
from ..ops.lazy import np
from .program import LOSS, METRIC_BYTES, NORM, RECIPE, Pass, pack_recipe

RECIPE_BYTES = 32


def unpack_metrics(data: bytes) -> tuple[float, float]:
    """(loss in nats, gradient norm) of the metrics region's bytes."""
    loss, norm = struct.unpack_from("<f", data, 0)[0], struct.unpack_from("<f", data, address(NORM) & OFFSET_MASK)[0]
    return loss, norm


class StepQueue:
    """Takes blocks of steps and gives their (loss, norm) in order. `under_way` blocks have not come back yet;
    step_seconds is what a step lately took (0 before the first came back); changed() is called before weights change.
    """

    def __init__(self, machine, loaded, step: Pass, changed=lambda: None) -> None:
        self._batch_bytes = step.tokens.nbytes
        self._targets_at = address(step.targets) & OFFSET_MASK
        self._recipe_at = round_up(self._targets_at + step.targets.nbytes, ALIGN_BYTES)
        self.row_bytes = self._recipe_at + ALIGN_BYTES
        parts = [(0, address(step.tokens), self._recipe_at), (self._recipe_at, address(RECIPE), RECIPE_BYTES)]
        self._ready = getattr(machine, "ready_async", None)
        self._loaded, self._changed = loaded, changed
        self._queue = machine.steps(loaded, parts, self.row_bytes, address(LOSS), METRIC_BYTES)
        self._image = bytearray()

    @property
    def under_way(self) -> int:
        """Blocks sent whose numbers have not come back."""
        return self._queue.under_way

    @property
    def step_seconds(self) -> float:
        """Seconds that a step lately took on the engine; 0 while unknown."""
        return self._queue.step_seconds

    async def ready(self) -> None:
        """To be awaited before a push: another tape may have moved a buffer since."""
        if self._ready:
            await self._ready(self._loaded)

    def push(self, tokens, targets, recipes: list[tuple[float, ...]]) -> None:
        """Send a block: int32 arrays [count, B, T] and a recipe each. Raises DeviceError; DataError for a token outside V."""
        count, size = len(recipes), self.row_bytes
        if len(self._image) < count * size:
            self._image = bytearray(count * size)
        rows = np.frombuffer(self._image, "<i4").reshape(-1, size // 4)[:count]
        words = self._batch_bytes // 4
        rows[:, :words] = tokens.reshape(count, -1)
        rows[:, self._targets_at // 4 : self._targets_at // 4 + words] = targets.reshape(count, -1)
        for number, values in enumerate(recipes):
            start = number * size + self._recipe_at
            self._image[start : start + RECIPE_BYTES] = pack_recipe(values)
        bounds = (int(tokens.min()), int(tokens.max())), (int(targets.min()), int(targets.max()))
        self._changed()
        self._queue.push(memoryview(self._image)[: count * size], count, bounds)

    def poll(self) -> list[tuple[float, float]]:
        """(loss, norm) of the steps that came back since the last call."""
        return [unpack_metrics(row) for row in self._queue.poll()]

    async def landed(self) -> list[tuple[float, float]]:
        """The same, after waiting for at least one block, where one is under way."""
        if self._queue.under_way:
            await self._queue.landed()
        return self.poll()

    async def drain(self) -> list[tuple[float, float]]:
        """The same, of all that was sent."""
        while self._queue.under_way:
            await self._queue.landed()
        return self.poll()
