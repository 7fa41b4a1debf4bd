"""Tapes of study's own on a model's engine, whose values stand behind the KV cache: a region that no other pass looks at there."""

from __future__ import annotations

from ..compile import Graph, Value, place, record
from ..compile.tape import address
from ..dims import ALIGN_BYTES, round_up
from ..ops.lazy import np
from ..waiting import begun
from .weights import fetched, load_all


class Beside:
    """Values by name, and graphs that become tapes at their first use, in single precision on every engine."""

    def __init__(self, model, machine=None) -> None:
        """machine: another than the model's, which nobody else uses, where that one has no room."""
        self._machine = machine or model.machine
        self._end = 0 if machine else round_up(model.program.region_bytes()["cache"], ALIGN_BYTES)
        self.values: dict[str, Value] = {}
        self._plans: list = []
        self._tapes: list = []
        self._loaded: list = []

    def add_values(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Make room for arrays, which stay where they are between tapes."""
        for name, shape in shapes.items():
            made = self.values[name] = Value(name, shape, "f32", "cache", self._end)
            self._end = round_up(self._end + made.nbytes, ALIGN_BYTES)

    def zero(self, graph: Graph, *names: str) -> None:
        """Append: these become zero, so that kernels may add to them."""
        for name in names:
            graph.call("fill", {"N": self.values[name].nbytes // 4}, (0.0,), x=self.values[name])

    def add_graphs(self, *graphs: Graph) -> None:
        """The graphs that `replay` names by number."""
        self._plans = [place(graph) for graph in graphs]
        self._tapes = [record(plan) for plan in self._plans]

    async def ready(self) -> None:
        """Make room and load the tapes, or prepare them again where a GPU's buffers have moved."""
        machine = self._machine
        machine.allocate({"cache": self._end, "arena": max(plan.region_bytes["arena"] for plan in self._plans)})
        if not self._loaded:
            self._loaded = await load_all(machine, self._tapes)
        elif hasattr(machine, "ready_async"):
            for each in self._loaded:
                await machine.ready_async(each)

    def upload(self, **arrays) -> None:
        """Put arrays into values of these names."""
        for name, array in arrays.items():
            self._machine.upload(address(self.values[name]), np.ascontiguousarray(array, "<f4").tobytes())

    def replay(self, which: int) -> None:
        """Run a graph's tape; `ready` first."""
        self._machine.replay(self._loaded[which])

    async def fetch(self, *values: Value | str) -> list:
        """Arrays (float32) of values, by name or of a graph just run."""
        asked = []
        for value in values:
            value = self.values[value] if isinstance(value, str) else value
            asked.append(begun(fetched(self._machine, address(value), value.nbytes, value.shape)))
        return [np.asarray(await answer, np.float32) for answer in asked]
