"""Training steps in blocks on a GPU driven through wgpu-py: rows of inputs go in, rows of metrics come back behind the steps."""

from __future__ import annotations

import math
import time
from collections import deque

from .gpu.predict import BLOCK_ROWS

SUBMIT_SECONDS = 0.1
"""A submit is kept shorter than this: drivers end longer ones, and a screen waits for them."""
TOGETHER_SECONDS = 0.002
LOOK_SECONDS = 2e-4
FIRST_PARTS = 8
"""Submits of a step while nobody knows how long it takes."""


class Pace:
    """How long a step lately took, from when blocks came back; and how it is cut into submits."""

    def __init__(self) -> None:
        self.step_seconds = 0.0
        self._landed = self._began = 0.0
        self._count = 0

    def landed(self, sent: float, count: int) -> None:
        """A block of `count` steps, sent at that time, is back now. Blocks that are noticed together are counted together."""
        now = time.perf_counter()
        if now - self._landed > TOGETHER_SECONDS:
            self._began, self._count = max(sent, self._landed), 0
        self._count += count
        self.step_seconds = (now - self._began) / self._count
        self._landed = now

    @property
    def parts(self) -> int:
        """Submits a step."""
        return max(1, math.ceil(self.step_seconds / SUBMIT_SECONDS)) if self.step_seconds else FIRST_PARTS

    @property
    def steps_a_submit(self) -> int:
        """Steps in one submit, where a step needs no more than one."""
        return max(1, int(SUBMIT_SECONDS / self.step_seconds)) if self.step_seconds else 1


class Asleep:
    """In the place of wgpu-py's polling thread."""

    def get_token(self) -> Asleep:
        """What a promise would hold the thread awake with."""
        return self

    def set_done(self) -> None:
        """The promise is resolved."""


class StepQueue:
    """See Machine.steps. poll() gives rows that are back; landed() waits for the oldest block."""

    def __init__(self, machine, loaded, parts: list[tuple[int, int, int]], row_bytes: int, metrics: int, nbytes: int) -> None:
        self._machine, self._loaded, self._parts = machine, loaded, parts
        self._row_bytes, self._metrics, self._nbytes = row_bytes, metrics, nbytes
        self._feed = None
        self._free: list = []
        self._flying: deque = deque()
        self._arrived: list[bytes] = []
        self._pace = machine.pace

    @property
    def under_way(self) -> int:
        """Blocks that have not come back."""
        return len(self._flying)

    @property
    def step_seconds(self) -> float:
        """Seconds a step lately took; 0 while unknown."""
        return self._pace.step_seconds

    def push(self, image, count: int, bounds) -> None:
        """Send a block: `count` rows of row_bytes; bounds are (least, most) of its tokens and of its targets."""
        machine, loaded = self._machine, self._loaded
        machine.check_bounds(loaded, bounds)
        calls = machine.calls_of(loaded)
        if self._feed is None or self._feed.size < len(image):
            self._feed = machine._make(max(len(image), BLOCK_ROWS * self._row_bytes), "COPY_SRC COPY_DST")
        staging = self._staging(count * self._nbytes)
        sent = time.perf_counter()
        machine._call(machine._queue.write_buffer, self._feed, 0, image)
        metrics, at = machine._place(self._metrics, self._nbytes)
        places = [(start, *machine._place(address, nbytes), nbytes) for start, address, nbytes in self._parts]
        parts, bundle = self._pace.parts, self._pace.steps_a_submit
        encoder = machine._device.create_command_encoder()
        for number in range(count):
            for start, buffer, offset, nbytes in places:
                encoder.copy_buffer_to_buffer(self._feed, number * self._row_bytes + start, buffer, offset, nbytes)
            encoder = machine.encode(encoder, calls, parts)
            encoder.copy_buffer_to_buffer(metrics, at, staging, number * self._nbytes, self._nbytes)
            if (number + 1) % bundle == 0 or number + 1 == count:
                machine.submit(encoder)
                encoder = machine._device.create_command_encoder()
        self._flying.append((staging, count, self._map(staging, count * self._nbytes), sent))

    def _map(self, staging, nbytes: int):
        """Ask for a buffer's bytes. wgpu-py would wait for them on a thread of its own, and while that waits for the GPU no
        submit goes through: so it is kept asleep, and poll() and landed() look themselves.
        """
        device = self._machine._device
        poller, device._poller = device._poller, Asleep()
        try:
            return self._machine._call(staging.map_async, "READ_NOSYNC", 0, nbytes)
        finally:
            device._poller = poller

    def _staging(self, nbytes: int):
        for index, buffer in enumerate(self._free):
            if buffer.size >= nbytes:
                return self._free.pop(index)
        return self._machine._make(max(nbytes, BLOCK_ROWS * self._nbytes), "MAP_READ COPY_DST")

    def _take(self, wait: bool) -> bool:
        """Move the oldest block to the arrived rows; False when it is still under way."""
        staging, count, promise, sent = self._flying[0]
        self._machine._call(self._machine._device._poll)
        while wait and promise._state == "pending":
            time.sleep(LOOK_SECONDS)
            self._machine._call(self._machine._device._poll)
        if promise._state == "pending":
            return False
        self._machine._call(promise.sync_wait)
        data = bytes(self._machine._call(staging.read_mapped, 0, count * self._nbytes))
        staging.unmap()
        self._flying.popleft()
        self._free.append(staging)
        self._pace.landed(sent, count)
        self._arrived += [data[at : at + self._nbytes] for at in range(0, len(data), self._nbytes)]
        return True

    def poll(self) -> list[bytes]:
        """Rows that came back since the last call, in order."""
        while self._flying and self._take(wait=False):
            pass
        rows, self._arrived = self._arrived, []
        return rows

    async def landed(self) -> None:
        """Until the oldest block is back."""
        self._take(wait=True)
