"""Files that a person takes out of a Session: a run, its history. Event: exported, with the file as its buffer."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ConfigError
from ..store import renewal
from ..store.buffers import nbytes
from ..store.checkpoint import history_text
from . import standing
from .model_files import taken_out


class Exports:
    """What one may take out."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"runs.export": self._run, "runs.export_live": self._live, "runs.history": self._history}

    def give(self, identity, chunks: list, name: str, note: str = "") -> None:
        """Send a file in chunks under its name, with a sentence where there is something to know."""
        total = sum(nbytes(chunk) for chunk in chunks)
        buffer = self._session.host.join(chunks, total)
        self._session.emit("exported", buffer, reply_to=identity, name=name, bytes=total, note=note)

    async def _run(self, identity, run_id: str, format: str = "safetensors", matrices: str = "f32") -> None:
        session = self._session
        if run_id == session.runs.held_id and await self._unsaved():
            return await self._live(identity, format, matrices)
        if format == "safetensors":
            chunks = [session.host.own(chunk) async for chunk in session.runs.store.export(run_id)]
            name = {row["run_id"]: row["name"] for row in await session.runs.rows()}.get(run_id, run_id)
            self.give(identity, chunks, f"{file_name(name)}.safetensors")
            return
        await session.host.load_numpy()
        async with session.runs.store.held(run_id) as run:
            checkpoint = run.load()
            parts, ending, note = taken_out(checkpoint, format, matrices)
            self.give(identity, [session.host.own(chunk) for chunk in parts], f"{file_name(checkpoint.name)}.{ending}", note)

    async def _live(self, identity, format: str = "safetensors", matrices: str = "f32") -> None:
        """runs.export_live: what is in memory, as it stands: also where nothing of it could be saved."""
        session = self._session
        if session.model is None:
            raise ConfigError("export", "a model that was trained or opened", "there is none", "press Train, or open a run")
        runs = session.runs
        own = {"name": runs.held_name, "marks": runs.held.marks.to_dict()} if runs.held is not None else {"name": runs.held_name}
        if format != "safetensors":
            await session.host.load_numpy()
        checkpoint = replace((await standing.now(session)).checkpoint, **own)
        if format == "safetensors":
            parts, ending, note = checkpoint.to_chunks(), "safetensors", ""
        else:
            parts, ending, note = taken_out(checkpoint, format, matrices)
        self.give(identity, [session.host.own(chunk) for chunk in parts], f"{file_name(checkpoint.name)}.{ending}", note)

    async def _unsaved(self) -> bool:
        """Whether the live run is further than its file, or has none."""
        session = self._session
        trainer = standing.trainer_on(session)
        if trainer is None or trainer.broken:
            return False
        saved = session.runs.last_save()
        return saved is None or saved.step < trainer.step or await renewal.is_gone(session.runs.store, session.runs.held)

    async def _history(self, identity, run_id: str) -> None:
        store = self._session.runs.store
        held = store.opened.get(run_id)
        run = held or await store.open(run_id)
        try:
            checkpoint = run.load()
        finally:
            if held is None:
                run.close()
        self.give(identity, [history_text(checkpoint).encode()], f"{file_name(checkpoint.name)} history.txt")


def file_name(name: str) -> str:
    """A run's name as a file's: no separators, no control characters."""
    kept = "".join(c if c.isalnum() or c in " -_.,()" else "_" for c in name).strip(" .")
    return kept[:80] or "run"
