"""Runs as a Session trains them: what may be asked of one. The loop is job.py's.

Events: started, sample, saved, and those of job.py.
"""

from __future__ import annotations

import time

from ..backends.bpe import prepare
from ..errors import ConfigError, StoreError
from ..train.checks import checked
from ..train.settings import training_settings
from ..train.snapshots import Kept
from ..train.state import set_weights
from ..train.trainer import Trainer
from .job import Job
from .messages import finite
from .tokens import facts_of


MOST_SNAPSHOT_BYTES = 32 << 20
"""Of a model's weights, for a run to keep snapshots of them: there are at most seven."""


class Training(Job):
    """The run in progress, if any; `trainer` stays after it ended, so that it can be extended."""

    _kept: Kept | None = None

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "train.start": self.start,
            "train.pause": self.pause,
            "train.resume": self.resume,
            "train.stop": self.stop,
            "train.extend": self.extend,
            "train.save": self.save_now,
            "settings": self.settings,
        }

    async def start(self, identity, preset=None, config=None, training=None, name=None, saving=None, base=None) -> None:
        """train.start: a new model from the settings, on the present corpus. With `base`, a saved run's id, it begins with the weights
        of that one, and has its sizes and tokens: the way on for a model from elsewhere."""
        session = self._session
        session.refuse_when_busy("train")
        if session.corpus is None:
            session.corpus = await session.host.bundled_corpus()
        if base is None:
            await session.tokens.ready()
            chosen, label = session.config_of(preset, config), f"{session.corpus.name}, {preset or 'custom'}"
            corpus, tokenizer = session.tokens.text(), session.tokens.tokenizer
        else:
            chosen, tokenizer, label = await self._of_base(base)
            corpus = session.corpus if tokenizer.name == "bytes" else session.corpus.tokens(tokenizer)
        settings = training_settings(training, chosen.channels)
        corpus.check(chosen)
        session.runs.let_go()
        self.trainer = None
        model = await session.make_model(chosen, saving)
        model.tokenizer = tokenizer
        model.initialise(settings["seed"])
        if base is not None:
            async with session.runs.store.held(base) as run:
                set_weights(model, run.load().weights)
        self.trainer = Trainer(model, corpus, settings)
        label = name or label
        await session.runs.hold_new(label, identity)
        await session.keep_text(session.corpus)
        await self.launch(identity, settings["steps"])

    async def _of_base(self, run_id: str):
        """(config, tokenizer, what a run from it is called) of a saved run. Raises ConfigError for one of an adapter."""
        await prepare()  # its tokenizer may be one that an engine runs
        async with self._session.runs.store.held(run_id) as run:
            config, tokenizer, lora = checked(run.load(), False)
            if lora is not None:
                raise ConfigError("train", "the base is a whole model", "the run of an adapter came", "merge it into its base first")
            return config, tokenizer, f"{run.name}, on {self._session.corpus.name}"

    async def launch(self, identity, until: int) -> None:
        """Begin turning: announce the run and train to step `until`."""
        session, trainer = self._session, self.trainer
        self._begin(identity, until)
        session.emit(
            "started",
            reply_to=identity,
            run_id=session.runs.held_id,
            name=session.runs.held_name,
            config=trainer.model.config.to_dict(),
            training=trainer.settings,
            parameters=trainer.model.config.parameter_count(),
            tokenizer=facts_of(trainer.model.tokenizer),
            bytes_per_token=trainer.bytes_per_token,
            evaluated_bytes_per_token=trainer.evaluated_bytes_per_token,
            step=trainer.step,
            steps=until,
            engine=session.engine | {"description": trainer.model.machine.description},
            memory=trainer.model.memory(),
            saving=trainer.model.program.saving.to_dict(),
        )
        if trainer.step == 0:
            await self.save()  # a run that is cut off in its first minute can be opened too
        small = 4 * trainer.model.config.parameter_count() <= MOST_SNAPSHOT_BYTES
        self._kept = session.runs.snapshots_kept() if small else None
        await self._look_back()
        await session.adapters.tell()

    async def pause(self, identity) -> None:
        """train.pause."""
        self._pausing = self.active

    async def resume(self, identity) -> None:
        """train.resume."""
        self._pausing = False
        if self.active and self._paused:
            self._paused = False
            self._recent = []
            self._session.emit("resumed", reply_to=identity, step=self.trainer.step)

    async def stop(self, identity) -> None:
        """train.stop: after the present step, with a save. Where nothing is going, `stopped` says so at once."""
        self._stopping = self.active
        if not self.active:
            self._say_stopped("stopped", "No run was going.", True)

    async def save_now(self, identity) -> None:
        """train.save: the page is about to be hidden, and may not come back."""
        if self.active:
            await self.save()

    async def extend(self, identity, steps: int) -> None:
        """train.extend: so many steps more, in the run in progress or the one that ended last."""
        if steps < 1 or steps > 10_000_000:
            raise ConfigError("add steps", "a whole number from 1 to 10,000,000", f"{steps} came", "change it")
        if self.active:
            self.trainer.until += steps
            self.trainer.settings["steps"] = self.trainer.until
            self._step_event(time.perf_counter())
        elif self.trainer is not None and self._session.model is self.trainer.model:
            await self.launch(identity, self.trainer.step + steps)
        elif self._session.model is not None and self._session.runs.held_id is not None:  # an adapter was put on: the run is in its save
            await self._session.runs.go_on(identity, self._session.runs.held_id, steps)
        else:
            raise ConfigError("add steps", "a run that was just trained or opened", "there is none", "press Train, or open a run")

    async def settings(self, identity, sample_prompt=None, sample_every_seconds=None, save_every_seconds=None) -> None:
        """settings: what the live sample begins with, and how often to sample and save."""
        if sample_prompt:
            self.live_sample.prompt = sample_prompt
            self.live_sample.drop()
        if sample_every_seconds is not None:
            self.live_sample.every_seconds = max(0.0, sample_every_seconds)
        if save_every_seconds is not None:
            self.save_every_seconds = self._session.tuning.save_every_seconds = max(1.0, save_every_seconds)

    async def _look_back(self) -> None:
        """A few snapshots of the weights stay beside the saves, for the Inside view. One that fails is told, and training goes on."""
        kept, trainer = self._kept, self.trainer
        if kept is None or trainer.broken or not kept.due(trainer.step):
            return
        await self.settle()
        if not self.active:
            return
        try:
            await trainer.model.fetch(("params",))
            kept.keep(trainer.model, trainer.step)
        except StoreError as error:
            self._session.fail(error)

    async def _keep(self) -> bool:
        runs = self._session.runs
        held = runs.held
        saved = await runs.save(self.trainer)
        if runs.held is not held and self._kept is not None:
            self._kept = runs.snapshots_kept()
        return saved

    def _say_stopped(self, reason: str, message: str, saved: bool) -> None:
        """The last event of a run; `saved` is whether its last step is in the file system."""
        trainer = self.trainer
        self._session.emit(
            "stopped",
            step=trainer.step if trainer else 0,
            reason=reason,
            message=message,
            saved=saved,
            run_id=self._session.runs.held_id,
            validation_loss_nats=finite(trainer.validation_loss_nats) if trainer else None,
        )
