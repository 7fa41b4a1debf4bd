"""What is done to a store, step after step, and what must be found of it whatever cut a step off: for the tests with power.py."""

import functools
import hashlib

from posttrainllm.errors import StoreError, StoreMissingError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes
from posttrainllm.store.marks import Marks
from posttrainllm.store.runs import RunStore, now
from posttrainllm.tune.continual.records import Corrections
from tests.store.faults import Killed
from tests.store.power import Meter, PowerVolume
from tests.store.samples import checkpoint, tensor

CLOCK = "2026-12-01T00:00:00Z"
LORA = LoRAConfig(1, 2.0, ("attn.q",))


def store_of(volume):
    ticks = iter(range(10**6))
    return RunStore(volume, lambda: f"2026-12-01T00:{next(ticks) // 60 % 60:02}:00Z")


def weights(step):
    return {"wte.weight": tensor(40, 9, start=step), "ln_f.bias": tensor(9, start=-step)}


def adapter(seed):
    sizes = shapes(GPTConfig(1, 4, heads=1, context=1), LORA)
    return Adapter("mine", LORA, {"layers": 1, "channels": 4}, "ab" * 32, {name: bytes([seed]) * (4 * a * b) for name, (a, b) in sizes.items()})


def opened(store, run_id, work):
    """work(run) on a run that is open for as long."""
    run = now(store.open(run_id))
    try:
        return work(run)
    finally:
        run.close()


def corrections(run):
    return Corrections(run.journal, lambda: CLOCK)


def added(run, promoted, seed):
    corrections(run).history.add(
        adapter(seed), promoted=promoted, reasons=() if promoted else ("base loss rose",), figures={}, learned={"c1": "x"}, held_out={},
        texts_sha256="", parent=None,
    )  # fmt: skip


def create(store):
    now(store.create("first", "a")).close()


def exported(store):
    return opened(store, "a", lambda run: b"".join(map(bytes, run.export())))


def copied(store):
    return next(info.id for info in now(store.list()) if info.name == "copy")


STEPS = {
    "create": create,
    "save": lambda store: opened(store, "a", lambda run: run.save(checkpoint(step=1))),
    "save again": lambda store: opened(store, "a", lambda run: run.save(checkpoint(step=2))),
    "save a third time": lambda store: opened(store, "a", lambda run: run.save(checkpoint(step=3))),
    "rename": lambda store: opened(store, "a", lambda run: run.rename("second")),
    "rename again": lambda store: opened(store, "a", lambda run: run.rename("third")),
    "marks": lambda store: opened(store, "a", lambda run: run.mark(Marks(("good", "kept"), "why\nthis one"))),
    "marks again": lambda store: opened(store, "a", lambda run: run.mark(Marks(("good",)))),
    "snapshot": lambda store: opened(store, "a", lambda run: run.snapshots.keep(0, weights(0))),
    "snapshots": lambda store: opened(store, "a", lambda run: [run.snapshots.keep(1 << power, weights(1 << power)) for power in range(4, 10)]),
    "snapshot in the place of the oldest": lambda store: opened(store, "a", lambda run: run.snapshots.keep(1024, weights(1024))),
    "first correction": lambda store: opened(store, "a", lambda run: corrections(run).record("accept", "q1", "a1", id="c1")),
    "second correction": lambda store: opened(store, "a", lambda run: corrections(run).record("edit", "q2", "a2", "b2", id="c2")),
    "edited correction": lambda store: opened(store, "a", lambda run: corrections(run).edit("c1", note="why")),
    "imported corrections": lambda store: opened(
        store, "a", lambda run: corrections(run).add_jsonl('{"what":"correct","id":"c3","prompt":"q","kept":"x"}\n{"what":"accept","id":"c4","prompt":"r","kept":"y"}')
    ),
    "version promoted": lambda store: opened(store, "a", lambda run: added(run, True, 1)),
    "version kept aside": lambda store: opened(store, "a", lambda run: added(run, False, 2)),
    "rolled back": lambda store: opened(store, "a", lambda run: corrections(run).history.use(None)),
    "version again": lambda store: opened(store, "a", lambda run: corrections(run).history.use(1)),
    "adapter id": lambda store: opened(store, "a", lambda run: corrections(run).history.set_adapter_id(1, "a.x")),
    "deleted correction": lambda store: opened(store, "a", lambda run: corrections(run).delete("c2")),
    "duplicate": lambda store: now(store.duplicate("a", "copy")),
    "import": lambda store: now(store.import_(exported(store), "imported")),
    "adapter kept": lambda store: now(store.keep(checkpoint(step=9, name="an adapter", moments=False))),
    "save of the copy": lambda store: opened(store, copied(store), lambda run: run.save(checkpoint(step=4))),
    "cleared corrections": lambda store: opened(store, "a", lambda run: corrections(run).clear()),
    "delete": lambda store: now(store.delete(copied(store))),
}


def content(tensors):
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(bytes(tensors[name].view()))
    return digest.hexdigest()[:12]


def state(volume):
    """{run id: {part: what it is}} as the next start finds it; everything must open, or say in words that there is nothing."""
    store = store_of(volume)
    found = {}
    for info in now(store.list()):
        run = now(store.open(info.id))
        try:
            loaded = run.load()
            save = (loaded.step, content(loaded.weights), content(loaded.m))
            assert info.state == "good" and info.step == loaded.step
        except StoreError as error:
            assert len(str(error)) < 400
            save = error.code
        snapshots = {}
        for step in run.snapshots.steps():
            snapshots[step] = content(run.snapshots.load(step))
        journal = [(record.facts, record.data) for record in run.journal.records()]
        found[info.id] = {"name": info.name, "marks": run.marks, "save": save, "snapshots": snapshots, "journal": journal}
        rows = Corrections(run.journal)
        assert all(rows.history.adapter(version.number) for version in rows.history)
        run.close()
    return found


NOTHING = {"marks": Marks(), "save": StoreMissingError.code, "snapshots": {}, "journal": []}


def acceptable(found, before, after, copy=False):
    """Every part of every run is what it was or what it becomes; a run that is made or removed just then may be there in part."""
    for run_id in before.keys() & after.keys():
        assert run_id in found, f"run {run_id} is lost"
    for run_id, parts in found.items():
        was, becomes = before.get(run_id), after.get(run_id)
        kept = [each for each in (was, becomes) if each is not None]
        whole = was is not None and becomes is not None
        for part in ("name", "marks", "save", "journal"):
            wanted = [each[part] for each in kept] + ([] if whole else [NOTHING.get(part, run_id)])
            assert not kept or parts[part] in wanted or (was and not becomes), f"{part} of run {run_id}: {parts[part]!r:.300}"
        both = [set(each["snapshots"].items()) for each in kept]
        if both:
            assert set(parts["snapshots"].items()) <= set.union(*both), f"a snapshot of run {run_id} that never was"
            if whole:
                assert set.intersection(*both) <= set(parts["snapshots"].items()), f"a snapshot of run {run_id} is lost"
        elif parts["save"] not in (NOTHING["save"], "E-STORE-CORRUPT"):
            assert parts["save"] in {each["save"] for each in after.values()}  # a copy, whose id is another one
            assert parts["journal"] in ([], before["a"]["journal"]) and (parts["journal"] or not copy), "a copy without its corrections"


def goes_on(volume):
    """Whatever was found, every run can be saved, learnt into, and deleted."""
    store = store_of(volume)
    for info in now(store.list()):
        run = now(store.open(info.id))
        run.save(checkpoint(step=77))
        assert run.load().step == 77
        corrections(run).record("accept", "again", "yes", id="later")
        assert "later" in [each.id for each in corrections(run)]
        run.snapshots.keep(77, weights(77))
        assert 77 in run.snapshots.steps()
        run.close()
        now(store.delete(info.id))
    assert now(store.list()) == []


@functools.cache
def images():
    """The volume before each step, and after the last."""
    found, image = [], {}
    for step in STEPS.values():
        found.append(image)
        volume = PowerVolume(image)
        step(store_of(volume))
        image = volume.after("none")  # all that a step has done is on the medium when it returns
        assert image == volume.after("all")
    return [*found, image]


def cut(image, step, **power):
    """(the volume as it stopped, whether the step came to its end)."""
    volume = PowerVolume(image, Meter(**{key: value for key, value in power.items() if key != "whole_deletions"}), power.get("whole_deletions", True))
    try:
        step(store_of(volume))
    except Killed:
        return volume, False
    return volume, True
