"""Saved runs as a Session does them: hold one open while it is live, list, open, continue. What else is done with them: run_changes.py.

Events: runs (the list), opened, saved.
"""

from __future__ import annotations

import time

from ..backends.bpe import prepare
from ..data.corpus import Corpus
from ..errors import ConfigError, DataError, PostTrainError, StoreError
from ..model.config import GPTConfig
from ..model.live import RESERVE_BYTES
from ..model.program import Program
from ..model.saving import PLAIN, Saving
from ..store import renewal
from ..store.bits import bytes_per_token
from ..store.checkpoint import Checkpoint
from ..store.runs import Run, RunInfo
from ..train.moments import kind_of
from ..train.snapshots import Kept
from ..train.state import check_run, checkpoint_of, model_of, saved_saving, trainer_of
from .planning import saving_for
from .tokens import facts_of

PLOTTED = ("step", "loss_nats", "gradient_norm", "learning_rate")


class Runs:
    """The run store behind a Session, and the one run that is held open for the live model."""

    def __init__(self, session) -> None:
        self._session = session
        self._held: Run | None = None

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "runs.list": self.tell,
            "runs.open": self._open,
            "runs.continue": self.go_on,
        }

    @property
    def store(self):
        """The RunStore of the host."""
        return self._session.host.store

    @property
    def held(self) -> Run | None:
        """The run that is held open."""
        return self._held

    @property
    def held_id(self) -> str | None:
        """Id of the run that is held open."""
        return self._held.id if self._held else None

    @property
    def held_name(self) -> str:
        """Its name; a plain word where nothing is kept."""
        return self._held.name if self._held else "unsaved run"

    async def hold_new(self, name: str, identity) -> None:
        """Create the run that the coming training is saved in. Without storage the person is told, and training goes on."""
        self.let_go()
        try:
            self._held = await self.store.create(name)
        except StoreError as error:
            self._session.fail(error, identity)

    @property
    def journal(self):
        """The journal of the held run; None where none is held."""
        return self._held.journal if self._held is not None else None

    def let_go(self) -> None:
        """Close the held run."""
        self._session.improving.records.forget()
        if self._held is not None:
            self._held.close()
            self._held = None

    async def save(self, trainer) -> bool:
        """Save the live run now; False where there is no place to keep it. Raises StoreError; the last save is unharmed. Where its
        saves were removed behind its back, it is held anew, and that is told."""
        if self._held is None:
            return False
        began, before = time.perf_counter(), self._held
        self._held, nbytes_, told = await renewal.save(self.store, before, checkpoint_of(trainer, before.name, before.created or None))
        if told is not None:
            self._session.improving.records.forget()
            await self._session.keep_text(trainer.corpus if isinstance(trainer.corpus, Corpus) else self._session.corpus)
            self._session.fail(told)
        self._session.emit(
            "saved", run_id=self._held.id, step=trainer.step, bytes=nbytes_, seconds=time.perf_counter() - began, at=self.store.clock()
        )
        return True

    def snapshots_kept(self) -> Kept | None:
        """Where the held run's snapshots go; None where there is no place, which was told before."""
        try:
            return Kept(self._held.snapshots) if self._held is not None else None
        except StoreError:
            return None

    def states_before(self, step: int) -> list:
        """(step, weights()) of the held run's snapshots from before a step, as study/sharpen.py takes them."""
        from ..study.sharpen import states_of

        return states_of(self._held, step) if self._held is not None else []

    def last_save(self) -> Checkpoint | None:
        """The held run as it was last saved; None where there is none."""
        try:
            return self._held.load() if self._held is not None else None
        except PostTrainError:
            return None

    # The list

    async def rows(self) -> list[dict]:
        """The list as the page shows it."""
        try:
            kept = [info.id.rpartition(".")[0] for info in await self._session.host.adapters.list()]
            return [self._row(info) | {"adapters": kept.count(info.id)} for info in await self.store.list()]
        except StoreError as error:
            self._session.fail(error)
            return []

    def _row(self, info: RunInfo) -> dict:
        return {
            "run_id": info.id,
            "name": info.name,
            "state": info.state,
            "step": info.step,
            "steps": info.steps,
            "parameters": info.parameters,
            "loss_nats": info.loss_nats,
            "validation_loss_nats": info.validation_loss_nats,
            "bits_per_byte": info.bits_per_byte,
            "tokenizer": info.tokenizer,
            "vocabulary": info.vocabulary,
            "tokenizer_sha256": info.tokenizer_sha256,
            "created": info.created,
            "updated": info.updated,
            "bytes": info.bytes,
            "resumable": info.resumable,
            "corrupt": info.state in ("corrupt", "unreadable"),
            "live": info.id == self.held_id,
            "note": info.note,
            "marks": info.marks.to_dict(),
        }

    async def storage(self) -> dict:
        """How much the saved runs take, and whether there is storage at all."""
        try:
            host = self._session.host
            kept = await self.store.total_bytes() + await host.adapters.total_bytes()
            return {"bytes": kept + await host.texts_bytes(), "persistent": host.persistent}
        except StoreError:
            return {"bytes": 0, "persistent": False}

    async def tell(self, identity=None) -> None:
        """Say which runs there are, and what they take."""
        self._session.emit("runs", reply_to=identity, runs=await self.rows(), storage=await self.storage())

    # Opening and going on

    async def _open(self, identity, run_id: str) -> None:
        await self.bring_in(identity, run_id)

    async def go_on(self, identity, run_id: str, steps: int = 500, saving=None) -> None:
        """runs.continue: so many steps more in a saved run; with `saving` in so much memory."""
        if not 1 <= steps <= 10_000_000:
            raise ConfigError("continue", "a whole number of steps from 1 to 10,000,000", f"{steps} came", "change it")
        training = self._session.training
        self._session.refuse_when_busy("continue")
        live = self.held_id == run_id and training.trainer is not None and training.trainer.model is self._session.model
        if live and isinstance(saving, dict):
            now = training.trainer.model.program.saving
            live = saving_for(self._session, training.trainer.model.config, saving, now) == now
        if not live:
            await self.bring_in(identity, run_id, to_train=True, saving=saving)
        await training.launch(identity, training.trainer.step + steps)

    async def bring_in(self, identity, run_id: str, to_train: bool = False, saving=None) -> None:
        """Make a saved run the live model; `to_train` where it must be one that can go on."""
        session = self._session
        session.refuse_when_busy("open")
        held = self._held if self.held_id == run_id else None
        run = held or await self.store.open(run_id)
        try:
            checkpoint = run.load()
            corpus = await self.corpus_of(checkpoint)
            if to_train and (corpus is None or not checkpoint.resumable):
                raise DataError(
                    "continue", "the text it was trained on, and AdamW's state", "one of them is not here",
                    "choose that text again under Text, then continue the run",
                )
            check_run(checkpoint, corpus)  # before the live model goes
            note = session.engines.follow(checkpoint) if corpus is not None and checkpoint.resumable else ""
            before = session.engine
            await self._bring_up(checkpoint, corpus, saving)
        except BaseException:
            if run is not held:
                run.close()
            raise
        if run is not held:
            self.let_go()
            self._held = run
        self._tell_opened(identity, run, checkpoint, corpus, f"{run.recovered} {note}".strip())
        if session.engine.get("precision") != before.get("precision"):
            session.engines.tell()
        if not to_train:
            await session.improving.versions.opened()
        await session.adapters.tell()
        await session.improving.versions.tell()

    async def _bring_up(self, checkpoint: Checkpoint, corpus: Corpus | None, saving=None) -> None:
        """Make the checkpoint the live model; with its text and moments also the trainer."""
        session = self._session
        going_on = corpus is not None and checkpoint.resumable
        config = GPTConfig.from_dict(checkpoint.config)
        kept = saved_saving(checkpoint) if going_on and saving is None else None
        if kept is not None and session.host.fits(config, None, kept):
            chosen = kept
        else:
            chosen = saving_for(session, config, saving, Saving(moments=kind_of(checkpoint))) if going_on else PLAIN
        program = Program(config, going_on, saving=chosen)
        session.require_fit("open", program)
        if going_on and chosen.moments != kind_of(checkpoint):
            await session.host.load_numpy()  # moments become others with it
        need = sum(program.region_bytes().values()) + RESERVE_BYTES
        session.training.trainer = None
        session.drop_model()
        await prepare()  # a run's own tokenizer may be one that an engine runs
        machine = await session.host.open_machine(need)
        try:
            if going_on:
                trainer = trainer_of(checkpoint, corpus, machine=machine, saving=chosen)
                await session.prepare(trainer.model)
                session.training.trainer, session.model = trainer, trainer.model
                session.corpus = corpus
            else:
                session.model = model_of(checkpoint, machine=machine)
        except BaseException:
            machine.close()
            raise
        session.engine = session.engines.describe(machine)

    async def corpus_of(self, checkpoint: Checkpoint) -> Corpus | None:
        """The text that a run was trained on, where it is here."""
        sha256 = checkpoint.corpus.get("sha256")
        if not isinstance(sha256, str):
            return None
        session = self._session
        if session.corpus is not None and session.corpus.sha256 == sha256:
            return session.corpus
        bundled = await session.host.bundled_corpus()
        name = checkpoint.corpus.get("name")
        return bundled if bundled.sha256 == sha256 else await session.host.kept_text(sha256, name if isinstance(name, str) else "text")

    def _tell_opened(self, identity, run: Run, checkpoint: Checkpoint, corpus: Corpus | None, note: str) -> None:
        rows = checkpoint.history
        self._session.emit(
            "opened",
            reply_to=identity,
            run_id=run.id,
            name=run.name,
            config=checkpoint.config,
            parameters=checkpoint.parameters,
            tokenizer=facts_of(self._session.model.tokenizer),
            training=checkpoint.training,
            step=checkpoint.step,
            history=[[row.get(key) for key in PLOTTED] for row in rows if row.get("loss_nats") is not None],
            evals=[[row.get("step"), row["validation_loss_nats"]] for row in rows if row.get("validation_loss_nats") is not None],
            corpus={"name": checkpoint.corpus.get("name"), "sha256": checkpoint.corpus.get("sha256"), "available": corpus is not None},
            bytes_per_token=bytes_per_token(checkpoint, "bytes_per_token"),
            evaluated_bytes_per_token=bytes_per_token(checkpoint, "evaluated_bytes_per_token"),
            resumable=checkpoint.resumable,
            note=note,
            memory=self._session.model.memory(),
        )

    # Texts

    async def sweep_texts(self) -> None:
        """Forget texts that no run and no adapter needs. A run that cannot be read may need any, so then all stay."""
        found = await self.store.list()
        if all(info.state in ("good", "empty") for info in found):
            wanted = {info.corpus_sha256 for info in [*found, *await self._session.host.adapters.list()]}
            if self._session.corpus is not None:
                wanted.add(self._session.corpus.sha256)
            await self._session.host.sweep_texts(wanted)
