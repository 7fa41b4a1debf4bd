"""Snapshots beside a run's saves: which are kept, and that nothing that befalls one harms a save."""

import pytest

from posttrainllm.errors import StoreCorruptError, StoreMissingError, StoreQuotaError
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.opfs import OpfsVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.snapshots import PLACES, Snapshots, due
from posttrainllm.store.volume import SNAPSHOTS_FILE
from tests.store.fake_opfs import FakeBrowser, FakeUint8Array
from tests.store.faults import FaultyFolder, Killed, Power
from tests.store.samples import checkpoint, tensor


def weights(step):
    return {"wte.weight": tensor(4, 3, start=step), "ln_f.bias": tensor(3, start=-step)}


def content(found):
    copies = {name: bytearray(each.nbytes) for name, each in found.items()}
    for name, copy in copies.items():
        found[name].read_into(copy)
    return copies


def of(folder):
    return Snapshots(folder.files[SNAPSHOTS_FILE], "run x")


def read(folder):
    """step → weights of every snapshot that passes its checksum."""
    snapshots = of(folder)
    return {step: content(snapshots.load(step)) for step in snapshots.steps()}


@pytest.fixture(params=["memory", "disk", "opfs"])
def volume(request, tmp_path):
    if request.param == "disk":
        return DiskVolume(tmp_path / "runs")
    return MemoryVolume() if request.param == "memory" else OpfsVolume(FakeBrowser().root, FakeUint8Array, patience_seconds=0)


def test_those_of_a_long_run_are_its_start_and_the_last_six_powers_of_two():
    snapshots = of(FaultyFolder({}))
    for step in range(5001):
        if due(step, snapshots.steps()):
            snapshots.keep(step, weights(step))
        assert len(snapshots.steps()) <= PLACES
        if step == 100:
            assert snapshots.steps() == [0, 16, 32, 64]
    assert snapshots.steps() == [0, 128, 256, 512, 1024, 2048, 4096]


def test_a_run_that_skips_steps_or_begins_late_keeps_what_it_can():
    assert due(3000, []) and not due(3001, [3000]) and due(4096, [3000])
    assert not due(15, [0]) and due(16, [0]) and due(19, [0]) and not due(31, [0, 19]) and due(40, [0, 19])
    assert not due(480, [0, 512]), "steps that are trained again are there already"


def test_kept_listed_counted_copied_and_deleted_with_the_run(volume):
    store = RunStore(volume)
    run = now(store.create("a", "a"))
    run.save(checkpoint(3))
    before = now(store.total_bytes())
    for step in (0, 16):
        run.snapshots.keep(step, weights(step))
    assert now(store.total_bytes()) - before > 2 * 4096
    assert run.load().step == 3
    run.close()
    copy = now(store.duplicate("a", "b"))
    for run_id in ("a", copy):
        with now(store.open(run_id)) as again:
            assert again.snapshots.steps() == [0, 16]
            assert content(again.snapshots.load(16)) == content(weights(16))
    with now(store.open("a")) as again, pytest.raises(StoreMissingError, match=r"those of \[0, 16\] are there"):
        again.snapshots.load(5)
    exported = now(_all(store.export("a")))
    with now(store.open(now(store.import_(exported)))) as imported:
        assert imported.snapshots.steps() == [], "an exported file is one save"
    before = now(store.total_bytes())
    now(store.delete("a"))
    assert now(store.total_bytes()) < before - 4 * 4096, "a save, two snapshots and their pages"
    with now(store.create("a", "a")) as anew:
        assert anew.snapshots.steps() == []


async def _all(chunks):
    return b"".join([bytes(chunk) async for chunk in chunks])


@pytest.mark.parametrize("mode", ["all", "none", "some"])
@pytest.mark.parametrize("full", [False, True])
def test_a_kill_at_every_byte_leaves_the_others_and_all_saves(mode, full):
    folder = FaultyFolder({})
    for step in range(PLACES if full else 2):
        of(folder).keep(step, weights(step))
    before = folder.after("none")
    before["slot-A.bin"] = bytearray(b"a save")
    had = read(FaultyFolder(before))
    may_go = {1} if full else set()
    whole = FaultyFolder(before)
    of(whole).keep(99, weights(99))
    for budget in range(0, whole.power.spent, 7 if full else 1):
        cut = FaultyFolder(before, Power(budget))
        with pytest.raises(Killed):
            of(cut).keep(99, weights(99))
        after = cut.after(mode, seed=budget)
        found = read(FaultyFolder(after))  # a checksum that fails would be raised
        assert after["slot-A.bin"] == b"a save"
        assert had.keys() - may_go <= found.keys() <= had.keys() | {99}
        assert all(content(weights(step)) == each for step, each in found.items())
        if budget % 700 == 0:  # and the next one is kept
            again = FaultyFolder(after)
            of(again).keep(99, weights(99))
            assert 99 in read(FaultyFolder(again.after("none")))
    assert read(whole).keys() == had.keys() - may_go | {99}


def test_where_there_is_no_room_the_others_stay_and_the_room_is_given_back():
    volume = MemoryVolume()
    run = now(RunStore(volume).create("a", "a"))
    run.save(checkpoint(3))
    run.snapshots.keep(0, weights(0))
    size = now(RunStore(volume).total_bytes())
    volume.limit_bytes = size + 4200
    with pytest.raises(StoreQuotaError):
        run.snapshots.keep(16, weights(16))
    assert now(RunStore(volume).total_bytes()) == size
    assert run.snapshots.steps() == [0] and run.load().step == 3


def test_damage_is_found_and_another_models_are_not_mixed_in():
    folder = FaultyFolder({})
    of(folder).keep(0, weights(0))
    of(folder).keep(16, weights(16))
    file = folder.files[SNAPSHOTS_FILE]
    last = file.size() - 1
    file.write_at(last, bytes([file.read_at(last, 1)[0] ^ 1]))
    with pytest.raises(StoreCorruptError, match="step 16"):
        of(folder).load(16)
    assert content(of(folder).load(0)) == content(weights(0))
    of(folder).keep(20, {"wte.weight": tensor(5, 3)})
    assert of(folder).steps() == [20]
