"""The network over the processes: as it is, under DDP (each holds all of it), or under FSDP2 (each holds a share of every weight)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..model.config import GPTConfig
from ..model.saving import Saving
from .network import Network
from .ranks import Ranks

PARALLEL = ("ddp", "fsdp")


UNIT = 1 << 27
"""Parameters that FSDP2 brings together at a time, at most: each time costs the host some 3 ms a step, whatever their number (docs/log.md)."""


def blocks_together(config: GPTConfig) -> int:
    """Blocks in a unit of FSDP2; two units at least, where there are so many blocks, so that one comes while another computes."""
    c, f = config.channels, config.hidden
    return max(1, min(config.layers // 2, UNIT // (4 * c * c + 2 * c * f)))


class Wrapped:
    """network: what one calls for anything but training; parameters: its weights by address, DTensors under FSDP2."""

    def __init__(self, config: GPTConfig, ranks: Ranks, saving: Saving, parallel: str) -> None:
        self._ranks, self._parts = ranks, saving.micro_batches
        self.sharded = ranks.world > 1 and parallel == "fsdp"
        with torch.device("meta"):  # no process need ever hold a model that is to be shared out
            network = Network(config, saving.recompute)
        if self.sharded:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            self.mesh = init_device_mesh(ranks.device.type, (ranks.world,))
            for first in range(0, config.layers, each := blocks_together(config)):
                fully_shard(list(network.blocks[first : first + each]), mesh=self.mesh)
            fully_shard(network, mesh=self.mesh)
        self.network = network.to_empty(device=ranks.device)
        self.parameters = dict(self.network.named_parameters())
        self._ddp: torch.nn.Module | None = None

    def local(self, name: str) -> Tensor:
        """What this process holds of a weight: the whole of it, or its rows."""
        return _here(self.parameters[name].detach())

    def first_row(self, name: str) -> int:
        """Where its rows begin (torch.chunk's way: ceil(rows/world) each)."""
        if not self.sharded:
            return 0
        rows = self.parameters[name].shape[0]
        return min(rows, self._ranks.rank * -(-rows // self._ranks.world))

    def gradient(self, name: str) -> Tensor:
        """Of what this process holds."""
        return _here(self.parameters[name].grad)

    def whole(self, name: str, local: Tensor) -> Tensor:
        """A weight, or a moment of it, from all processes' parts `local`; every process must ask."""
        if not self.sharded:
            return local
        like = self.parameters[name]
        return DTensor.from_local(local, self.mesh, like.placements, shape=like.shape, stride=like.stride()).full_tensor()

    def part(self, name: str, whole: Tensor) -> Tensor:
        """The rows of a whole weight that this process holds."""
        first = self.first_row(name)
        return whole[first : first + self.local(name).shape[0]]

    def backward(self, parts: list[tuple[Tensor, Tensor]], scale: float, autocast: Callable[[], contextlib.AbstractContextManager]) -> Tensor:
        """Gradients of scale·(sum of all processes' losses), and this process's sum of losses, float64 [], over (tokens, targets) parts.

        Both wrappers take the mean over the processes; the losses are multiplied by their number, so that it is the sum.
        """
        total = torch.zeros((), dtype=torch.float64, device=self._ranks.device)
        for number, (tokens, targets) in enumerate(parts):
            waiting = self._ddp is not None and number < len(parts) - 1
            with self._ddp.no_sync() if waiting else contextlib.nullcontext():
                with autocast():
                    losses = self.train()(tokens, targets)
                summed = losses.sum()
                (summed * (scale * self._ranks.world)).backward()
            total += summed.detach().double()
        return total

    def train(self) -> torch.nn.Module:
        """What one calls for training. DDP is put on at the first step, when the weights are there."""
        if self._ranks.world == 1 or self.sharded:
            return self.network
        if self._ddp is None:
            where = [self._ranks.device.index] if self._ranks.device.type == "cuda" else None
            self._ddp = torch.nn.parallel.DistributedDataParallel(
                self.network, device_ids=where, gradient_as_bucket_view=True, init_sync=False
            )
        return self._ddp

    def forget_gradients(self) -> None:
        """Give their memory back."""
        for parameter in self.parameters.values():
            parameter.grad = None


def _here(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    with torch.no_grad():  # else the way back to the DTensor is prepared each time
        return tensor.to_local()
