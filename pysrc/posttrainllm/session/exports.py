"""Files that a person takes out of a Session: a run, its history. Event: exported, with the file as its buffer."""

from __future__ import annotations

from ..store.buffers import nbytes
from ..store.checkpoint import history_text


class Exports:
    """What one may take out."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"runs.export": self._run, "runs.history": self._history}

    def give(self, identity, chunks: list, name: str) -> None:
        """Send a file in chunks under its name."""
        total = sum(nbytes(chunk) for chunk in chunks)
        buffer = self._session.host.join(chunks, total)
        self._session.emit("exported", buffer, reply_to=identity, name=name, bytes=total)

    async def _run(self, identity, run_id: str) -> None:
        session = self._session
        chunks = [session.host.own(chunk) async for chunk in session.runs.store.export(run_id)]
        name = {row["run_id"]: row["name"] for row in await session.runs.rows()}.get(run_id, run_id)
        self.give(identity, chunks, f"{file_name(name)}.safetensors")

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
