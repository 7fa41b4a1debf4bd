"""What the command line says of memory: --memory, --micro-batches, --recompute and --moments as a Saving; and `explain --memory`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .compile.explain import Table
from .errors import ConfigError
from .model.choosing import RESERVE_BYTES, choices, choose_saving, in_words, planned, within
from .model.config import GPTConfig
from .model.held import choose_on
from .model.lora import Adapter, LoRAConfig
from .model.memory import available_bytes
from .model.saving import PLAIN, Saving
from .model.selftest import open_machine

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Asked:
    """What was asked for; None where nothing was. recompute may be "auto"."""

    micro_batches: int | None = None
    recompute: int | str | None = None
    moments: str | None = None
    memory_bytes: int | None = None

    @classmethod
    def of(cls, micro_batches: int | None, recompute: str | None, moments: str | None, memory: str | None) -> Asked:
        """From options as they are typed. Raises ConfigError."""
        if recompute is not None and recompute != "auto":
            if not re.fullmatch(r"\d{1,6}", recompute):
                raise ConfigError("train", "--recompute is a number of blocks, or auto", f"{recompute!r} came", "correct it")
            recompute = int(recompute)
        return cls(micro_batches, recompute, moments, None if memory is None else nbytes_of(memory))

    @property
    def nothing(self) -> bool:
        """Whether no option came."""
        return self == Asked()

    def plainly(self) -> Saving:
        """The Saving where nothing is left to choose (the torch engine's): raises ConfigError where it is."""
        if self.memory_bytes is not None or self.recompute == "auto":
            raise ConfigError("train", "--memory and --recompute auto plan the native engine's memory", "--engine torch came", "give numbers")
        return Saving(self.micro_batches or 1, self.recompute or 0, self.moments or "f32")

    def on(self, base, adapter: LoRAConfig | Adapter | None, how: dict, moments: str = "f32") -> Saving:
        """`saving` for an adapter on the model of a Checkpoint."""
        lora = adapter.config if isinstance(adapter, Adapter) else adapter
        return self.saving(GPTConfig.from_dict(base.config), lora, moments, how=how)

    def saving(
        self, config: GPTConfig, lora: LoRAConfig | None = None, moments: str = "f32", parts: bool = True, how: dict | None = None,
        was: Saving | None = None,
    ) -> Saving:
        """The Saving of a run. What is not given is chosen for --memory, or for the memory that the machine has; moments are the run's own.

        parts=False: the batch has to go through whole. how: device, threads, isa and precision, as GPT.on has them; a GPU is asked what it
        would hold, where there is something to choose for. was: what a run had that goes on, which it keeps where nothing else is asked for.
        Raises ConfigError, where it does not fit --memory with what would.
        """
        start, engine = Saving(moments=self.moments or moments), how or {}
        settled, device = self.micro_batches is not None or self.recompute is not None, engine.get("device")
        if was is not None and not settled and self.memory_bytes is None:
            return replace(was, moments=start.moments)
        free = self.memory_bytes is not None or not settled
        fixed = [] if free and parts and self.micro_batches is None else [self.micro_batches or 1]
        blocks = self.recompute if isinstance(self.recompute, int) else None if free or self.recompute == "auto" else 0
        if device == "webgpu" and self.memory_bytes is None and self.recompute != "auto":
            return Saving(self.micro_batches or 1, self.recompute or 0, start.moments)  # nobody says what memory a GPU has
        if device == "webgpu":
            return self._on_gpu(engine, config, lora, start=start, parts=fixed, blocks=blocks)
        limit = self.memory_bytes
        if limit is None and (free or self.recompute == "auto"):
            limit = available_bytes()
            limit = limit and limit // (2 if device == "reference" else 1)  # it keeps float64
        return choose_saving(config, lora, limit, start=start, parts=fixed, blocks=blocks)

    def _on_gpu(self, engine: dict, config: GPTConfig, lora: LoRAConfig | None, **choice) -> Saving:
        machine = open_machine("webgpu", engine.get("threads"), 0, engine.get("isa"), engine.get("precision") or "f32")
        try:
            limit = self.memory_bytes or (available_bytes() if machine.software else None)
            return choose_on(machine, config, lora, limit, **choice)
        finally:
            machine.close()


def nbytes_of(text: str) -> int:
    """Bytes of "3G", "512M", "1.5 GiB", "4000000000": K, M and G are powers of 1,024. Raises ConfigError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    nbytes = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if not nbytes:
        raise ConfigError("train", "--memory is a size: 3G, 512M or a number of bytes", f"{text!r} came", "correct it")
    return nbytes


def _least(config: GPTConfig) -> str:
    """The least that would do, in a sentence."""
    tried = [Saving(parts, blocks, moments) for parts in {1, config.batch} for blocks in (0, config.layers) for moments in ("f32", "8bit")]
    need = {moments: min((planned(config, None, each).total_bytes, in_words(each)) for each in tried if each.moments == moments) for moments in ("f32", "8bit")}
    return " ".join(
        f"The least{' with smaller moments' * (moments != 'f32')} is {nbytes + RESERVE_BYTES:,} bytes: {words}." for moments, (nbytes, words) in need.items()
    )


def tables(config: GPTConfig, asked: Asked) -> list[Table]:
    """Bytes by kind of a training step with what was asked for, and what each choice needs and costs in time."""
    try:
        saving, refused = asked.saving(config), ()
    except ConfigError as error:
        if error.code != "E-CONFIG-PLAN":
            raise
        blocks = asked.recompute if isinstance(asked.recompute, int) else 0
        saving, refused = Saving(asked.micro_batches or 1, blocks, asked.moments or "f32"), (f"It does not fit: {error}", _least(config))
    plan = planned(config, None, saving)
    kinds = tuple((kind.removesuffix("_bytes"), nbytes, f"{100 * nbytes / plan.total_bytes:.1f} %") for kind, nbytes in plan.memory.items())
    notes = (
        f"Training with {in_words(saving)}." if saving != PLAIN else "A plain step: nothing is computed twice, batches go through whole.",
        "activations: kept from the forward for the backward, and a text's keys and values; scratch: only passes through.",
        f"A limit holds the total and {RESERVE_BYTES:,} bytes beside it, kept free for tapes and for what an engine needs for itself.",
        *refused,
    )
    own = Table("Memory by kind", ("kind", "bytes", "share"), kinds, notes)
    rows = tuple(
        (each.name, each.total_bytes, f"{100 * each.extra_time:.1f} %", "yes" if each.fits else "no", in_words(each.saving))
        for each in choices(config, None, within(config, None, asked.memory_bytes if asked.memory_bytes is not None else available_bytes()))
    )
    note = ("extra time: operations beyond a plain step's. Parts of a batch cost next to none, and round sums in another order.",)
    return [own, Table("Choices", ("choice", "bytes", "extra time", "fits", "what it is"), rows, note)]
