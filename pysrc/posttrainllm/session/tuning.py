"""Tuning as a Session does it: an adapter learns on the live model, by the loop of job.py. The base's own weights stay.

Events: tune.planned, tune.started, tune.saved, and job.py's as tune.step, tune.eval, tune.stopped; tune.stopped tells what was
forgotten: the base's validation loss on its own text before and after.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..configs import load
from ..data.corpus import Corpus
from ..dims import ELEMENT_BYTES, product
from ..errors import ConfigError, DataError, StoreError
from ..model.lora import TARGETS, LoRAConfig, shapes
from ..store import renewal
from ..store.runs import Run
from ..train.settings import training_settings
from ..train.state import checkpoint_of, trainer_of
from ..train.trainer import Trainer
from ..tune.dpo import dpo_trainer, require_beta, resume
from ..tune.forgetting import text_loss_async
from ..tune.sft import sft_trainer
from .job import Job
from .messages import finite
from .putting_on import put_on

KINDS = {"text": "text", "pairs": "sft", "preferences": "dpo"}
"""What one may learn from, and the settings of configs/tuning.json that go with it."""


def defaults() -> dict:
    """Settings as a page shows them first."""
    return {"adapter": LoRAConfig.of().to_dict(), "targets": list(TARGETS), "training": {how: usual(how) for how in KINDS}}


def usual(how: str) -> dict:
    """The usual settings of one kind of tuning; `beta` only for preferences."""
    if how == "text":
        return load("lora")["training"]
    settings = load("tuning")
    found = settings[KINDS[how]] | settings["adapter"][KINDS[how]]
    return found | {"beta": settings["beta"]} if how == "preferences" else found


class Tuning(Job):
    """The tune in progress, if any. The live model stays tuned after it ended, with its adapter on."""

    prefix = "tune."

    def __init__(self, session) -> None:
        super().__init__(session)
        self.live_sample.every_seconds = 0.0
        self.save_every_seconds = 20.0
        self.how = ""
        self._held: Run | None = None
        self._adapter_id: str | None = None
        self._name = ""
        self._text: tuple[str | None, Corpus | None] = (None, None)
        self._base: Corpus | None = None  # the text on which it is measured what the tune in progress forgets
        self._forgetting: dict = {}

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"tune.plan": self._plan, "tune.start": self._start, "tune.stop": self._stop, "tune.save": self._save_now}

    @property
    def held_id(self) -> str | None:
        """The adapter that is being tuned."""
        return self._held.id if self._held else None

    async def base_text(self) -> Corpus | None:
        """The text that the live model was first trained on, as its tokens; None where it is not here."""
        session, run_id = self._session, self._session.runs.held_id
        if self._text[0] != run_id or run_id is None:
            trainer, found = session.training.trainer, None
            checkpoint = session.runs.last_save()
            if trainer is not None and trainer.model is session.model:
                found = trainer.corpus
            elif checkpoint is not None:
                found = await session.runs.corpus_of(checkpoint)
                fraction = checkpoint.training.get("validation_fraction")
                if found is not None:
                    found = found.split_at(fraction if isinstance(fraction, float) else found.validation_fraction).tokens(session.model.tokenizer)
            self._text = (run_id if found is not None else None, found)  # one that is not here may be chosen under Text yet
        return self._text[1]

    # Requests

    async def _plan(self, identity, adapter: dict | None = None) -> None:
        """tune.plan: how large an adapter would be."""
        model = self._model()
        config = LoRAConfig.of(**_known(adapter))
        trainable = sum(map(product, shapes(model.config, config).values()))
        self._emit(
            "planned", reply_to=identity, trainable=trainable, parameters=model.config.parameter_count(), bytes=trainable * ELEMENT_BYTES,
            scaling=config.scaling,
        )

    async def _start(
        self, identity, how: str, adapter: dict | None = None, training: dict | None = None, name: str = "", text: str | None = None,
        rows: list | None = None, buffer=None, file_name: str = "",
    ) -> None:  # fmt: skip
        """tune.start: a new adapter on the live model, from `text`, `rows` or a file's `buffer`."""
        session, model = self._session, self._model()
        session.refuse_when_busy("tune")
        if how not in KINDS:
            raise ConfigError("tune", f"it learns from one of {', '.join(KINDS)}", f"{how!r} came", "choose one of those")
        config = LoRAConfig.of(**_known(adapter))
        settings = dict(training or {})
        beta, steps = settings.pop("beta", None), settings.get("steps")
        if how == "text" and type(steps) is int:  # the others' trainers do so themselves
            warmup_steps = min(usual(how)["warmup_steps"], max(0, steps) // 10)
            settings = {"decay_steps": max(1, steps), "warmup_steps": warmup_steps} | settings
        data = examples(how, text if buffer is None else session.host.to_bytes(buffer), rows, file_name)
        training_settings(settings, model.config.channels, adapter=True)  # what is wrong is told before anything changes
        if beta is not None:
            require_beta(beta)
        data.split_at(settings.get("validation_fraction", data.validation_fraction)).tokens(model.tokenizer).check(model.config)
        session.stop_writing()
        base = self._base = await self.base_text()
        self._forgetting = await self._before(model, base)
        await put_on(session, config, training=True, seed=settings.get("seed", 42), name=name or data.name)
        session.adapters.chosen, session.adapters.strength = None, 1.0
        try:
            self.trainer = self._trainer(how, data, settings, beta)
        except BaseException:
            session.model.strength = 0.0  # nothing was learned: the base alone writes on
            await session.adapters.tell()
            raise
        self.how, self._name = how, name or data.name
        await self._hold(identity)
        session.adapters.chosen = self._adapter_id
        if how == "text":
            await session.keep_text(data)
        self._begin(identity, self.trainer.settings["steps"])
        self._announce(identity)
        await self.save()
        await session.adapters.tell()

    def _trainer(self, how: str, data, settings: dict, beta: float | None) -> Trainer:
        model = self._session.model
        if how == "preferences":
            return dpo_trainer(model, data, settings, beta)
        return sft_trainer(model, data, settings) if how == "pairs" else Trainer(model, data, settings)

    async def _hold(self, identity) -> None:
        """A place for the adapter. Without storage the person is told, and tuning goes on."""
        adapters, self._held = self._session.adapters, None
        self._adapter_id = adapters.new_id()
        try:
            self._held = await adapters.store.create(self._name, self._adapter_id)
        except StoreError as error:
            self._session.fail(error, identity)

    def _announce(self, identity) -> None:
        trainer, session = self.trainer, self._session
        model = trainer.model
        self._emit(
            "started",
            reply_to=identity,
            name=self._name,
            run_id=session.runs.held_id,
            adapter_id=self._adapter_id,
            how=self.how,
            step=trainer.step,
            steps=trainer.until,
            training=trainer.settings,
            adapter=model.lora.to_dict(),
            trainable=sum(product(shape) for shape in shapes(model.config, model.lora).values()),
            parameters=model.config.parameter_count(),
            notes=trainer.corpus.advice(model.config) if self.how != "text" else [],
            engine=session.engine | {"description": model.machine.description},
            memory=model.memory(),
        )

    async def _stop(self, identity) -> None:
        """tune.stop: after the present step, with a save."""
        self._stopping = self.active

    async def _save_now(self, identity) -> None:
        """tune.save: the page is about to be hidden, and may not come back."""
        if self.active:
            await self.save()

    def _model(self):
        if self._session.model is None:
            raise ConfigError("tune", "a model to tune", "there is none yet", "train one, or open a saved run")
        return self._session.model

    # What is lost meanwhile

    async def _before(self, model, base: Corpus | None) -> dict:
        if base is None:
            return {"note": "The text it was first trained on is not here any more, so what it forgets cannot be measured."}
        if model.lora is not None:
            model.strength = 0.0
        return {"text": base.name} | await self._measure(model, base, "before")

    async def _measure(self, model, base: Corpus, when: str) -> dict:
        found = await text_loss_async(model, base)
        return {f"{when}_nats": finite(found.loss_nats), f"{when}_bits_per_byte": finite(found.bits_per_byte)}

    def let_go(self) -> None:
        """The model of a tune that ended goes: keep nothing of it."""
        if not self.active:
            self.end()
            self.trainer = self._base = None

    # What job.py asks for

    def checkpoint(self):
        """The tune as it stands; the kind of data stands beside its name."""
        held = self._held
        found = checkpoint_of(self.trainer, held.name if held else self._name, held.created or None if held else None)
        return replace(found, corpus=found.corpus | {"how": self.how})

    def last_save(self):
        """The tune as it was last saved; None where there is none."""
        try:
            return self._held.load() if self._held is not None else None
        except StoreError:
            return None

    def resumed(self, checkpoint, model) -> Trainer:
        """The trainer of a tune's checkpoint on a model that has its adapter."""
        data = self.trainer.corpus
        made = resume(checkpoint, data, model=model) if self.how == "preferences" else trainer_of(checkpoint, data, model=model)
        made.until = self.trainer.until
        return made

    async def _keep(self) -> bool:
        if self._held is None:
            return False
        began = time.perf_counter()
        self._held, nbytes, told = await renewal.save(self._session.adapters.store, self._held, self.checkpoint())
        if told is not None:
            self._session.fail(told)
        self._emit("saved", adapter_id=self._held.id, step=self.trainer.step, bytes=nbytes, seconds=time.perf_counter() - began)
        return True

    async def _measured(self) -> None:
        if self._base is not None and not self.trainer.broken:
            before, self._forgetting = self._forgetting, {"note": "What it forgot could not be measured."}
            self._forgetting = before | await self._measure(self.trainer.model, self._base, "after")
        await self._session.adapters.tell()

    def _say_stopped(self, reason: str, message: str, saved: bool) -> None:
        name = self._held.name if self._held else self._name
        if self._held is not None:
            self._held.close()
            self._held = None
        self._emit(
            "stopped", reason=reason, message=message, saved=saved, step=self.trainer.step, adapter_id=self._adapter_id, name=name,
            validation_loss_nats=finite(self.trainer.validation_loss_nats),
            forgetting=self._forgetting if reason != "error" else None,
        )  # fmt: skip


def _known(adapter: dict | None) -> dict:
    """Settings of an adapter as a request has them. Raises ConfigError for a name that is none."""
    names = tuple(LoRAConfig.__dataclass_fields__)
    for name in adapter or {}:
        if name not in names:
            raise ConfigError("adapter", f"its settings are {', '.join(names)}", f"{name!r} came", "correct the name")
    return dict(adapter or {})


def examples(how: str, text: str | bytes | None, rows: list | None, file_name: str):
    """What a request brings to learn from. Raises DataError with a sentence."""
    if text is None and rows is None:
        raise DataError("tune", "something to learn from", "nothing came", "paste a text, fill in a row, or choose a file", code="E-DATA-EMPTY")
    if how == "text":
        name = file_name or "second text"
        return Corpus.from_text(text, name) if isinstance(text, str) else Corpus.from_bytes(text, name)
    from ..data.pairs import Pairs, Preferences

    kind = Pairs if how == "pairs" else Preferences
    if rows is not None:
        return kind.from_list(rows, "answers" if how == "pairs" else "preferences")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                file_name, "a file of text in UTF-8", f"byte {error.start:,} is none", "save it as UTF-8", code="E-DATA-ENCODING"
            ) from error
    return kind.from_text(text, file_name or "rows")
