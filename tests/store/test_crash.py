"""A kill at any byte of a save leaves the last good one, whatever became of the writes that were not flushed."""

import pytest

from posttrainllm.errors import StoreCorruptError, StoreMissingError, StoreQuotaError
from posttrainllm.store import slots as slots_module
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.slots import Slots
from tests.store.faults import FaultyFolder, FaultyVolume, Killed, Power
from tests.store.samples import checkpoint

MODES = ["all", "none", "some"]
OLD, NEWER, NEWEST = (bytes([number]) * length for number, length in ((1, 90), (2, 150), (3, 120)))


def chunks(payload):
    return [payload[:50], payload[50:]]


def read(folder, make=Slots):
    payload, summary = make(folder, "run x").load()
    return bytes(payload.read_at(0, payload.size)), summary["step"]


def saved(*payloads):
    """The medium after these saves, each complete."""
    folder = FaultyFolder({})
    slots = Slots(folder, "run x")
    for step, payload in enumerate(payloads):
        slots.save(chunks(payload), {"step": step})
    return folder.after("none")


def kill_everywhere(before, payload, step, mode, make=Slots):
    """(what a new start finds, whether the save had ended) for a kill after each byte and operation of one save."""
    whole = FaultyFolder(before)
    make(whole, "run x").save(chunks(payload), {"step": step})
    for budget in range(whole.power.spent + 1):
        folder = FaultyFolder(before, Power(budget))
        try:
            make(folder, "run x").save(chunks(payload), {"step": step})
            ended = True
        except Killed:
            ended = False
        assert ended == (budget == whole.power.spent)
        yield folder.after(mode, seed=budget), ended


@pytest.mark.parametrize("mode", MODES)
def test_kill_at_every_byte_of_the_third_save(mode):
    before = saved(OLD, NEWER)
    kept = 0
    for after, ended in kill_everywhere(before, NEWEST, 2, mode):
        found = read(FaultyFolder(after))
        assert found in ((NEWER, 1), (NEWEST, 2))
        assert not ended or found == (NEWEST, 2), "a save that returned is there"
        kept += found == (NEWER, 1)
        if kept % 500 == 1 or ended:  # and the run goes on from there
            folder = FaultyFolder(after)
            Slots(folder, "run x").save(chunks(OLD), {"step": 9})
            assert read(FaultyFolder(folder.after("none"))) == (OLD, 9)
    assert kept > 4096, "the sweep did kill before the new save counted"


@pytest.mark.parametrize("mode", MODES)
def test_kill_at_every_byte_of_the_first_save(mode):
    for after, ended in kill_everywhere(saved(), OLD, 0, mode):
        folder = FaultyFolder(after)
        try:
            assert read(folder) == (OLD, 0)
        except (StoreMissingError, StoreCorruptError):
            assert not ended
            Slots(folder, "run x").save(chunks(NEWER), {"step": 1})
            assert read(folder) == (NEWER, 1)


class Unordered(Slots):
    """A mutant: no flush between payload and header, and no checksum of the payload. (Either alone is enough.)"""

    def _write(self, file, chunks):
        flush, file.flush = file.flush, lambda: None
        try:
            return super()._write(file, chunks)
        finally:
            file.flush = flush

    def _passes(self, name, page):
        return True


class SameSlot(Slots):
    """A mutant: always the first slot."""

    def _find(self):
        raise StoreMissingError("mutant")


@pytest.mark.parametrize("mutant", [Unordered, SameSlot])
def test_the_sweep_catches_a_wrong_order(mutant):
    before, lost = saved(OLD), 0
    for after, _ in kill_everywhere(before, NEWEST, 1, "some", mutant):
        try:
            reader = mutant if mutant is Unordered else Slots
            found = read(FaultyFolder(after), reader)
            lost += found not in ((OLD, 0), (NEWEST, 1))
        except (StoreCorruptError, StoreMissingError):
            lost += 1
    assert lost > 0


@pytest.mark.parametrize("mode", MODES)
def test_kill_during_a_rename_keeps_one_of_the_names(mode):
    start = FaultyVolume()
    run = now(RunStore(start).create("first", "x"))
    run.rename("second")
    base = start.cut("none").durable
    names = set()
    for budget in range(4096 + 2):
        volume = FaultyVolume({"x": dict(base["x"])}, Power(budget))
        try:
            now(RunStore(volume).open("x")).rename("third")
        except Killed:
            pass
        names.add(now(RunStore(volume.cut(mode, budget)).open("x")).name)
    assert names == {"second", "third"}


@pytest.mark.parametrize("mode", MODES)
def test_runs_saved_and_killed_again_and_again(mode):
    """A run killed at some place of every save, and started again, never falls behind its last good save."""
    volume = FaultyVolume()
    run = now(RunStore(volume).create("long", "x"))
    run.save(checkpoint(step=1))
    good = 1
    whole = volume.power.spent
    for step in range(2, 60):
        volume = volume.cut(mode, seed=step)
        volume.power.budget = (step * 7919) % (whole + whole // 4)
        run = now(RunStore(volume).open("x"))
        assert run.load().step in (good, step - 1)
        good = run.load().step
        try:
            run.save(checkpoint(step=step))
            good = step
        except Killed:
            pass
    assert good > 2


def test_a_save_that_finds_no_room_leaves_the_last_one(monkeypatch):
    before = saved(OLD, NEWER)
    for operation in range(8):
        folder = FaultyFolder(before)
        file, count = folder.files["slot-A.bin"], [0]

        def fail(offset, piece, write=file.write_at, count=count, stop=operation):
            if count[0] == stop:
                write(offset, bytes(piece)[:20])  # a part of it still went
                raise StoreQuotaError("save", "there is room", "there is none", "delete a run")
            count[0] += 1
            write(offset, piece)

        file.write_at = fail
        slots = Slots(folder, "run x")
        if operation < 4:
            with pytest.raises(StoreQuotaError):
                slots.save(chunks(NEWEST), {"step": 2})
            assert file.size() == 0, "the room is given back"
            assert read(folder) == (NEWER, 1)
            file.write_at = type(file).write_at.__get__(file)
            slots.save(chunks(NEWEST), {"step": 2})
        else:  # blank page, two chunks and a header are four writes
            slots.save(chunks(NEWEST), {"step": 2})
        assert read(folder) == (NEWEST, 2)


def test_an_interrupted_producer_leaves_the_last_save():
    folder = FaultyFolder(saved(OLD, NEWER))

    def broken():
        yield NEWEST[:10]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Slots(folder, "run x").save(broken(), {"step": 2})
    assert read(folder) == (NEWER, 1)


def test_saves_alternate_and_count_up():
    folder = FaultyFolder({})
    slots = Slots(folder, "run x")
    for step in range(5):
        slots.save(chunks(OLD), {"step": step})
        name = ("slot-A.bin", "slot-B.bin")[step % 2]
        page = slots_module.decode_page(folder.files[name].read_at(0, 4096))
        assert (page.state, page.generation, page.summary) == ("good", step + 1, {"step": step})
        assert folder.files[name].size() == 4096 + len(OLD)
