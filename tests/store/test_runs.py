"""RunStore on every volume: in memory, on a disk, and on a browser's file system (its fake)."""

import asyncio

import pytest

from posttrainllm.errors import (
    FormatError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreMissingError,
    StoreQuotaError,
)
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.opfs import OpfsVolume
from posttrainllm.store.runs import RunStore, now
from tests.store.fake_opfs import FakeBrowser, FakeUint8Array
from tests.store.samples import Source, checkpoint
from tests.store.test_checkpoint import same

KINDS = ["memory", "disk", "opfs"]


class Clock:
    """A second later at each look."""

    def __init__(self):
        self.second = 0

    def __call__(self):
        self.second += 1
        return f"2026-11-30T10:{self.second // 60:02}:{self.second % 60:02}Z"


@pytest.fixture(params=KINDS)
def volume(request, tmp_path):
    if request.param == "memory":
        return MemoryVolume()
    if request.param == "disk":
        return DiskVolume(tmp_path / "runs")
    return OpfsVolume(FakeBrowser().root, FakeUint8Array, patience_seconds=0)


@pytest.fixture
def store(volume):
    return RunStore(volume, Clock())


def filled(store, name="a run", step=3):
    with now(store.create(name)) as run:
        run.save(checkpoint(step))
    return run.id


def damage(store, run_id, name, at):
    """Flip a byte of a file behind the store's back."""
    folder = now(store.volume.open_run(run_id))
    file = folder.files[name]
    file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 255]))
    folder.close()


def test_save_and_load_everything(store):
    original = checkpoint()
    with now(store.create("  a\n run ")) as run:
        assert run.name == "a run"
        written = run.save(original)
        again = run.load()
        assert same(checkpoint(), original), "saving changes nothing of what it is given"
        original.name, original.created, original.updated = "a run", run.created, again.updated
        assert again.created == run.created < again.updated
        assert same(original, again) and again.resumable
    (info,) = now(store.list())
    assert (info.id, info.name, info.state, info.step, info.validation_loss_nats) == (run.id, "a run", "good", 3, 5.5)
    assert info.loss_nats == 5.545 - 3 / 16 and info.parameters == 15
    assert info.payload_bytes == written and info.bytes == now(store.total_bytes()) == written + 2 * 4096
    assert info.resumable and not info.corrupt and not info.open and info.note == ""
    assert (info.created, info.updated) == (again.created, again.updated)


def test_a_new_store_finds_what_the_last_one_saved(store, volume):
    run_id = filled(store)
    with now(RunStore(volume).open(run_id)) as run:
        assert run.load().step == 3 and run.name == "a run" and run.recovered == ""
        run.save(checkpoint(4))
    with now(RunStore(volume).open(run_id)) as run:
        assert run.load().step == 4


def test_several_runs_the_last_updated_first(store):
    first, second = filled(store, "first"), filled(store, "second")
    with now(store.open(first)) as run:
        run.save(checkpoint(9))
        listed = now(store.list())
        assert [(info.name, info.open) for info in listed] == [("first", True), ("second", False)]
    assert {info.id for info in listed} == {first, second}


def test_an_empty_run_is_listed_and_cannot_be_loaded(store):
    with now(store.create("new")) as run:
        with pytest.raises(StoreMissingError, match="nothing was saved"):
            run.load()
        (info,) = now(store.list())
    assert info.state == "empty" and not info.resumable and "train it or delete it" in info.note


def test_rename_of_a_closed_and_of_an_open_run(store):
    run_id = filled(store)
    now(store.rename(run_id, "renamed"))
    assert now(store.list())[0].name == "renamed"
    with now(store.open(run_id)) as run:
        assert run.name == run.load().name == "renamed"
        now(store.rename(run_id, "renamed ü again"))
        run.save(checkpoint(4, name="what the trainer thinks it is called"))
        assert run.load().name == "renamed ü again"
    (info,) = now(store.list())
    assert info.name == "renamed ü again" and info.created == "2026-11-30T10:00:02Z"


def test_names_are_one_line_and_never_empty(store):
    for given, kept in (("", "untitled"), (" \n\t", "untitled"), ("x" * 500, "x" * 200), ("half \ud83d", "half ?")):
        with now(store.create(given)) as run:
            assert run.name == kept


def test_duplicate_is_a_run_of_its_own(store):
    run_id = filled(store)
    other = now(store.duplicate(run_id, "copy"))
    with now(store.open(run_id)) as run:
        run.save(checkpoint(8))
        third = now(store.duplicate(run_id, "copy of an open run"))
    assert {info.id: info.step for info in now(store.list())} == {run_id: 8, other: 3, third: 8}
    with now(store.open(other)) as run:
        assert run.load().name == "copy" and same_tensors(run.load(), checkpoint(3))


def same_tensors(a, b):
    return all(bytes(a.weights[name].view()) == bytes(b.weights[name].view()) for name in b.weights)


def test_delete(store, volume):
    keep, gone = filled(store, "keep"), filled(store, "gone")
    with now(store.open(gone)), pytest.raises(StoreBusyError, match="is closed before it is deleted"):
        now(store.delete(gone))
    now(store.delete(gone))
    assert [info.id for info in now(store.list())] == [keep]
    for attempt in (store.delete(gone), store.open(gone), store.rename(gone, "x"), store.duplicate(gone, "x")):
        with pytest.raises(StoreMissingError):
            now(attempt)


def test_export_is_the_saved_file_and_import_brings_it_back(store):
    run_id = filled(store)

    async def exported():
        return b"".join([bytes(chunk) async for chunk in store.export(run_id)])

    data = asyncio.run(exported())
    with now(store.open(run_id)) as run:
        payload = run.payload()
        assert data == bytes(payload.read_at(0, payload.size)), "a copy of the slot, byte for byte"
    now(store.rename(run_id, "renamed"))
    renamed = asyncio.run(exported())
    assert Checkpoint.from_safetensors(renamed).name == "renamed"
    for file in (data, Source(renamed), FakeUint8Array(data)):
        other = now(store.import_(file))
        with now(store.open(other)) as run:
            again = run.load()
            assert same_tensors(again, checkpoint(3)) and again.history == checkpoint(3).history and again.resumable
    assert [info.name for info in now(store.list()) if info.id != run_id].count("a run") == 2
    assert now(store.import_(data, "mine")) and "mine" in {info.name for info in now(store.list())}


@pytest.mark.parametrize("data", [b"", b"text", checkpoint().to_bytes()[:-1]])
def test_an_import_that_is_no_run_leaves_nothing(store, data):
    with pytest.raises(FormatError, match="^the imported file: "):
        now(store.import_(data))
    assert now(store.list()) == []


def test_a_run_open_here_is_busy_here(store):
    run_id = filled(store)
    with now(store.open(run_id)), pytest.raises(StoreBusyError):
        now(store.open(run_id))
    now(store.open(run_id)).close()
    with pytest.raises(StoreBusyError, match="that one exists"):
        now(store.create("again", run_id))


def test_a_run_open_in_another_tab_is_busy_and_still_listed(store, volume):
    run_id = filled(store)
    other = RunStore(volume)
    with now(store.open(run_id)) as run:
        for attempt in (other.open(run_id), other.delete(run_id), other.rename(run_id, "x")):
            with pytest.raises(StoreBusyError):
                now(attempt)
        assert now(other.list())[0].state == "good"
        run.save(checkpoint(4))
        assert now(other.list())[0].step == 4
    now(other.rename(run_id, "x"))


def test_a_closed_run_is_not_used(store):
    run = now(store.create("x"))
    run.close()
    run.close()
    for use in (run.load, run.export, lambda: run.save(checkpoint()), lambda: run.rename("y")):
        with pytest.raises(StoreError, match="it was closed") as caught:
            use()
        assert caught.value.code == "E-STORE-CLOSED"


def test_damage_is_survived_once_and_then_listed(store):
    run_id = filled(store)
    with now(store.open(run_id)) as run:
        run.save(checkpoint(4))
    sound = filled(store, "sound")
    damage(store, run_id, "slot-B.bin", 5000)
    with now(store.open(run_id)) as run:
        assert run.load().step == 3 and "the other was opened, from step 3" in run.recovered
    damage(store, run_id, "slot-A.bin", 5000)
    with now(store.open(run_id)) as run, pytest.raises(StoreCorruptError):
        run.load()
    states = {info.id: info for info in now(store.list())}
    assert states[run_id].corrupt and "none does" in states[run_id].note and not states[run_id].resumable
    assert states[sound].state == "good"
    now(store.delete(run_id))
    assert [info.id for info in now(store.list())] == [sound]


def test_runs_of_any_damage_are_listed_never_raised(store):
    run_id = filled(store)
    for name in ("slot-A.bin", "meta.bin"):
        for at in range(0, 60):
            damage(store, run_id, name, at)
            assert len(now(store.list())) == 1
    (info,) = now(store.list())
    assert info.state == "corrupt" and "no save in it passes its checksum" in info.note and info.name == run_id
    with now(store.open(run_id)) as run:
        run.rename("still usable")
        run.save(checkpoint(5))
    assert now(store.list())[0].name == "still usable" and now(store.list())[0].state == "good"


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_save(store):
    run_id = filled(store)
    broken = checkpoint(4)
    broken.cursor = {"at": object()}
    with now(store.open(run_id)) as run:
        with pytest.raises(FormatError):
            run.save(broken)
        assert run.load().step == 3


@pytest.mark.parametrize("kind", ["memory", "opfs"])
def test_quota_in_the_middle_of_a_save_at_every_size(kind):
    """However much room there is, a save works or says Quota, and the one before it is unharmed."""
    needed = len(checkpoint().to_bytes()) + 4096
    outcomes = set()
    for spare in [*range(0, 2 * needed + 9000, 397), None]:
        room = None if spare is None else 8192 + spare
        opfs = FakeBrowser(room, most_bytes=700)
        volume = MemoryVolume(room) if kind == "memory" else OpfsVolume(opfs.root, FakeUint8Array, patience_seconds=0)
        store, good = RunStore(volume), None
        try:
            with now(store.create("x", "x")) as run:
                for step in (1, 2, 3):
                    run.save(checkpoint(step))
                    good = step
        except StoreQuotaError as error:
            assert "the save before this one is unharmed" in str(error)
        outcomes.add(good)
        if good:
            with now(store.open("x")) as run:
                assert run.load().step == good
            try:
                now(store.duplicate("x", "copy"))
                assert len(now(store.list())) == 2
            except StoreQuotaError:
                assert [info.id for info in now(store.list())] == ["x"], "a copy that does not fit leaves nothing"
    assert outcomes == {None, 1, 3}


def test_ids_that_point_elsewhere_are_refused(store):
    for run_id in ("../x", "a/b", "", ".hidden", "x" * 65, "a\x00b"):
        for attempt in (store.open(run_id), store.delete(run_id)):
            with pytest.raises(StoreMissingError, match="an id is"):
                now(attempt)


def test_now_refuses_a_coroutine_that_waits():
    async def waits():
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="use await"):
        now(waits())
