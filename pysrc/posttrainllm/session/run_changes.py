"""What a person does with the runs in the list: rename, tag, write a note, copy, delete, bring in, compare. Events: runs, compared."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from ..errors import ConfigError, DataError, FormatError
from ..store.marks import Marks
from ..train.comparison import MOST_RUNS, compare
from .model_files import keep_files


class RunChanges:
    """Requests about saved runs, whether one of them is live or not."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "runs.rename": self._rename,
            "runs.mark": self._mark,
            "runs.duplicate": self._duplicate,
            "runs.delete": self._delete,
            "runs.import": self._import,
            "runs.import_files": self._import_files,
            "runs.compare": self._compare,
        }

    @property
    def _runs(self):
        return self._session.runs

    async def _rename(self, identity, run_id: str, name: str) -> None:
        await self._runs.store.rename(run_id, name)
        await self._runs.tell(identity)

    async def _mark(self, identity, run_id: str, tags: list | None = None, note: str | None = None) -> None:
        """runs.mark: these tags and this note; what is left out stays as it is."""
        async with self._runs.store.held(run_id) as run:
            before = run.marks
            run.mark(Marks.checked(list(before.tags) if tags is None else tags, before.note if note is None else note))
        await self._runs.tell(identity)

    async def _duplicate(self, identity, run_id: str) -> None:
        info = {row["run_id"]: row for row in await self._runs.rows()}.get(run_id)
        await self._runs.store.duplicate(run_id, f"{info['name'] if info else run_id} (copy)")
        await self._runs.tell(identity)

    async def _delete(self, identity, run_id: str) -> None:
        session, runs = self._session, self._runs
        if run_id == runs.held_id:
            if session.job.active:
                raise ConfigError("delete", "a run that is not being trained", "this one is", "stop it first")
            runs.let_go()
            session.training.trainer = None
            session.drop_model()
        await runs.store.delete(run_id)
        await session.adapters.delete_of(run_id)
        await runs.sweep_texts()
        await runs.tell(identity)

    async def _import(self, identity, buffer, name: str = "run") -> None:
        await self._import_files(identity, [name], [buffer])

    async def _import_files(self, identity, names: list, files: list) -> None:
        """What may come as files is in model_files.py."""
        session, runs = self._session, self._runs
        run_id = await keep_files(session, names, files)
        session.emit("runs", reply_to=identity, runs=await runs.rows(), imported=run_id)
        if not session.job.active:
            try:
                await runs.bring_in(identity, run_id)
            except (FormatError, ConfigError, DataError):
                await runs.store.delete(run_id)
                await runs.tell()
                raise

    async def _compare(self, identity, run_ids: list) -> None:
        """runs.compare: 2 to 8 saved runs side by side, as they were saved last; the live one as it stands now."""
        if not all(isinstance(each, str) for each in run_ids) or len(set(run_ids)) != len(run_ids):
            raise ConfigError("compare", "each run is named once", f"{run_ids!r:.80} came")
        if not 2 <= len(run_ids) <= MOST_RUNS:
            raise ConfigError("compare", f"2 to {MOST_RUNS} runs are compared", f"{len(run_ids)} came", "choose others")
        training, checkpoints = self._session.training, []
        async with AsyncExitStack() as stack:
            for run_id in run_ids:
                run = await stack.enter_async_context(self._runs.store.held(run_id))
                checkpoints.append(run.load())
                if run_id == self._runs.held_id and training.trainer is not None:
                    live = training.trainer
                    checkpoints[-1] = replace(checkpoints[-1], history=list(live.history), step=live.step, training=dict(live.settings))
            found = compare(checkpoints)
        self._session.emit("compared", reply_to=identity, run_ids=run_ids, **found.to_dict())
