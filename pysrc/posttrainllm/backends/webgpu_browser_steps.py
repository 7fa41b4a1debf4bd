"""Training steps in blocks on a browser's GPU: gpu_steps.mjs sends them, and keeps the rows of metrics that come back."""

from __future__ import annotations


class StepQueue:
    """Blocks of steps behind gpu_steps.mjs's Steps; see Machine.steps in base.py."""

    def __init__(self, machine, loaded, steps, nbytes: int) -> None:
        self._machine, self._loaded, self._steps, self._nbytes = machine, loaded, steps, nbytes
        self._push = steps.push

    @property
    def under_way(self) -> int:
        """Blocks that have not come back."""
        return int(self._steps.underWay)

    @property
    def step_seconds(self) -> float:
        """Seconds a step lately took; 0 while unknown."""
        return self._steps.stepMs / 1e3

    def push(self, image, count: int, bounds) -> None:
        """Send a block: `count` rows; bounds are (least, most) of its tokens and of its targets."""
        from pyodide.ffi import to_js

        machine, loaded = self._machine, self._loaded
        machine._tokens.require_bounds(loaded, bounds)
        machine._before(loaded)
        machine._call(self._push, loaded.prepared.calls, to_js(image), count)

    def poll(self) -> list[bytes]:
        """Rows that came back since the last call, in order."""
        data, size = self._machine._call(self._steps.poll).to_bytes(), self._nbytes
        return [data[at : at + size] for at in range(0, len(data), size)]

    async def landed(self) -> None:
        """Until the oldest block is back."""
        await self._machine._await(self._steps.landed())
