"""A volume whose power can be cut: what is flushed stays, what is not may be lost, torn, or arrive in any order."""

import random

from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.volume import FILES


class Killed(BaseException):
    """The process or the power went. No handler of ordinary errors may see it."""


class Power:
    """Counts down with every byte written and every truncate or flush; at 0 all stops, in the middle of a write."""

    def __init__(self, budget=None):
        self.budget = budget
        self.spent = 0

    def spend(self, wanted):
        """How much of `wanted` still happens; Killed where it is nothing."""
        if self.budget is None:
            self.spent += wanted
            return wanted
        allowed = min(wanted, self.budget - self.spent)
        self.spent += allowed
        if allowed <= 0:
            raise Killed
        return allowed


class FaultyFile:
    """A file over durable bytes, with the writes since its last flush kept apart."""

    def __init__(self, durable, power):
        self.durable, self.power = durable, power
        self.seen = bytearray(durable)  # what the living process reads
        self.pending = []

    def size(self):
        return len(self.seen)

    def read_at(self, offset, nbytes):
        return bytes(self.seen[offset : offset + nbytes])

    def read_into(self, offset, target):
        target[:] = self.read_at(offset, len(target))

    def write_at(self, offset, piece):
        data = bytes(piece)
        done = data[: self.power.spend(len(data))]
        self._do(("write", offset, done))
        if len(done) < len(data):
            raise Killed

    def truncate(self, nbytes):
        self.power.spend(1)
        self._do(("truncate", nbytes, b""))

    def flush(self):
        self.power.spend(1)
        self.durable[:] = self.seen
        self.pending.clear()

    def close(self): ...

    def _do(self, operation):
        apply(self.seen, operation)
        self.pending.append(operation)


def apply(data, operation):
    kind, offset, piece = operation
    if kind == "truncate":
        data.extend(bytes(max(0, offset - len(data))))
        del data[offset:]
    elif piece:
        data.extend(bytes(max(0, offset + len(piece) - len(data))))
        data[offset : offset + len(piece)] = piece


class FaultyFolder:
    """An open run on faulty files; `durable` maps names to what the medium holds."""

    def __init__(self, durable, power=None):
        self.power = power or Power()
        self.files = {name: FaultyFile(bytearray(durable.get(name, b"")), self.power) for name in FILES}

    def close(self): ...

    def after(self, mode, seed=0):
        """What the medium holds after the cut. Of the unflushed writes "all" arrived (only the process was killed),
        "none" did, or "some": a random half, in random order, each torn at random places."""
        chance = random.Random(seed)
        survived = {}
        for name, file in self.files.items():
            data = bytearray(file.seen if mode == "all" else file.durable)
            if mode == "some":
                operations = [operation for operation in file.pending if chance.random() < 0.5]
                chance.shuffle(operations)
                for kind, offset, piece in operations:
                    begin, end = sorted((chance.randint(0, len(piece)), chance.randint(0, len(piece))))
                    whole = kind == "truncate" or chance.random() < 0.3
                    apply(data, (kind, offset, piece) if whole else (kind, offset + begin, piece[begin:end]))
            survived[name] = data
        return survived


class FaultyVolume(MemoryVolume):
    """A memory volume whose folders are faulty; `cut(mode)` gives the volume that the next start finds."""

    def __init__(self, durable=None, power=None):
        super().__init__()
        self.durable = durable or {}
        self.power = power or Power()
        self.folders = {}

    async def list_runs(self):
        return sorted(self.durable)

    async def open_run(self, run_id, create=False):
        self.durable.setdefault(run_id, {})
        folder = self.folders[run_id] = FaultyFolder(self.durable[run_id], self.power)
        return folder

    async def peek(self, run_id):
        return {name: (len(data), bytes(data[:8192])) for name, data in self.durable[run_id].items()}

    def cut(self, mode, seed=0):
        after = {run_id: folder.after(mode, seed) for run_id, folder in self.folders.items()}
        return FaultyVolume(self.durable | after)
