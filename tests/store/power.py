"""A whole volume whose power can be cut at any of its operations, whose medium may lose, reorder and tear what was not flushed, and
which may say at any write that there is no room.

An operation is a write, a truncation, a flush, the making or removing of a file or folder. faults.py has one open run and cuts at bytes;
here it is the store with all its runs, and what a list, a copy, a deletion do to it.
"""

import random

from posttrainllm.errors import StoreBusyError, StoreQuotaError
from posttrainllm.store.volume import FILES, HEAD_BYTES, check_run_id, missing
from tests.store.faults import Killed, apply

SECTOR_BYTES = 512


class Meter:
    """Counts operations. At number `stop` the power goes: before it, or with `part` of it done where it is a write. At number `full` (and, if
    `lasting`, at every write after it) there is no room."""

    def __init__(self, stop=None, part=0.0, full=None, lasting=False):
        self.stop, self.part, self.full, self.lasting = stop, part, full, lasting
        self.count, self.dead, self.refusals, self.kinds = 0, False, 0, []

    def spend(self, kind, nbytes=0):
        """(how much of it is done, what is raised then or None)."""
        if self.dead:
            raise Killed
        number, self.count = self.count, self.count + 1
        self.kinds.append(kind)
        if number == self.stop:
            self.dead = True
            return (int(nbytes * self.part) if kind == "write" else 0), Killed()
        refused = self.full is not None and (number == self.full or (self.lasting and number > self.full))
        if refused and kind in ("write", "make"):
            self.refusals += 1
            return nbytes // 3, StoreQuotaError("saving", "there is room for the save", "there is none", "delete a run or free disk space")
        return nbytes, None

    def instant(self, kind):
        """An operation that is done whole or not at all."""
        _, raised = self.spend(kind)
        if raised:
            raise raised


class PowerFile:
    def __init__(self, meter, image=b""):
        self.meter, self.seen, self.durable, self.pending = meter, bytearray(image), bytearray(image), []

    def size(self):
        return len(self.seen)

    def read_at(self, offset, nbytes):
        return bytes(self.seen[offset : offset + nbytes])

    def read_into(self, offset, target):
        target[:] = self.read_at(offset, len(target))

    def write_at(self, offset, piece):
        data = bytes(piece)
        done, raised = self.meter.spend("write", len(data))
        self._do(("write", offset, data[:done]))
        if raised:
            raise raised

    def truncate(self, nbytes):
        self.meter.instant("truncate")
        self._do(("truncate", nbytes, b""))

    def flush(self):
        self.meter.instant("flush")
        self.durable[:] = self.seen
        self.pending.clear()

    def close(self): ...

    def _do(self, operation):
        apply(self.seen, operation)
        self.pending.append(operation)

    def after(self, mode, chance):
        """The medium after the cut. Of what was not flushed "all" arrived (only the process died), "none" did, or "sectors": of each write any
        sectors, of each truncation perhaps none, in any order."""
        if mode == "all":
            return bytes(self.seen)
        data = bytearray(self.durable)
        if mode == "sectors":
            parts = []
            for kind, offset, piece in self.pending:
                if kind == "truncate":
                    parts.append((kind, offset, piece))
                at = 0
                while at < len(piece):
                    end = min(len(piece), at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES)
                    parts.append((kind, offset + at, piece[at:end]))
                    at = end
            kept, share = [], chance.random()
            for part in parts:
                if chance.random() < share:
                    kept.append(part)
            if chance.random() < 0.5:
                chance.shuffle(kept)
            for part in kept:
                apply(data, part)
        return bytes(data)


class PowerFolder:
    def __init__(self, volume, run_id):
        self._volume, self._run_id, self.files = volume, run_id, volume.tree[run_id]

    def close(self):
        self._volume.held.discard(self._run_id)


class PowerVolume:
    """`image` maps run ids to {file name: bytes}. With `whole_deletions` a run vanishes at once, as on a disk; else file by file in any
    order, as a browser may do it."""

    def __init__(self, image=None, meter=None, whole_deletions=True, seed=0):
        self.meter, self.whole_deletions = meter or Meter(), whole_deletions
        self.chance = random.Random(seed)
        self.tree = {run_id: {name: PowerFile(self.meter, data) for name, data in files.items()} for run_id, files in (image or {}).items()}
        self.held = set()

    def after(self, mode="all", seed=0):
        """The image that the next start finds."""
        chance = random.Random(seed)
        return {run_id: {name: file.after(mode, chance) for name, file in files.items()} for run_id, files in self.tree.items()}

    async def list_runs(self):
        return sorted(self.tree)

    async def open_run(self, run_id, create=False):
        if check_run_id(run_id) in self.held:
            raise StoreBusyError(f"run {run_id}", "it is open once", "it is open already", "close it there first")
        if run_id not in self.tree:
            if not create:
                raise missing(run_id)
            self.meter.instant("make")
            self.tree[run_id] = {}
        for name in FILES:
            if name not in self.tree[run_id]:
                self.meter.instant("make")
                self.tree[run_id][name] = PowerFile(self.meter)
        self.held.add(run_id)
        return PowerFolder(self, run_id)

    async def delete_run(self, run_id):
        if run_id in self.held:
            raise StoreBusyError(f"run {run_id}", "a run is closed before it is deleted", "it is open", "close it first")
        if run_id not in self.tree:
            raise missing(run_id)
        names = list(self.tree[run_id])
        self.chance.shuffle(names)
        for name in names if not self.whole_deletions else ():
            self.meter.instant("remove")
            del self.tree[run_id][name]
        self.meter.instant("remove")
        del self.tree[run_id]

    async def peek(self, run_id):
        if run_id not in self.tree:
            raise missing(run_id)
        return {name: (file.size(), file.read_at(0, HEAD_BYTES)) for name, file in self.tree[run_id].items()}
