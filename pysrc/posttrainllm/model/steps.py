"""Many training steps under way at once: batches go to the engine in blocks, losses come back behind them.

A block is one upload of rows, each a step's tokens, targets, recipe slot and, where a batch goes through in parts, their shares of the
loss; the engine copies a row to its place before the step and the metrics away after it, so that nothing waits for the host between
steps.
"""

from __future__ import annotations

from ..compile.tape import address
from ..dims import ALIGN_BYTES
from ..ops.lazy import np
from .program import LOSS, RECIPE, Pass
from .slots import dloss_of, metric_bytes, pack_recipe, shares, spread, unpack_metrics

RECIPE_BYTES = 32


def uploads(step: Pass, tokens: bytes, targets: bytes) -> list[tuple[int, bytes]]:
    """(address, bytes) of what a step needs for a batch, i32 [B,T] bytes, besides its recipe."""
    if step.parts == 1:
        return [(address(step.tokens), tokens), (address(step.targets), targets)]
    words = step.targets.offset_bytes // 4
    image, numbers = np.zeros((1, 2 * words), "<i4"), [np.frombuffer(each, "<i4")[None] for each in (tokens, targets)]
    for rows, one, at in zip(numbers, (step.tokens, step.targets), (0, words), strict=True):
        spread(rows, one, step.parts, image[:, at : at + words])
    return [(address(step.tokens), image.tobytes()), (address(dloss_of(0, step.parts)), _share_slots(numbers[1], step.parts).tobytes())]


def _share_slots(targets, parts: int):
    """float32 [count, K·64]: the slots of targets [count, …], each part's with nothing behind its number."""
    slots = np.zeros((len(targets), parts, ALIGN_BYTES // 4), "<f4")
    slots[:, :, 0] = shares(targets, parts)
    return slots.reshape(len(targets), -1)


def _share_bytes(step: Pass) -> int:
    return step.parts * ALIGN_BYTES if step.parts > 1 else 0


def row_bytes(step: Pass) -> int:
    """Bytes of a row of a block."""
    return 2 * step.targets.offset_bytes + ALIGN_BYTES + _share_bytes(step)


class StepQueue:
    """Takes blocks of steps and gives their (loss, norm) in order. `under_way` blocks have not come back yet;
    step_seconds is what a step lately took (0 before the first came back); changed() is called before weights change.
    """

    def __init__(self, machine, loaded, step: Pass, changed=lambda: None) -> None:
        self._step, self._targets_at = step, step.targets.offset_bytes
        self._recipe_at = 2 * self._targets_at
        shares_at, share_bytes = self._recipe_at + ALIGN_BYTES, _share_bytes(step)
        self.row_bytes = row_bytes(step)
        parts = [(0, address(step.tokens), self._recipe_at), (self._recipe_at, address(RECIPE), RECIPE_BYTES)]
        if share_bytes:
            parts.append((shares_at, address(dloss_of(0, step.parts)), share_bytes))
        self._ready = getattr(machine, "ready_async", None)
        self._loaded, self._changed = loaded, changed
        self._queue = machine.steps(loaded, parts, self.row_bytes, address(LOSS), metric_bytes(step.parts))
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
        rows, step = np.frombuffer(self._image, "<i4").reshape(-1, size // 4)[:count], self._step
        words = self._targets_at // 4
        spread(tokens, step.tokens, step.parts, rows[:, :words])
        spread(targets, step.targets, step.parts, rows[:, words : 2 * words])
        if step.parts > 1:
            rows[:, -step.parts * ALIGN_BYTES // 4 :] = _share_slots(targets.reshape(count, -1), step.parts).view("<i4")
        for number, values in enumerate(recipes):
            start = number * size + self._recipe_at
            self._image[start : start + RECIPE_BYTES] = pack_recipe(values)
        bounds = (int(tokens.min()), int(tokens.max())), (int(targets.min()), int(targets.max()))
        self._changed()
        self._queue.push(memoryview(self._image)[: count * size], count, bounds)

    def poll(self) -> list[tuple[float, float]]:
        """(loss, norm) of the steps that came back since the last call."""
        return [unpack_metrics(row, self._step.parts) for row in self._queue.poll()]

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
