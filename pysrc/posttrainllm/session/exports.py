"""Files that a person takes out of a Session: a run, its history. Event: exported, with the file as its buffer."""

from __future__ import annotations

from ..store.buffers import nbytes
from ..store.checkpoint import history_text
from .model_files import taken_out


class Exports:
    """What one may take out."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"runs.export": self._run, "runs.history": self._history}

    def give(self, identity, chunks: list, name: str, note: str = "") -> None:
        """Send a file in chunks under its name, with a sentence where there is something to know."""
        total = sum(nbytes(chunk) for chunk in chunks)
        buffer = self._session.host.join(chunks, total)
        self._session.emit("exported", buffer, reply_to=identity, name=name, bytes=total, note=note)

    async def _run(self, identity, run_id: str, format: str = "safetensors", matrices: str = "f32") -> None:
        session = self._session
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
