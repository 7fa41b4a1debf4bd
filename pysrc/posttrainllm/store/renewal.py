"""A run whose files were removed while it was open: by the browser that needed room, by a person, by another program.

Its open files can go on without a word then, so that a save seems to go well and is in no folder. So a save is looked for where a reader
would find it; where it is not, the run is held anew under its id and saved again.
"""

from __future__ import annotations

import contextlib

from posttrainllm.errors import StoreError, StoreMissingError, StoreQuotaError
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import Run, RunStore
from posttrainllm.store.slots import decode_page
from posttrainllm.store.volume import PAGE_BYTES, SLOT_FILES


async def save(store: RunStore, run: Run, checkpoint: Checkpoint) -> tuple[Run, int, StoreError | None]:
    """(the run that is held now, bytes written, what to tell or None) of a save of a run that trains.

    Raises as `Run.save` does; a run that could not be held anew is closed then, and says so when it is used.
    """
    fault, before = None, run.newest
    try:
        written = run.save(checkpoint)
    except StoreQuotaError:
        raise
    except StoreError as error:
        fault, written = error, 0
    if not await is_gone(store, run):
        if fault is not None:
            raise fault
        await require_kept(store, run, before)
        return run, written, None
    run = await renewed(store, run)
    written = run.save(checkpoint)
    await require_kept(store, run, None)
    told = StoreError(
        f"run {run.name}", "what is saved stays until you delete it", "it was removed, by the browser or by hand",
        f"it is saved anew, from step {checkpoint.step:,}; export it to be safe", code="E-STORE-GONE",
    )  # fmt: skip
    return run, written, told


async def is_gone(store: RunStore, run: Run) -> bool:
    """Whether the files of an open run are in no folder any more."""
    try:
        heads = await store.volume.peek(run.id)
    except StoreMissingError:
        return True
    return not any(name in heads for name in SLOT_FILES)


async def require_kept(store: RunStore, run: Run, before: tuple | None) -> None:
    """Raise StoreQuotaError where a reader would not find the newest save of an open run: a browser without room (Chromium, in a private
    window) takes writes that it then drops. The save before, `run.newest` as it was then, counts again, and is not written over."""
    heads = await store.volume.peek(run.id)
    pages = [decode_page(heads[name][1][:PAGE_BYTES]) for name in SLOT_FILES if name in heads]
    if max((page.generation for page in pages), default=0) < run.generation:
        run.newest = before
        raise StoreQuotaError(
            f"saving run {run.name}", "the browser has room for the save", "it took it and did not keep it",
            "delete a run or free disk space; the save before this one is unharmed",
        )  # fmt: skip


async def renewed(store: RunStore, run: Run) -> Run:
    """The run held anew, empty but for its name, tags and note, and the corrections and snapshots that its old files still give."""
    name, marks = run.name, run.marks
    kept = await RunStore(MemoryVolume()).create(name)
    for part in ("journal", "snapshots"):
        with contextlib.suppress(StoreError):
            getattr(run, part).copy_to(getattr(kept, part))
    run.close()
    new = await store.hold(run.id)
    try:
        new.rename(name)
        new.mark(marks, cut=True)
        kept.journal.copy_to(new.journal)
        with contextlib.suppress(StoreError):
            kept.snapshots.copy_to(new.snapshots)
    except BaseException:
        new.close()
        raise
    return new
