"""A live model with a low-rank adapter: take one on, slide its strength, swap it, take it off, merge it.

The adapter stands behind the base in the flat buffer of weights, so one model holds one at a time; others wait on the host, and
one of the same shape (rank and targets) takes its place by one upload. Training changes the adapter alone.
"""

from __future__ import annotations

import math
import struct

from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT, address
from ..dims import ALIGN_BYTES, ELEMENT_BYTES, product, round_up
from ..errors import ConfigError, DeviceError
from ..waiting import now
from .gpt import STRENGTH
from .lora import Adapter, LoRAConfig, sites, sizes_of
from .program import Program, merging
from .weights import require_finite

_PARAMS = REGIONS.index("params") << REGION_SHIFT


class Adapted:
    """What a GPT does with an adapter. The plain methods are for code that need not wait; a browser's GPU needs the others."""

    _strength, _adapter_name, _base_sha256 = 1.0, "adapter", ""

    @property
    def lora(self) -> LoRAConfig | None:
        """The adapter's settings; None in a plain model."""
        return self.program.lora

    @property
    def adapter(self) -> Adapter | None:
        """`adapter_async`, from plain code."""
        return now(self.adapter_async())

    async def adapter_async(self) -> Adapter | None:
        """A copy of the adapter as it is now; None in a plain model."""
        if self.lora is None:
            return None
        layout, weights = self.program.layout, {}
        tail = await self._download(_PARAMS | layout.frozen_bytes, layout.total_bytes - layout.frozen_bytes)
        for parameter in layout.trainable:
            start = layout.offsets_bytes[parameter.name] - layout.frozen_bytes
            weights[parameter.name] = bytes(tail[start : start + product(parameter.shape) * ELEMENT_BYTES])
        return Adapter(self._adapter_name, self.lora, sizes_of(self.config), await self.base_sha256_async(), weights)

    @property
    def strength(self) -> float:
        """How much of the adapter counts: 0 gives the base's very logits, 1 is as trained. It may be set at any time."""
        return self._strength

    @strength.setter
    def strength(self, value: float) -> None:
        self._require_adapter()
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ConfigError("lora", "strength is a number", f"{value!r} came", "use 0 to 1")
            slot = struct.pack("<f", self.lora.scaling * value)
        except OverflowError as error:
            rule = f"strength · {self.lora.scaling:g}, the adapter's scaling, is a number that float32 has"
            raise ConfigError("lora", rule, f"strength {value:.3g} came" if isinstance(value, float) else "a larger one came", "use 0 to 1") from error
        self._strength = float(value)
        self.forget_cache(changed=False)
        self.machine.upload(address(STRENGTH), slot)

    async def base_sha256_async(self) -> str:
        """Hash of the weights without the adapter's, as store.checkpoint.weights_sha256 of the base's run."""
        if self.lora is None or not self._base_sha256:
            await self.fetch(("params",))
            found = self.weights_sha256(None if self.lora is None else [p.name for p in self.program.layout.frozen])
            if self.lora is None:
                return found  # a plain model's weights may change at any step
            self._base_sha256 = found
        return self._base_sha256

    def base_sha256(self) -> str:
        """`base_sha256_async`, from plain code."""
        return now(self.base_sha256_async())

    async def attach_async(
        self, what: LoRAConfig | Adapter, *, training: bool = True, seed: int = 42, name: str = "adapter", any_base: bool = False
    ) -> None:
        """Take an adapter on, in place: the base's weights stay where they are, and gradients and moments are the adapter's alone
        (an engine that had room for more keeps it: a model made for writing has none).

        A LoRAConfig begins a new one, which changes no logit yet, from `seed`. Strength becomes 1. The moments of a run of the base are
        lost: save it before. Raises ConfigError where an Adapter does not fit (any_base: only its sizes must), and DeviceError (as
        DeviceOutOfMemoryError): weights and tapes are then as they were, and on a GPU, which gives their room up first, the moments
        are zero.
        """
        base = await self.base_sha256_async()
        lora = what.config if isinstance(what, Adapter) else what
        if isinstance(what, Adapter):
            what.require_fit(self.config, "" if any_base else base)
        program = self.program
        if lora.shape != (program.lora and program.lora.shape) or training != (program.step is not None):
            program = Program(self.config, training, lora, program.saving)
        self._become(program, lora)
        await self._ready(program.initial)  # so that what follows need not wait in a browser either
        self.begin_adapter(what, seed, base, name)

    def attach(self, what: LoRAConfig | Adapter, **how) -> None:
        """`attach_async`, from plain code."""
        now(self.attach_async(what, **how))

    def begin_adapter(self, what: LoRAConfig | Adapter, seed: int | None, base_sha256: str, name: str = "adapter") -> None:
        """Give the place for an adapter its weights, with zero moments, at strength 1, on a base whose hash is known.

        A new one starts from `seed`; with None it is left to a later `initialise`.
        """
        self._base_sha256, self._adapter_name = base_sha256, what.name if isinstance(what, Adapter) else name
        if seed is not None:
            self.initialise(seed)
        if isinstance(what, Adapter):
            self._upload(what)
        self.strength = 1.0

    async def swap_async(self, adapter: Adapter, *, any_base: bool = False) -> None:
        """Put another adapter in the place of this one, at the same strength. The same shape is one upload; another gets new tapes.

        The one that was there is lost unless `adapter` was read before. Moments become zero. Raises as `attach_async`.
        """
        self._require_adapter()
        strength = self._strength
        if adapter.config.shape == self.lora.shape:
            adapter.require_fit(self.config, "" if any_base else await self.base_sha256_async())
            self.program.lora, self._adapter_name = adapter.config, adapter.name
            if self.program.step is not None:
                await self._ready(self.program.initial)
                self.initialise(0)
            self._upload(adapter)
        else:
            await self.attach_async(adapter, training=self.program.step is not None, any_base=any_base)
        self.strength = strength

    def swap(self, adapter: Adapter, **how) -> None:
        """`swap_async`, from plain code."""
        now(self.swap_async(adapter, **how))

    async def detach_async(self, *, training: bool = False) -> Adapter:
        """Take the adapter off, in place, and return it: what is left is the base, bit for bit. Moments of the base (training=True) are zero."""
        self._require_adapter()
        adapter = await self.adapter_async()
        self._become(Program(self.config, training, saving=self.program.saving), None)
        if training:
            nbytes = self.program.region_bytes()["m"]
            for region in ("m", "v"):
                self.machine.upload(REGIONS.index(region) << REGION_SHIFT, bytes(nbytes))
        return adapter

    def detach(self, **how) -> Adapter:
        """`detach_async`, from plain code."""
        return now(self.detach_async(**how))

    async def merge_async(self) -> Adapter:
        """Work the adapter into the base's weights at the present strength, in place, and return it. The model is then a plain one.

        Raises NumericsError where the adapter's weights are not finite (the model is as it was), or what would come of them (it is then
        of no more use).
        """
        self._require_adapter()
        adapter, rank = await self.adapter_async(), self.lora.rank
        require_finite(f"merge {adapter.name}", adapter.weights.items())
        each = merging(self.config, self.lora)
        self.machine.allocate(each.plan.region_bytes)
        rows = (struct.pack(f"<{rank}f", *(float(column == row) for column in range(rank))) for row in range(rank))
        self.machine.upload(each.address("identity")[0], b"".join(rows))
        await self.run_async(each)
        for name in sorted({f"{site.linear}.weight" for site in sites(self.config, self.lora)}):
            require_finite(f"merge {adapter.name}", [(name, await self._download(*self.weight_address(name)))])
        await self.detach_async()
        return adapter

    def merge(self) -> Adapter:
        """`merge_async`, from plain code."""
        return now(self.merge_async())

    async def merged_async(self, machine=None) -> GPT:  # noqa: F821 - the class that this is mixed into
        """A plain model of its own, on `machine` or another one of this kind, with the adapter worked into its weights."""
        self._require_adapter()
        made = await lora_async(self, adapter=await self.adapter_async(), training=False, machine=machine)
        made.strength = self._strength
        await made.merge_async()
        return made

    def merged(self, machine=None) -> GPT:  # noqa: F821
        """`merged_async`, from plain code."""
        return now(self.merged_async(machine))

    def _require_adapter(self) -> None:
        if self.lora is None:
            raise ConfigError("lora", "a model with an adapter", "a plain one came", "make one with posttrainllm.lora(model)")

    def _become(self, program: Program, lora: LoRAConfig | None) -> None:
        """Go on with other tapes on the same base."""
        if program is not self.program:
            need, trims = program.region_bytes(), hasattr(self.machine, "trim")
            self._expect(program)
            try:
                if trims:
                    self.machine.trim({region: need[region] for region in ("grads", "m", "v")})
                self.machine.allocate(need)
            except DeviceError:
                self._loaded = {}  # what was loaded may know where memory was
                self._expect(self.program)
                if trims:
                    self.machine.allocate(self.program.region_bytes())  # what was given up, as zeros
                raise
            self.program, self._loaded, self._prepared = program, {}, False
        self.program.lora, self._base_sha256 = lora, ""
        self.forget_cache()

    def _expect(self, program: Program) -> None:
        """Tell an engine whose buffers may be too small for a region which tapes come: it cuts regions between their values."""
        if hasattr(self.machine, "expect"):
            self.machine.expect([each.tape for each in program.passes()])

    def _upload(self, adapter: Adapter) -> None:
        """All of an adapter's weights in one go, as the layout has them."""
        layout = self.program.layout
        tail = bytearray(layout.total_bytes - layout.frozen_bytes)
        for parameter in layout.trainable:
            start, data = layout.offsets_bytes[parameter.name] - layout.frozen_bytes, adapter.weights[parameter.name]
            tail[start : start + round_up(len(data), ALIGN_BYTES)] = data.ljust(round_up(len(data), ALIGN_BYTES), b"\0")
        self.forget_cache()
        self.machine.upload(_PARAMS | layout.frozen_bytes, tail)


async def lora_async(
    model, rank=None, alpha=None, targets=None, rslora=None, seed=42, *, adapter=None, training=True, any_base=False, machine=None,
    saving=None, **how
) -> GPT:  # noqa: F821  # fmt: skip
    """`lora`, awaited: on a browser's GPU `machine` must be given."""
    from .live import GPT

    settings = {"rank": rank, "alpha": alpha, "targets": targets, "rslora": rslora}
    if adapter is not None and any(value is not None for value in settings.values()):
        raise ConfigError("lora", "an adapter brings its own settings", "settings came with it", "give the one or the others")
    config = LoRAConfig.of(**settings) if adapter is None else adapter.config
    if adapter is not None:
        adapter.require_fit(model.config, "" if any_base else await model.base_sha256_async())
    program = Program(model.config, training, config, saving or model.program.saving)
    made = GPT(model.config, machine, program) if machine else GPT.on(program, **_same_kind(model.machine, **how))
    try:
        made.tokenizer = model.tokenizer
        await model.fetch(("params",))
        made.machine.upload(_PARAMS, model.machine.view(_PARAMS, program.layout.frozen_bytes))
        await made.attach_async(config if adapter is None else adapter, training=training, seed=seed, any_base=any_base)
    except BaseException:
        if machine is None:
            made.close()
        raise
    return made


def _same_kind(machine, device: str = "auto", threads=None, isa=None, precision: str = "f32") -> dict:
    """What opens another engine: of the machine's own kind, unless a device is named."""
    if device != "auto":
        return {"device": device, "threads": threads, "isa": isa, "precision": precision}
    half = getattr(machine, "precision", "f32") if precision == "f32" else precision
    threads, isa = threads or getattr(machine, "threads", None), isa or getattr(machine, "isa", None)
    return {"device": machine.name, "threads": threads, "isa": isa, "precision": half}


def lora(model, rank=None, alpha=None, targets=None, rslora=None, seed: int = 42, **how) -> GPT:  # noqa: F821
    """A GPT of its own that is `model` with a low-rank adapter on it; `model` is untouched, and training changes the adapter alone.

    rank, alpha, targets (of model.lora.TARGETS) and rslora default to configs/lora.json: 4, 8, q and v. A new adapter changes no
    logit; adapter=an Adapter takes that one. training=False leaves out what only training needs. The engine is another of the
    model's kind, or `machine`, or what device=, threads=, isa= and precision= open. saving= (model/saving.py) is the model's own
    unless given. Raises ConfigError, DeviceError.
    """
    return now(lora_async(model, rank, alpha, targets, rslora, seed, **how))
