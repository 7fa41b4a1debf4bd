"""The power goes at any operation of the store, whatever is being done: at the next start all is as it was before that, or as it is after it.

And the same where a write finds no room. Exhaustive over the operations; test_power_tear.py tears what was not flushed.
"""

import pytest

from posttrainllm.errors import StoreQuotaError
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import now
from tests.store.power import Meter, PowerVolume
from tests.store.power_steps import STEPS, acceptable, cut, goes_on, images, state, store_of
from tests.store.samples import checkpoint, tensor


@pytest.mark.parametrize("name", STEPS)
def test_a_cut_at_every_operation(name):
    at, step = list(STEPS).index(name), STEPS[name]
    before, after = (state(PowerVolume(images()[index])) for index in (at, at + 1))
    for whole_deletions in (True, False) if name == "delete" else (True,):
        stop, ended = 0, False
        while not ended:
            for part in (0.0, 0.5, 1.0):
                volume, ended = cut(images()[at], step, stop=stop, part=part, whole_deletions=whole_deletions)
                for mode, seed in (("all", 0), ("none", 0), ("sectors", 2 * stop), ("sectors", 2 * stop + 1)):
                    image = volume.after(mode, seed)
                    found = state(PowerVolume(image))
                    acceptable(found, before, after, name == "duplicate")
                    if mode == "all" and part == 0.5 or stop % 7 == 0:
                        goes_on(PowerVolume(image))
                if ended or volume.meter.kinds[-1] != "write":
                    break
            stop += 1
        assert stop > 1, "it did cut"


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_no_room_at_every_write(name, lasting):
    """The step fails with the sentence, or ends; nothing else is lost, and once there is room the step can be done."""
    at, step = list(STEPS).index(name), STEPS[name]
    before, after = (state(PowerVolume(images()[index])) for index in (at, at + 1))
    full = refusals = 0
    while True:
        meter = Meter(full=full, lasting=lasting)
        volume = PowerVolume(images()[at], meter)
        store = store_of(volume)
        try:
            step(store)
            failed = False
        except StoreQuotaError as error:
            failed = True
            assert "room" in str(error)
        refusals += meter.refusals
        assert not store.opened and not volume.held, "nothing stays open"
        meter.full = None
        found = state(PowerVolume(volume.after("all")))
        acceptable(found, before, after)
        if failed:
            made = found.keys() - before.keys()
            assert not made, f"{made} was left behind"
            step(store)
            again = state(PowerVolume(volume.after("none")))
            made = [again.pop(run_id) for run_id in again.keys() - after.keys()]  # a new run has an id of its own each time
            assert made in ([], [after[run_id] for run_id in after.keys() - again.keys()])
            assert again == {run_id: after[run_id] for run_id in again}
        full += 1
        if meter.count <= full:
            break
    assert refusals >= (name != "delete"), "there was a write to refuse"


def test_fifty_megabytes():
    """The last good save stays, the sentence says what to do, and there is room again when a run is deleted."""
    store = store_of(MemoryVolume(limit_bytes=50_000_000))

    def big(step, million):
        made = checkpoint(step=step, moments=False)
        made.weights = {"wte.weight": tensor(million, 250_000, start=step)}
        return made

    run = now(store.create("large", "large"))
    for step in (1, 2, 3):
        run.save(big(step, 20))  # 20 MB, in two places
    with pytest.raises(StoreQuotaError, match="room|take at most"):
        run.snapshots.keep(3, big(3, 20).weights)
    assert run.load().step == 3 and run.snapshots.steps() == []
    for _ in range(2):
        with pytest.raises(StoreQuotaError, match="delete a run"):
            run.save(big(4, 40))
        assert run.load().step == 3, "the last good save stays"
    copy = now(store.duplicate("large", "copy"))  # a save that found no room gave its own back
    with pytest.raises(StoreQuotaError):
        now(store.duplicate("large", "another copy"))
    assert {info.id for info in now(store.list())} == {"large", copy}
    with pytest.raises(StoreQuotaError):
        run.save(big(4, 20))
    now(store.delete(copy))
    small = now(store.create("small", "small"))
    small.save(big(1, 8))
    run.save(big(5, 20))
    assert run.load().step == 5
    with pytest.raises(StoreQuotaError):
        small.save(big(2, 12))
    run.close()
    now(store.delete("large"))
    small.save(big(2, 12))
    assert small.load().step == 2
