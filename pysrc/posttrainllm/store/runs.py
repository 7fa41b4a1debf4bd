"""The runs a person has: list, create, open, rename, duplicate, delete, export, import.

Whatever finds, opens or removes a folder is a coroutine, since a browser's file system is asynchronous there. An open
run is not: `run.save(checkpoint)` and `run.load()` are plain calls everywhere, so a training loop need not be a
coroutine to save. Natively the coroutines never wait, and `now(...)` runs one without an event loop:

    store = RunStore(DiskVolume("runs"))               # in a page: RunStore(await OpfsVolume.open())
    run = now(store.create("shakespeare"))             # in a page: await store.create("shakespeare")
    run.save(checkpoint); checkpoint = run.load(); run.close()

A run is held from open to close, by one tab or process. Saving never asks beforehand whether there is room.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, Self, TypeVar

from posttrainllm.errors import StoreBusyError, StoreCorruptError, StoreError
from posttrainllm.store.buffers import FileRange, as_source, pieces
from posttrainllm.store.checkpoint import PREFIX, Checkpoint
from posttrainllm.store.journal import Journal
from posttrainllm.store.listing import RunInfo, clean_name, describe, summary_of, text
from posttrainllm.store.marks import Marks, facts_with
from posttrainllm.store.safetensors import SafeTensors, encode
from posttrainllm.store.slots import Payload, Slots
from posttrainllm.store.snapshots import Snapshots
from posttrainllm.store.volume import JOURNAL_FILES, SNAPSHOTS_FILE, Folder, Volume

_T = TypeVar("_T")


class Run:
    """An open run. All methods are synchronous; close it when done."""

    def __init__(self, store: RunStore, run_id: str, folder: Folder):
        self.id = run_id
        self._store = store
        self._slots = Slots(folder, f"run {run_id}")
        self._snapshots = Snapshots(folder.files[SNAPSHOTS_FILE], f"run {run_id}")
        self._journal = Journal([folder.files[name] for name in JOURNAL_FILES], f"run {run_id}")
        self._facts: dict[str, Any] = dict(self._slots.facts())
        self._closed = False

    @property
    def name(self) -> str:
        return text(self._facts, "name") or self.id

    @property
    def created(self) -> str:
        return text(self._facts, "created")

    @property
    def newest(self) -> tuple | None:
        """Which slot holds the newest save, and its page, as far as it was seen; to be put back where a save turns out not to be kept."""
        return self._slots.newest

    @newest.setter
    def newest(self, value: tuple | None) -> None:
        self._slots.newest = value

    @property
    def generation(self) -> int:
        """Of its newest save, as far as it was seen; 0 before there is one."""
        return self._slots.generation

    @property
    def recovered(self) -> str:
        """A sentence where `load` found one of the two saves damaged and opened the other; else empty."""
        return self._slots.recovered

    @property
    def snapshots(self) -> Snapshots:
        """Its weights at a few earlier steps, where it keeps such; its exported file has none."""
        self._check_open()
        return self._snapshots

    @property
    def journal(self) -> Journal:
        """The corrections made on it and the versions learnt from them (tune/continual); its exported file has none."""
        self._check_open()
        return self._journal

    def save(self, checkpoint: Checkpoint) -> int:
        """Save under the run's own name and time of creation; the bytes written. Errors leave the last save as it was.

        FormatError where the checkpoint cannot be written, StoreQuotaError where there is no room.
        """
        self._check_open()
        own = {"name": self.name, "created": self.created or checkpoint.created, "marks": self.marks.to_dict()}
        kept = replace(checkpoint, updated=self._store.clock(), **own)
        return self._save(kept.to_chunks(), kept)

    def load(self) -> Checkpoint:
        """The newest sound save. Tensors are read when used, until the run is closed or saved twice more.

        StoreMissingError where nothing was saved, StoreCorruptError, StoreVersionError.
        """
        payload = self.payload()
        return replace(Checkpoint.from_safetensors(payload, f"run {self.id}"), name=self.name, marks=self.marks.to_dict())

    def payload(self) -> Payload:
        """The newest sound save as a source of the bytes of a .safetensors file."""
        self._check_open()
        try:
            return self._slots.load()[0]
        except StoreCorruptError as error:
            self._store.corrupt[self.id] = str(error)
            raise

    def rename(self, name: str) -> None:
        self._check_open()
        self._tell(facts_with(clean_name(name), self.created or self._store.clock(), self.marks))

    @property
    def marks(self) -> Marks:
        """The tags and the note that a person gave it."""
        return Marks.of(self._facts)

    def mark(self, marks: Marks, cut: bool = False) -> None:
        """Give it these tags and this note. ConfigError where they are too long to lie beside its name; with `cut` they are shortened."""
        self._check_open()
        self._tell(facts_with(self.name, self.created, marks, cut))

    def _tell(self, facts: dict) -> None:
        self._slots.rename(facts)
        self._facts = facts

    def export(self) -> Iterator[Any]:
        """The run as a .safetensors file, in chunks of at most 4 MiB: the saved bytes, with the name it has now."""
        payload = self.payload()
        parsed = SafeTensors(payload, f"run {self.id}")
        checkpoint = Checkpoint.from_safetensors(payload, f"run {self.id}")
        marks = self.marks.to_dict()
        if (checkpoint.name, checkpoint.marks) == (self.name, marks):
            return payload.chunks()
        others = {key: value for key, value in parsed.metadata.items() if key != PREFIX + "marks"}
        own = replace(checkpoint, name=self.name, marks=marks).metadata()
        return encode([(name, *tensor) for name, tensor in parsed.tensors.items()], {**others, **own})

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._slots.close()
            self._store.opened.pop(self.id, None)

    def _save(self, chunks: Iterable[Any], checkpoint: Checkpoint) -> int:
        written = self._slots.save(chunks, summary_of(checkpoint))
        self._store.corrupt.pop(self.id, None)
        return written

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(
                f"run {self.id}", "it is open while it is used", "it was closed", "open it again", code="E-STORE-CLOSED"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RunStore:
    """All runs on a volume. `clock` gives the time as ISO 8601 in UTC."""

    def __init__(self, volume: Volume, clock: Callable[[], str] | None = None):
        self.volume = volume
        self.clock = clock or _utc
        self.opened: dict[str, Run] = {}
        self.corrupt: dict[str, str] = {}  # what opening found out that a list cannot see: damage inside a payload

    async def list(self) -> list[RunInfo]:
        """Every run, the last updated first. Reads two pages a file, never a payload; never raises for a single run."""
        found = []
        for run_id in await self.volume.list_runs():
            try:
                heads = await self.volume.peek(run_id)
            except StoreError as error:
                found.append(RunInfo(run_id, run_id, "unreadable", open=run_id in self.opened, note=str(error)))
            else:
                found.append(describe(run_id, heads, self.corrupt.get(run_id, ""), run_id in self.opened))
        return sorted(found, key=lambda info: (info.updated or info.created, info.id), reverse=True)

    async def total_bytes(self) -> int:
        """What all runs take together: the sum of their files' sizes, since a browser's own estimate is wrong."""
        return sum(info.bytes for info in await self.list())

    async def create(self, name: str, run_id: str | None = None) -> Run:
        """A new run, open and empty; nothing is left where that fails. StoreBusyError where `run_id` exists."""
        run_id = run_id or f"{self.clock()[:10]}-{os.urandom(5).hex()}"  # random, not frozen into a memory snapshot
        if run_id in await self.volume.list_runs():
            raise StoreBusyError(
                f"run {run_id}", "a new run has an id of its own", "that one exists", "open it instead"
            )
        try:
            run = await self._open(run_id, create=True)
        except StoreBusyError:
            raise
        except BaseException:
            with contextlib.suppress(StoreError):  # there was room for the folder and not for all its files
                await self.volume.delete_run(run_id)
            raise
        try:
            run.rename(name)
        except BaseException:
            await self._discard(run)
            raise
        return run

    async def open(self, run_id: str) -> Run:
        """Hold a run. StoreMissingError; StoreBusyError where it is open here or elsewhere."""
        if run_id in self.opened:
            raise StoreBusyError(f"run {run_id}", "it is opened once", "it is open already", "use that one or close it")
        return await self._open(run_id)

    async def hold(self, run_id: str) -> Run:
        """Hold the run of that id, which is made where it is not there."""
        return await self._open(run_id, create=True)

    async def rename(self, run_id: str, name: str) -> None:
        async with self.held(run_id) as run:
            run.rename(name)

    async def duplicate(self, run_id: str, name: str) -> str:
        """A second run with the same newest save, corrections and, where there is room, snapshots; its id. Nothing is left behind where it fails."""
        async with self.held(run_id) as run:
            checkpoint = run.load()
            return await self._add(name, run.payload().chunks(), checkpoint, run)

    async def delete(self, run_id: str) -> None:
        """StoreBusyError while the run is open here or elsewhere."""
        if run_id in self.opened:
            raise StoreBusyError(
                f"run {run_id}", "a run is closed before it is deleted", "it is open", "stop it or open another first"
            )
        await self.volume.delete_run(run_id)
        self.corrupt.pop(run_id, None)

    async def export(self, run_id: str) -> AsyncIterator[Any]:
        """The run as the chunks of a .safetensors file."""
        async with self.held(run_id) as run:
            for chunk in run.export():
                yield chunk

    async def import_(self, file: Any, name: str | None = None) -> str:
        """Keep an exported run (bytes, a Uint8Array, or a source); its new id. FormatError, before anything is written,
        where it is not one; nothing is left behind where there is no room for it."""
        source = as_source(file)
        checkpoint = Checkpoint.from_safetensors(source, "the imported file")
        return await self._add(name or checkpoint.name, pieces(FileRange(source, 0, source.size)), checkpoint)

    async def keep(self, checkpoint: Checkpoint) -> str:
        """Keep a checkpoint as a new run; its id. Nothing is left behind where there is no room for it."""
        return await self._add(checkpoint.name, checkpoint.to_chunks(), checkpoint)

    async def _add(self, name: str, chunks: Iterable[Any], checkpoint: Checkpoint, model: Run | None = None) -> str:
        run = await self.create(name)
        try:
            if model is not None:  # before the save: a copy that was cut off is empty, never a run without its corrections
                model.journal.copy_to(run.journal)
            if (marks := model.marks if model is not None else Marks.of(checkpoint.marks)) != Marks():
                run.mark(marks, cut=True)
            run._save(chunks, checkpoint)
        except BaseException:
            await self._discard(run)
            raise
        if model is not None:
            with contextlib.suppress(StoreError):
                model.snapshots.copy_to(run.snapshots)
        run.close()
        return run.id

    async def _discard(self, run: Run) -> None:
        run.close()
        with contextlib.suppress(StoreError):  # the error that led here is the one to tell
            await self.volume.delete_run(run.id)

    async def _open(self, run_id: str, create: bool = False) -> Run:
        folder = await self.volume.open_run(run_id, create)
        try:
            run = Run(self, run_id, folder)
        except BaseException:
            folder.close()
            raise
        self.opened[run_id] = run
        return run

    @contextlib.asynccontextmanager
    async def held(self, run_id: str) -> AsyncIterator[Run]:
        """The run if it is open here already, else open for as long as this lasts."""
        run = self.opened.get(run_id)
        if run is not None:
            yield run
            return
        run = await self._open(run_id)
        try:
            yield run
        finally:
            run.close()


def now(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits, as all of these are on a disk or in memory; inside an event loop too."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("this volume waits for its browser: use await")


def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
