"""TorchGPT: a GPT whose arithmetic is torch's, with what train/trainer.py and train/state.py ask of a live model."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable
from types import SimpleNamespace

import torch

from ..data.tokenizers import ByteTokenizer
from ..dims import product
from ..errors import ConfigError, DataError, DeviceOutOfMemoryError
from ..model.config import GPTConfig
from ..model.gpt import Layout
from ..model.saving import PLAIN, Saving
from ..model.weights import Weights
from ..waiting import now
from . import initial
from .adamw import Group, squared_norm, update
from .gathering import REGIONS, Gathering, window
from .network import IGNORED
from .ranks import Ranks
from .wrapping import PARALLEL, Wrapped

PRECISIONS = ("f32", "bf16")


def told_of_memory(call):
    """torch's out-of-memory error as this package's."""

    @functools.wraps(call)
    def wrapped(self, *arguments, **options):
        try:
            return call(self, *arguments, **options)
        except torch.OutOfMemoryError as error:
            raise DeviceOutOfMemoryError(
                "torch engine", "the device has the memory that the model and its batch need", str(error).split(". ")[0],
                "use --micro-batches, --recompute, --precision bf16, or more processes with --parallel fsdp",
            ) from error  # fmt: skip

    return wrapped


class TorchGPT(Weights):
    """A model over `ranks`, with float32 weights, gradients and AdamW moments; precision "bf16" multiplies matrices in bfloat16.

    parallel: "ddp" or "fsdp", where there are several processes. Raises ConfigError, DeviceOutOfMemoryError.
    """

    lora = None

    @told_of_memory
    def __init__(
        self, config: GPTConfig, ranks: Ranks, saving: Saving = PLAIN, precision: str = "f32", parallel: str = "ddp", threads: int | None = None
    ) -> None:
        _require(precision, PRECISIONS, "precision")
        _require(parallel, PARALLEL, "parallel")
        if saving.moments != "f32":
            raise ConfigError("torch engine", "its moments are f32", f"{saving.moments} came", "leave --moments out")
        ranks.require_fit(config, saving)
        if threads:
            torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self.config, self.ranks, self.saving, self.precision, self.parallel = config, ranks, saving, precision, parallel
        self.tokenizer = ByteTokenizer()
        self.layout = Layout.of(config)
        self.wrapped = Wrapped(config, ranks, saving, parallel)
        self._held = {"params": {p.name: self.wrapped.local(p.name) for p in self.layout.parameters}}
        for region in ("m", "v"):
            self._held[region] = {name: torch.zeros_like(local) for name, local in self._held["params"].items()}
        self._groups = [self._group(decayed) for decayed in (True, False)]
        # What Trainer, checkpoint_of and the command line read of an engine and of its plan.
        self.program = SimpleNamespace(layout=self.layout, lora=None, saving=saving, step=True, memory=self.memory)
        self.machine = SimpleNamespace(name="torch", description=self.description, precision=precision, threads=torch.get_num_threads())
        self._gathering = Gathering(self)

    def _group(self, decayed: bool) -> tuple[Group, list[str]]:
        names = [p.name for p in self.layout.parameters if p.decayed == decayed and self.held(p.name, "params").numel()]
        return Group.of(decayed, *([self.held(name, region) for name in names] for region in REGIONS)), names

    @property
    def description(self) -> str:
        """The engine in words."""
        device = torch.cuda.get_device_name(self.ranks.device) if self.ranks.device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
        many = f", {self.ranks.world} processes ({'FSDP2' if self.parallel == 'fsdp' else 'DDP'})" if self.ranks.world > 1 else ""
        return f"PyTorch {torch.__version__} on {device}{many}, {self.precision}"

    def memory(self) -> dict[str, int]:
        """Bytes that this process holds of weights, gradients and moments; what torch takes for activations is not planned."""
        nbytes = sum(4 * local.numel() for local in self._held["params"].values())
        return {"weights_bytes": nbytes, "gradients_bytes": nbytes, "moments_bytes": 2 * nbytes, "total_bytes": 4 * nbytes}

    def peak_memory_bytes(self) -> int | None:
        """The most that tensors took on this process's CUDA device; None on a CPU, where torch does not count."""
        return torch.cuda.max_memory_allocated(self.ranks.device) if self.ranks.device.type == "cuda" else None

    def held(self, name: str, region: str) -> torch.Tensor:
        """This process's part of a weight ("params") or of a moment ("m", "v"): a window on it."""
        return self._held[region][name]

    def initialise(self, seed: int) -> None:
        """Every weight's starting value from `seed`, the bits of every other engine; moments zero."""
        for stream, parameter in enumerate(self.layout.parameters):
            initial.fill(self.held(parameter.name, "params"), parameter, stream, seed, self.wrapped.first_row(parameter.name))
            for region in ("m", "v"):
                self.held(parameter.name, region).zero_()

    def _autocast(self) -> contextlib.AbstractContextManager:
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def _parts(self, tokens: bytes, targets: bytes) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], int]:
        """This process's rows of a batch [B,T] of i32 bytes in micro-batches, and how many targets count in the whole batch."""
        shape, vocabulary = (self.config.batch, self.config.context), self.config.vocabulary
        both = [torch.frombuffer(bytearray(raw), dtype=torch.int32).view(shape).long() for raw in (tokens, targets)]
        if both[0].min() < 0 or max(each.max() for each in both) >= vocabulary:
            raise DataError("torch engine", f"tokens and targets are below the vocabulary of {vocabulary}", "one is not", "check the tokenizer")
        both[1].masked_fill_(both[1] < 0, IGNORED)
        counted = int((both[1] >= 0).sum())
        rows = self.ranks.rows(self.config.batch)
        mine = [each[rows].to(self.ranks.device).chunk(self.saving.micro_batches) for each in both]
        return list(zip(*mine, strict=True)), counted

    @told_of_memory
    def step(self, tokens: bytes, targets: bytes, recipe: tuple[float, ...]) -> tuple[float, float]:
        """One training step on a batch of i32 [B,T] bytes: (mean loss in nats over all targets that count, gradient norm before clipping).

        Where they are not finite no weight has changed. Every process gives the same batch, and gets the same numbers.
        """
        parts, counted = self._parts(tokens, targets)
        self.wrapped.forget_gradients()
        total = self.wrapped.backward(parts, 1.0 / max(counted, 1), self._autocast)
        groups = [(group, [self.wrapped.gradient(name) for name in names]) for group, names in self._groups]
        squared = squared_norm([grad for _, grads in groups for grad in grads])
        if self.wrapped.sharded:
            total, squared = self.ranks.sum(torch.stack((total, squared))).unbind()
        else:
            self.ranks.sum(total)
        norm = squared.sqrt().float()
        with torch.no_grad():
            update(groups, norm, recipe)
        self.wrapped.forget_gradients()
        loss, norm = torch.stack((total / max(counted, 1), norm.double())).tolist()
        return loss, norm

    async def step_async(self, tokens: bytes, targets: bytes, recipe: tuple[float, ...]) -> tuple[float, float]:
        """`step`, as other engines have it."""
        return self.step(tokens, targets, recipe)

    @told_of_memory
    def losses(self, batches: Iterable[tuple[bytes, bytes]]) -> tuple[float, int]:
        """(Sum of losses in nats, targets that count) over batches of (tokens, targets)."""
        total, counted = torch.zeros((), dtype=torch.float64, device=self.ranks.device), 0
        with torch.no_grad(), self._autocast():
            for tokens, targets in batches:
                parts, count = self._parts(tokens, targets)
                counted += count
                for part in parts:
                    total += self.wrapped.network(*part).double().sum()
        return float(self.ranks.sum(total)), counted

    async def evaluate_batches_async(self, batches: Iterable[tuple[bytes, bytes]]) -> float:
        """Mean loss in nats over all targets that count in batches of (tokens, targets), i32 [B,T]; NaN where none does."""
        total, counted = self.losses(batches)
        return total / counted if counted else math.nan

    @told_of_memory
    def logits(self, tokens) -> memoryview:
        """Logits [V] (float32) after the last of `tokens` (1 … context of them). No cache: each call computes them all."""
        row = torch.tensor([list(tokens)], dtype=torch.int64, device=self.ranks.device)
        with torch.no_grad(), self._autocast():
            last = self.wrapped.network(row)[0, -1].float().contiguous()
        return memoryview(self.ranks.share(last).cpu().numpy())  # the leader's: all must write the same text

    async def logits_async(self, tokens) -> memoryview:
        """`logits`, as other engines have it."""
        return self.logits(tokens)

    async def prepare(self, progress=None) -> None:
        """Nothing is compiled here."""

    async def steps(self) -> None:
        """Each step is waited for."""
        return None

    async def fetch(self, regions: tuple[str, ...] | None = None) -> None:
        """A save comes: from here on weights and moments are read once, in their order."""
        self._gathering = Gathering(self, regions or REGIONS)

    @property
    def gathering(self) -> Gathering:
        """The tensors of the save under way."""
        return self._gathering

    def whole_bytes(self, region: str, name: str) -> memoryview:
        """A whole tensor's float32 bytes, in host memory; every process must ask for the same."""
        whole = self.wrapped.whole(name, self.held(name, region))
        if not self.ranks.leads:
            return memoryview(b"")
        return memoryview(whole.detach().contiguous().cpu().numpy()).cast("B")

    def weight_view(self, name: str, region: str = "params"):
        """A tensor's data for a save, read when it is written; `fetch` comes before."""
        return window(self._gathering, region, name, 4 * product(self.wrapped.parameters[name].shape))

    def weight_pieces(self, name: str) -> list[bytes]:
        """In one piece: torch has no addresses."""
        return [self.weight_bytes(name)]

    def weight_bytes(self, name: str, region: str = "params") -> bytes:
        """A weight, or a moment, as little-endian float32 bytes; every process must ask, and the leader gets it."""
        return bytes(self.whole_bytes(region, name))

    def set_weight_bytes(self, name: str, data, region: str = "params") -> None:
        """Replace a weight, or a moment."""
        whole = torch.frombuffer(bytearray(data), dtype=torch.float32).view(self.wrapped.parameters[name].shape)
        self.held(name, region).copy_(self.wrapped.part(name, whole))

    def forget_cache(self) -> None:
        """There is none."""

    def evaluate(self, tokens, count: int = 16384) -> float:
        """Mean loss in nats over fixed windows of `tokens`, about `count` tokens of them."""
        from ..data.batches import evaluation_batches

        return now(self.evaluate_batches_async(evaluation_batches(tokens, self.config.context, self.config.batch, count)))

    def close(self) -> None:
        """Let go of weights and moments."""
        self._held, self._groups, self.wrapped = {}, [], None


def _require(value: str, choices: tuple[str, ...], what: str) -> None:
    if value not in choices:
        raise ConfigError("torch engine", f"--{what} is one of {', '.join(choices)}", f"{value} came", "choose one of those")
