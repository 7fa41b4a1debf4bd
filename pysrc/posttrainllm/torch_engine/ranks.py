"""The processes of one run: torchrun's, or this one alone. What one of them finds out, all must act on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ConfigError, DeviceUnavailableError, PostTrainError
from ..model.config import GPTConfig
from ..model.saving import Saving


@dataclass(frozen=True)
class Ranks:
    """world processes, of which this is number `rank`, on `device`. Alone, nothing is sent anywhere."""

    world: int
    rank: int
    device: torch.device

    @classmethod
    def open(cls, device: str) -> Ranks:
        """Join the processes that torchrun started, or be the only one. device: "auto" (CUDA where there is one), "cuda" or "cpu".

        Raises DeviceUnavailableError.
        """
        cuda = torch.cuda.is_available()
        if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not cuda):
            came = f"{device} came{'' if cuda else ', and torch finds no CUDA device'}"
            raise DeviceUnavailableError("torch engine", "it runs on cpu, or on cuda where torch finds one", came, "use --device auto")
        cuda = cuda and device != "cpu"
        world, rank, local = (int(os.environ.get(name, default)) for name, default in
                              (("WORLD_SIZE", 1), ("RANK", 0), ("LOCAL_RANK", 0)))  # fmt: skip
        if cuda and local >= torch.cuda.device_count():
            rule = f"every process has a CUDA device of its own, and there are {torch.cuda.device_count()}"
            raise DeviceUnavailableError("torch engine", rule, f"process {local} came", "start fewer, or add --device cpu")
        where = torch.device("cuda", local) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(where)
        if world > 1:
            dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", **({"device_id": where} if cuda else {}))
        return cls(world, rank, where)

    def close(self) -> None:
        """Leave the others."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this is the process that reads, saves and prints."""
        return self.rank == 0

    def rows(self, batch: int) -> slice:
        """This process's rows of a batch; all of them together are the batch."""
        each = batch // self.world
        return slice(self.rank * each, (self.rank + 1) * each)

    def require_fit(self, config: GPTConfig, saving: Saving) -> None:
        """Raise ConfigError where the batch cannot be split over processes and micro-batches."""
        saving.require_fit(config)
        parts = self.world * saving.micro_batches
        if config.batch % parts:
            raise ConfigError(
                "torch engine",
                f"the batch divides evenly over {self.world} processes x {saving.micro_batches} micro-batches = {parts} parts",
                f"a batch of {config.batch} came",
                "use another number of processes or of --micro-batches, or start a run with a --batch that is a multiple",
            )

    def sum(self, numbers: torch.Tensor) -> torch.Tensor:
        """Each number summed over the processes, in place."""
        if self.world > 1:
            dist.all_reduce(numbers)
        return numbers

    def share(self, tensor: torch.Tensor) -> torch.Tensor:
        """The leader's tensor, in place of everyone's."""
        if self.world > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def first(self, do: Callable[[], Any], tell: Callable[[Any], Any] = lambda _: None) -> Any:
        """Let the leader do something: its result there, on the others tell(result), which must be small and picklable.

        An error of the package that comes to the leader comes to all; `was_told` tells the others that it is his to print.
        """
        if self.world == 1:
            return do()
        result, message = None, [None]
        if self.leads:
            try:
                result = do()
                message = [(True, tell(result))]
            except PostTrainError as error:
                dist.broadcast_object_list([(False, error)], 0)
                raise
        dist.broadcast_object_list(message, 0)
        well, said = message[0]
        if not well:
            said.told = True
            raise said
        return result if self.leads else said

    def agree(self, number: int, seconds: float) -> tuple[int, float]:
        """(The largest of all processes' numbers, the leader's time): one small message, which never touches a GPU."""
        if self.world == 1:
            return number, seconds
        both = torch.tensor([float(number), seconds if self.leads else 0.0], dtype=torch.float64)
        dist.all_reduce(both, dist.ReduceOp.MAX)
        return int(both[0]), float(both[1])


def was_told(error: PostTrainError) -> bool:
    """Whether the leader met this error, and says it."""
    return getattr(error, "told", False)


class Pulse:
    """What every process does alike before a step: stop where one of them was asked to, and read the leader's clock."""

    def __init__(self, ranks: Ranks, interrupt) -> None:
        self._ranks, self._interrupt = ranks, interrupt
        self._seconds = ranks.agree(0, time.perf_counter())[1]

    def asked(self) -> str:
        """As Interrupt.asked, of all processes."""
        number, self._seconds = self._ranks.agree(self._interrupt.number, time.perf_counter())
        if number:  # else one that came meanwhile would be lost: it counts before the next step
            self._interrupt.number = number
        return "stop" if number else ""

    def clock(self) -> float:
        """The leader's time at the last `asked`; alone, the time."""
        return self._seconds if self._ranks.world > 1 else time.perf_counter()
