"""GPT: a model that is alive on an engine: its weights, its tapes, and what one can ask of it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..backends.base import Machine
from ..compile.tape import address
from ..data.batches import evaluation_batches
from ..data.tokenizers import ByteTokenizer
from ..errors import ConfigError
from .adapted import Adapted
from .choosing import choose_saving
from .config import GPTConfig
from .exchange import Exchange
from .held import choose_on, require_room, split
from .memory import RESERVE_BYTES, available_bytes, need_bytes, require_fit  # noqa: F401 - the session imports the reserve from here
from ..waiting import now
from .past import Past
from .program import DLOSS, LOSS, RECIPE, SEED, Pass, Program, pack_recipe
from .saving import PLAIN, Saving
from .selftest import open_machine
from .slots import metric_bytes, unpack_metrics
from .steps import StepQueue, uploads
from .weights import Weights


class GPT(Adapted, Exchange, Weights):
    """A GPT with weights on a Machine.

    Make one with `create` (new weights from a seed) or `load` (a saved run). `training=True` also takes memory for
    gradients, AdamW's moments and a training step's activations. What it does with an adapter is in adapted.py.
    """

    def __init__(self, config: GPTConfig, machine: Machine, program: Program) -> None:
        self.config, self.machine, self.program = config, machine, program
        self.tokenizer = ByteTokenizer()
        self._expect(program)
        machine.allocate(program.region_bytes())
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        self._loaded: dict[int, object] = {}
        self._prepared = False
        self.changes = 0
        self._past = Past(self, self._ready, self._download)
        if program.lora is not None:
            self.strength = 1.0

    @classmethod
    def create(
        cls,
        model: str | GPTConfig = "medium",
        *,
        seed: int = 42,
        device: str = "auto",
        threads: int | None = None,
        precision: str = "f32",
        tokenizer=None,
        training: bool = True,
        memory_bytes: int | None = None,
        saving: Saving | None = None,
    ) -> GPT:
        """A new model: a preset's name or a GPTConfig, weights from `seed`; its vocabulary is the tokenizer's where one is given.

        With memory_bytes training takes no more than that: the cheapest Saving is chosen that fits (model/choosing.py), with moments as
        `saving` has them; without, `saving` is taken as it is.
        Raises ConfigError (also where it does not fit the memory there is), DeviceError, SelfTestError.
        """
        config = GPTConfig.preset(model) if isinstance(model, str) else model
        if tokenizer is not None:
            config = replace(config, vocabulary=tokenizer.vocabulary)
        saving, machine = _saving(saving), None
        _require_bytes(memory_bytes)
        if memory_bytes is not None and training:
            saving, machine = _within(memory_bytes, config, saving, device, threads, precision)
        made = cls.on(Program(config, training, saving=saving), device, threads, precision=precision, machine=machine)
        made.tokenizer = tokenizer or made.tokenizer
        made.initialise(seed)
        return made

    @classmethod
    def on(
        cls, program: Program, device: str = "auto", threads: int | None = None, isa: str | None = None, precision: str = "f32", machine=None
    ) -> GPT:
        """The program's model on a new machine (or on this one, which nothing is on), with weights all zero. Raises as `create`."""
        if device != "webgpu":
            require_fit(program, available_bytes(), 2 if device == "reference" else 1)
        machine = machine or open_machine(device, threads, need_bytes(program), isa, precision)
        try:
            if device == "webgpu":
                require_room(program, machine)
            return cls(program.config, machine, program)
        except BaseException:
            machine.close()
            raise

    @classmethod
    def load(
        cls, path, *, device: str = "auto", threads: int | None = None, training: bool = False, memory_bytes: int | None = None,
        saving: Saving | None = None,
    ) -> GPT:
        """The model of a saved run: a .safetensors file or a run's folder. `training=True` brings AdamW's moments too.

        It then saves memory as the run did, or as `saving` says; or, with memory_bytes, in the cheapest way that fits, with moments as
        `saving` or the run has them. Raises DataError, FormatError, StoreError, DeviceError; ConfigError where nothing fits.
        """
        from ..train.files import opened  # a layer above, as generate's decode is: a convenience of the public API
        from ..train.moments import kind_of
        from ..train.state import model_of

        saving = None if saving is None else _saving(saving)
        _require_bytes(memory_bytes)
        with opened(path) as checkpoint:
            if memory_bytes is not None and training:
                start = saving or Saving(moments=kind_of(checkpoint))
                saving, machine = _within(memory_bytes, GPTConfig.from_dict(checkpoint.config), start, device, threads)
                if machine is not None:
                    machine.close()
            return model_of(checkpoint, training, device=device, threads=threads, saving=saving)

    def save(self, path) -> int:
        """Write weights, config and tokenizer as one .safetensors file; returns its bytes. Raises StoreError.

        A run that is to go on later is saved through train.state.checkpoint_of; an adapter through its own `save`.
        """
        if self.lora is not None:
            raise ConfigError("save", "a plain model", "one with an adapter came", "save model.adapter, or model.merged()")
        from pathlib import Path

        from ..train.files import write_checkpoint
        from ..train.state import weights_checkpoint

        return write_checkpoint(weights_checkpoint(self, Path(path).stem), path)

    def initialise(self, seed: int) -> None:
        """Give every weight that is trained its starting value from `seed` (0 … 2^63-1), and AdamW's moments zero."""
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
            raise ConfigError("model", "seed is a whole number from 0 to 2^63-1", f"{seed!r} came", "change it")
        self.forget_cache()
        self.machine.upload(address(SEED), struct.pack("<Q", seed))
        self.run(self.program.initial)

    async def prepare(self, progress=None) -> None:
        """Choose kernels and compile what training needs before its first step: progress(done, all) is called as pipelines come.

        Engines that compile nothing return at once; on a browser's GPU this must be awaited before plain calls.
        """
        if self._prepared:
            return
        self._prepared = True
        if hasattr(self.machine, "options") and self.program.step is not None:
            from ..backends.gpu.tuning import tune

            await tune(self.machine, [self.program.step.tape])
        if hasattr(self.machine, "load_all_async"):
            passes = [each for each in (self.program.initial, self.program.step, self.program.evaluation) if each is not None]
            for each, loaded in zip(passes, await self.machine.load_all_async([each.tape for each in passes], progress), strict=True):
                self._loaded[id(each)] = loaded

    async def _ready(self, each: Pass):
        """The pass, loaded and prepared for the buffers as they are."""
        loaded = self._loaded.get(id(each))
        if not hasattr(self.machine, "ready_async"):
            if loaded is None:
                loaded = self._loaded[id(each)] = self.machine.load(each.tape)
        elif loaded is None:
            loaded = self._loaded[id(each)] = (await self.machine.load_all_async([each.tape]))[0]
        else:
            await self.machine.ready_async(loaded)
        return loaded

    async def run_async(self, each: Pass) -> None:
        """Replay one of the program's passes; its tape is checked and loaded at first use."""
        self.machine.replay(await self._ready(each))

    def run(self, each: Pass) -> None:
        """`run_async`, from plain code."""
        now(self.run_async(each))

    async def _download(self, place: int, nbytes: int) -> bytes:
        machine = self.machine
        return await machine.download_async(place, nbytes) if hasattr(machine, "download_async") else machine.download(place, nbytes)

    async def read_async(self, each: Pass, name: str) -> memoryview:
        """An output of a pass after it ran, as float32."""
        return memoryview(await self._download(*each.address(name))).cast("f")

    def read(self, each: Pass, name: str) -> memoryview:
        """`read_async`, from plain code."""
        return now(self.read_async(each, name))

    # Training steps

    def _training(self) -> Pass:
        if self.program.step is None:
            raise ConfigError("model", "a model made for training", "one made for writing only came", "create it with training=True")
        return self.program.step

    async def step_async(self, tokens: bytes, targets: bytes, recipe: tuple[float, ...]) -> tuple[float, float]:
        """Train on one batch of i32 [B,T] bytes; returns (loss in nats, gradient norm before clipping)."""
        step = self._training()
        return unpack_metrics(await self.replay_step_async(step, tokens, targets, recipe), step.parts)

    async def replay_step_async(
        self, step: Pass, tokens: bytes, targets: bytes, recipe: tuple[float, ...], nbytes: int | None = None
    ) -> bytes:
        """Replay a tape that changes weights on a batch; returns the metrics, from LOSS on (of a step of its own so many bytes)."""
        loaded = await self._ready(step)
        self.machine.upload(address(RECIPE), pack_recipe(recipe))
        for place, data in uploads(step, tokens, targets):
            self.machine.upload(place, data)
        self.forget_cache()
        self.machine.replay(loaded)
        return await self._download(address(LOSS), metric_bytes(step.parts) if nbytes is None else nbytes)

    def make_trainable(self) -> None:
        """Take memory for gradients, moments and a step in a model that was made for writing only. Raises DeviceOutOfMemoryError."""
        if self.program.step is None:
            self._become(Program(self.config, True, self.lora, self.program.saving), self.lora)

    def make_room(self, each: Pass) -> None:
        """Let the engine's memory hold a tape that is none of the program's. Raises DeviceOutOfMemoryError, the model unchanged."""
        need, held = each.plan.region_bytes, self.program.region_bytes()
        if any(nbytes > held[region] for region, nbytes in need.items()):
            self.machine.allocate(need)
            self._loaded = {}  # what was loaded may know where memory was

    def step(self, tokens: bytes, targets: bytes, recipe: tuple[float, ...]) -> tuple[float, float]:
        """`step_async`, from plain code."""
        return now(self.step_async(tokens, targets, recipe))

    async def steps(self) -> StepQueue | None:
        """Where many steps may be under way at once (a GPU): what takes them. None on an engine that does a step at a time."""
        if not hasattr(self.machine, "steps"):
            return None
        step = self._training()
        loaded = await self._ready(step)
        return StepQueue(self.machine, loaded, step, self.forget_cache)

    @property
    def loaded_step(self):
        """The training step's tape as the engine loaded it; None before its first use."""
        return self._loaded.get(id(self.program.step))

    async def evaluate_async(self, tokens, count: int = 16384) -> float:
        """Mean loss in nats over fixed windows of `tokens`, about `count` tokens of them. Does not depend on the batch."""
        return await self.evaluate_batches_async(evaluation_batches(tokens, self.config.context, self.config.batch, count))

    async def losses_async(self, tokens: bytes, targets: bytes) -> memoryview:
        """The loss of every position of a batch (i32 [B,T] bytes) in nats, float32 [B·T]; 0 where the target does not count."""
        each, found = self.program.evaluation, []
        size = each.tokens.nbytes  # of all rows, or of one part of a batch
        for start in range(0, len(tokens), size):
            self.machine.upload(address(each.tokens), tokens[start : start + size])
            self.machine.upload(address(each.targets), targets[start : start + size])
            await self.run_async(each)
            found.append(await self.read_async(each, "losses"))
        return found[0] if len(found) == 1 else memoryview(b"".join(found)).cast("f")

    async def evaluate_batches_async(self, batches: Iterable[tuple[bytes, bytes]]) -> float:
        """Mean loss in nats over all targets that count in batches of (tokens, targets), i32 [B,T]; NaN where none does."""
        total, counted = [], 0
        for inputs, targets in batches:
            total.extend(await self.losses_async(inputs, targets))
            counted += sum(target >= 0 for target in memoryview(targets).cast("i"))  # a tab on the CPU has no numpy
        return math.fsum(total) / counted if counted else math.nan

    def evaluate(self, tokens, count: int = 16384) -> float:
        """`evaluate_async`, from plain code."""
        return now(self.evaluate_async(tokens, count))

    async def logits_async(self, tokens) -> memoryview:
        """Logits [V] (float32) after the last of `tokens` (1 … context of them).

        Keys and values of tokens that were seen before, from the first on, are in the cache: only the others are computed.
        """
        return (await self._past.logits(tokens))[0]

    async def logits_of_async(self, tokens, last: int) -> list[memoryview]:
        """The same after each of the `last` of `tokens`, in their order: all continuations of a draft at once."""
        return await self._past.logits(tokens, last)

    def forget_cache(self, changed: bool = True) -> None:
        """To be called by whoever changes weights: keys and values in the cache are of the weights before. `changes` counts the calls
        but those that say that the weights themselves stay (changed=False)."""
        self.changes += changed
        self._past.forget()

    @property
    def cached_tokens(self) -> list[int]:
        """The text whose keys and values stand in the cache."""
        return self._past.tokens

    def logits(self, tokens) -> memoryview:
        """`logits_async`, from plain code."""
        return now(self.logits_async(tokens))

    def logits_of(self, tokens, last: int) -> list[memoryview]:
        """`logits_of_async`, from plain code."""
        return now(self.logits_of_async(tokens, last))

    async def fetch(self, regions: tuple[str, ...] | None = None) -> None:
        """Bring regions where plain code can read them (weight_bytes, weight_view) until the next step; without any named what a
        save needs, weights that are trained and their moments.

        Only a browser's GPU has anything to do here.
        """
        if hasattr(self.machine, "fetch_async"):
            params_from = 0 if regions else self.program.layout.frozen_bytes
            wanted = [each for each in regions or ("params", "m", "v") if self.program.region_bytes().get(each)]
            await self.machine.fetch_async(wanted, params_from)

    def memory(self) -> dict[str, int]:
        """Bytes by kind (weights, gradients, moments, activations, scratch, other, total) that the engine holds for this model."""
        return split(self.program, self.machine.memory()) if hasattr(self.machine, "memory") else self.program.memory()

    def generate(self, prompt: str, tokens: int = 200, **how) -> str:
        """Text that continues `prompt`; see decode.generate.write for the sampler's settings."""
        from ..decode.generate import write

        return "".join(piece.text for piece in write(self, prompt, tokens, **how))

    def close(self) -> None:
        """Give the engine's memory and threads back; the model cannot be used after."""
        self._loaded = {}
        self._past.close()
        self.machine.close()


def _saving(asked) -> Saving:
    if asked is not None and not isinstance(asked, Saving):
        raise ConfigError("saving", "it is a Saving, as pt.Saving(recompute=1)", f"{asked!r} came", "use pt.Saving.from_dict for a table")
    return asked or PLAIN


def _within(nbytes: int, config: GPTConfig, start: Saving, device: str, threads: int | None, precision: str = "f32"):
    """(what is chosen so that training takes no more than that, the GPU that was asked what it would hold, or None)."""
    machine = open_machine(device, threads, 0, None, precision) if device == "webgpu" else None
    chosen = choose_saving if machine is None else partial(choose_on, machine)
    return chosen(config, None, nbytes, start=start), machine


def _require_bytes(nbytes) -> None:
    if nbytes is not None and (isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 1):
        raise ConfigError("model", "memory_bytes is a whole number of bytes from 1 on", f"{nbytes!r} came", "give it as 3 * 2**30")
