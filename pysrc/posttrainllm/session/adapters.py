"""Adapters of the live model as a Session keeps them: beside the base's run, one of them on, at a strength.

An adapter is kept as a run of its own in the host's second store, named after the base's run, so a reload in the middle of a tune
finds its last save. The base's weights are in memory once: an adapter is put on in place. Events: adapters (the list),
adapters.merged, exported.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ..data.corpus import Corpus
from ..errors import ConfigError, PostTrainError, StoreError
from ..model.lora import Adapter, shapes
from ..store.buffers import Tensor
from ..store.checkpoint import Checkpoint
from ..train.merging import merged_checkpoint
from ..train.state import adapter_of
from .exports import file_name
from .putting_on import put_on

UNSAVED = "unsaved"
MOST_STRENGTH = 2.0


class Adapters:
    """`chosen` is the id of the adapter that is on, None for the base alone; `strength` counts while one is.

    base_step: where the base stood when the first was put on and its trainer went; its weights stay so.
    """

    def __init__(self, session) -> None:
        self._session = session
        self.chosen: str | None = None
        self.strength = 1.0
        self.base_step: int | None = None
        self._facts: dict[str, tuple[tuple, dict]] = {}  # what the headers say, until the adapter is saved again
        self._base: tuple[object, str] = (None, "")

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "adapters.list": self.tell,
            "adapters.use": self._use,
            "adapters.strength": self._set_strength,
            "adapters.rename": self._rename,
            "adapters.delete": self._delete,
            "adapters.export": self._export,
            "adapters.import": self._import,
            "adapters.merge": self._merge,
        }

    @property
    def store(self):
        """The RunStore of adapters."""
        return self._session.host.adapters

    def new_id(self) -> str:
        """An id for an adapter of the run that is held."""
        return f"{self._run()}.{os.urandom(4).hex()}"

    def _run(self) -> str:
        return self._session.runs.held_id or UNSAVED

    def forget(self) -> None:
        """The live model goes: none is on."""
        self.chosen, self.strength, self.base_step = None, 1.0, None
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing of a model that is closed."""
        self._base = (None, "")

    # The list

    async def tell(self, identity=None) -> None:
        """Say which adapters the live model has, and which is on."""
        live = self._session.model is not None
        self._session.emit(
            "adapters", reply_to=identity, run_id=self._session.runs.held_id, adapters=await self.rows() if live else [],
            chosen=self.chosen, strength=self.strength,
        )

    async def rows(self) -> list[dict]:
        """The adapters of the held run, the last saved first."""
        try:
            infos = [info for info in await self.store.list() if info.id.startswith(f"{self._run()}.")]
        except StoreError as error:
            self._session.fail(error)
            return []
        rows = [*self._session.improving.versions.rows(), *[await self._row(info) for info in infos if info.state != "empty"]]
        if self.chosen is not None and self.chosen not in [row["adapter_id"] for row in rows]:
            rows.insert(0, await self._unkept())
        return rows

    async def _unkept(self) -> dict:
        """The line of the adapter that is on and could not be saved."""
        adapter = await self.load(self.chosen)
        return adapter.config.to_dict() | {
            "adapter_id": self.chosen, "name": adapter.name, "parameters": adapter.parameter_count, "fits": True, "kept": False,
            "note": "It is not saved: export it, or free some space and tune again. It is lost when another is chosen.",
        }  # fmt: skip

    async def _row(self, info) -> dict:
        row = {
            "adapter_id": info.id, "name": info.name, "step": info.step, "steps": info.steps, "parameters": info.parameters,
            "bytes": info.payload_bytes, "updated": info.updated, "validation_loss_nats": info.validation_loss_nats,
        }  # fmt: skip
        mark = (info.updated, info.step)
        if self._facts.get(info.id, (None,))[0] != mark:
            self._facts[info.id] = (mark, await self._read(info.id))
        facts = dict(self._facts[info.id][1])
        base = facts.pop("base_sha256", "")
        still = not self._session.training.active  # else its weights change at every step
        if facts["fits"] and base and still and base != await self.base_sha256():
            facts["note"] = "It was made when this run had other weights: it may suit it less well now."
        return row | facts

    async def _read(self, adapter_id: str) -> dict:
        """What an adapter's own save says of it."""
        try:
            checkpoint = await self.checkpoint(adapter_id)
            adapter = adapter_of(checkpoint)
            adapter.require_fit(self._session.model.config)
        except PostTrainError as error:
            return {"fits": False, "note": str(error)}
        how = checkpoint.corpus.get("how")
        return adapter.config.to_dict() | {
            "how": how if isinstance(how, str) else "", "fits": True, "note": "", "base_sha256": adapter.base_sha256,
        }  # fmt: skip

    async def base_sha256(self) -> str:
        """The hash of the live base's weights, worked out once as long as they stay."""
        session, model = self._session, self._session.model
        trainer = session.training.trainer
        mark = (model, trainer.step if trainer is not None and trainer.model is model else None)
        if self._base[0] != mark:
            self._base = (mark, await model.base_sha256_async())
        return self._base[1]

    async def checkpoint(self, adapter_id: str) -> Checkpoint:
        """An adapter's newest save. Its tensors are read at once, so nothing stays open. Raises StoreError, FormatError."""
        held = self.store.opened.get(adapter_id)
        run = held or await self.store.open(adapter_id)
        try:
            found = run.load()
            weights = {name: Tensor(tensor.dtype, tensor.shape, bytes(tensor.view())) for name, tensor in found.weights.items()}
            return replace(found, weights=weights, m={}, v={})
        finally:
            if held is None:
                run.close()

    async def load(self, adapter_id: str) -> Adapter:
        """An adapter of the list, under the name that it has there; the one that is on need not be saved."""
        version = self._session.improving.versions.number_of(adapter_id)
        if version is not None:
            return self._session.improving.versions.adapter(version)
        if adapter_id == self.chosen and adapter_id not in await self.store.volume.list_runs():
            return await self._session.model.adapter_async()
        checkpoint = await self.checkpoint(adapter_id)
        return adapter_of(checkpoint).renamed(checkpoint.name)

    async def text(self, adapter_id: str) -> Corpus | None:
        """The text that an adapter was tuned with, split as it was; None where it was tuned with something else, or is not here."""
        session, checkpoint = self._session, await self.checkpoint(adapter_id)
        if checkpoint.corpus.get("how") != "text":
            return None
        found = await session.runs.corpus_of(checkpoint)
        fraction = checkpoint.training.get("validation_fraction")
        return found and found.split_at(fraction if isinstance(fraction, float) else found.validation_fraction).tokens(session.model.tokenizer)

    # One on, at a strength

    def require_rest(self, place: str) -> None:
        """Raise ConfigError where the model is being changed, or there is none."""
        session = self._session
        if session.tuning.active:
            raise ConfigError(place, "a model that stands still", "a tune is going", "stop it first; its adapter is saved when it stops")
        if session.training.active:
            raise ConfigError(place, "a model that stands still", "a run is being trained", "stop it first; it is saved when it stops")
        if session.model is None:
            raise ConfigError(place, "a model to put it on", "there is none yet", "train one, or open a saved run")

    async def _use(self, identity, adapter_id: str = "") -> None:
        """adapters.use: this one on at strength 1, or with "" none."""
        self.require_rest("adapter")
        session = self._session
        version, before = session.improving.versions.number_of(adapter_id), session.improving.versions.on
        if version is not None or (before is not None and not adapter_id):
            await session.improving.versions.choose(version, aside=True)
            await self.tell(identity)
            return await session.improving.versions.tell()
        adapter = await self.load(adapter_id) if adapter_id else None
        session.stop_writing()
        if adapter is not None:
            await put_on(session, adapter)
        elif session.model.lora is not None:
            session.model.strength = 0.0  # the base's very logits; and the way back is short
        self.chosen, self.strength = adapter_id or None, 1.0
        await self.tell(identity)

    async def _set_strength(self, identity, strength: float) -> None:
        """adapters.strength: 0 … 2, at once, also in the middle of a text."""
        self.require_rest("strength")
        if self.chosen is None:
            raise ConfigError("strength", "an adapter that is on", "there is none", "choose one first")
        if not 0 <= strength <= MOST_STRENGTH:
            raise ConfigError("strength", f"a number from 0 to {MOST_STRENGTH:g}", f"{strength!r} came", "change it")
        self._session.comparing.cancel()
        self._session.model.strength = self.strength = float(strength)
        self._session.emit("adapters.strength", reply_to=identity, strength=self.strength)

    # Changing the list

    async def _rename(self, identity, adapter_id: str, name: str) -> None:
        await self.store.rename(adapter_id, name)
        await self.tell(identity)

    async def _delete(self, identity, adapter_id: str) -> None:
        if adapter_id == self._session.tuning.held_id:
            raise ConfigError("delete", "an adapter that is not being tuned", "this one is", "stop the tune first")
        await self.store.delete(adapter_id)
        await self._session.runs.sweep_texts()
        if adapter_id == self.chosen:
            await self._use(identity)
        else:
            await self.tell(identity)

    async def delete_of(self, run_id: str) -> None:
        """A run is deleted: its adapters go with it."""
        for info in await self.store.list():
            if info.id.startswith(f"{run_id}."):
                await self.store.delete(info.id)

    async def keep(self, adapter: Adapter, how: str) -> str:
        """Keep an adapter that was made elsewhere beside the held run; its id."""
        model, parts = self._session.model, shapes(self._session.model.config, adapter.config)
        now = self.store.clock()
        checkpoint = Checkpoint(
            name=adapter.name, config=model.config.to_dict(), step=0, tokenizer=model.tokenizer.to_dict(),
            weights={name: Tensor("F32", parts[name], data) for name, data in adapter.weights.items()},
            adapter={"name": adapter.name, "lora": adapter.config.to_dict(), "base_sha256": adapter.base_sha256},
            corpus={"how": how}, created=now, updated=now,
        )  # fmt: skip
        run = await self.store.create(adapter.name, self.new_id())
        try:
            run.save(checkpoint)
        except BaseException:
            run.close()
            await self.store.delete(run.id)
            raise
        run.close()
        return run.id

    # Moving in and out

    async def _export(self, identity, adapter_id: str) -> None:
        """adapters.export: PEFT's two files in one archive."""
        from .adapter_files import packed

        adapter = await self.load(adapter_id)
        self._session.exports.give(identity, [packed(adapter)], f"{file_name(adapter.name)}.zip")

    async def _import(self, identity, buffer, name: str = "adapter") -> None:
        """adapters.import: such an archive (in a folder of it, too), or adapter_model.safetensors alone where its metadata has the rest."""
        if self._session.model is None:
            raise ConfigError("import", "a model that the adapter is for", "there is none open", "train one, or open a saved run")
        from .adapter_files import read

        adapter = read(self._session.host.to_bytes(buffer), name)
        adapter.require_fit(self._session.model.config)
        await self.keep(adapter, "imported")
        await self.tell(identity)

    async def _merge(self, identity, adapter_id: str) -> None:
        """adapters.merge: the base with this adapter worked in (at the slider's strength where it is on), as a run of its own."""
        session = self._session
        self.require_rest("merge")
        adapter = await self.load(adapter_id)
        strength = self.strength if adapter_id == self.chosen else 1.0
        name = f"{session.runs.held_name} with {adapter.name}" + ("" if strength == 1 else f" at {strength:.2f}")
        await session.model.fetch(("params",))
        checkpoint = merged_checkpoint(session.model, adapter, strength, name)
        base = session.runs.last_save()
        if base is not None:  # its first text is still what it is measured on
            checkpoint = replace(checkpoint, corpus=dict(base.corpus), training=dict(base.training), step=base.step)
        run = await session.runs.store.create(name)
        try:
            run.save(checkpoint)
        except BaseException:
            run.close()
            await session.runs.store.delete(run.id)
            raise
        run.close()
        session.emit("adapters.merged", reply_to=identity, run_id=run.id, name=run.name)
        await session.runs.tell()
