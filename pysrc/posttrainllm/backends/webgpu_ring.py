"""Loss and norm of every step, read back from a GPU without waiting for it."""

from __future__ import annotations

from collections import deque


class MetricRing:
    """`push()` after each replay keeps `nbytes` at `address` as they are then, on the GPU; every `every` pushes the rows
    start their way to the host. `poll()` gives the rows that have arrived, in order, without waiting; `drain()` waits for all.

    `slots` transfers may be under way; when all are, push() waits for the oldest. A browser that looks at finished
    transfers every 100 ms only delays rows, never the GPU.
    """

    def __init__(self, machine, address: int, nbytes: int, every: int, slots: int) -> None:
        self._machine, self._address, self.nbytes, self.every = machine, address, nbytes, every
        self._history = machine._make(nbytes * every, "COPY_SRC COPY_DST")
        self._free = deque(machine._make(nbytes * every, "MAP_READ COPY_DST") for _ in range(slots))
        self._flying: deque = deque()
        self._arrived: list[bytes] = []
        self._rows = 0

    def push(self) -> None:
        """Keep the numbers of the step just replayed."""
        machine = self._machine
        buffer, offset = machine._place(self._address, self.nbytes)
        encoder = machine._device.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, offset, self._history, self._rows * self.nbytes, self.nbytes)
        self._rows += 1
        staging = None
        if self._rows == self.every:
            staging = self._send(encoder)
        machine._call(machine._queue.submit, [encoder.finish()])
        if staging is not None:
            self._map(*staging)

    def _send(self, encoder):
        if not self._free:
            self._take(wait=True)
        staging, rows = self._free.popleft(), self._rows
        encoder.copy_buffer_to_buffer(self._history, 0, staging, 0, rows * self.nbytes)
        self._rows = 0
        return staging, rows

    def _map(self, staging, rows: int) -> None:
        mode = self._machine._wgpu.MapMode.READ
        self._flying.append((staging, rows, self._machine._call(staging.map_async, mode, 0, rows * self.nbytes)))

    def _take(self, wait: bool) -> bool:
        """Move the oldest transfer to the arrived rows; False when it is still under way."""
        staging, rows, promise = self._flying[0]
        if wait:
            self._machine._call(promise.sync_wait)
        elif staging.map_state != "mapped":
            return False
        data = bytes(self._machine._call(staging.read_mapped, 0, rows * self.nbytes))
        staging.unmap()
        self._flying.popleft()
        self._free.append(staging)
        self._arrived += [data[at : at + self.nbytes] for at in range(0, len(data), self.nbytes)]
        return True

    def poll(self) -> list[bytes]:
        """Rows that have arrived since the last call, in order."""
        while self._flying and self._take(wait=False):
            pass
        rows, self._arrived = self._arrived, []
        return rows

    def drain(self) -> list[bytes]:
        """All rows pushed and not yet given; waits for the GPU."""
        if self._rows:
            encoder = self._machine._device.create_command_encoder()
            staging = self._send(encoder)
            self._machine._call(self._machine._queue.submit, [encoder.finish()])
            self._map(*staging)
        while self._flying:
            self._take(wait=True)
        rows, self._arrived = self._arrived, []
        return rows
