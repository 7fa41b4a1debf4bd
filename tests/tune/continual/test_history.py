"""Versions in a journal: what was learnt from what, bytes exactly, and a kill at any byte of a promotion or a way back."""

import pytest

from posttrainllm.errors import ConfigError, StoreCorruptError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes
from posttrainllm.store.journal import Journal, Record
from posttrainllm.store.volume import JOURNAL_FILES
from posttrainllm.tune.continual.history import History, adapter_sha256, packed, unpacked
from posttrainllm.tune.continual.records import Corrections
from tests.store.faults import FaultyFolder, Killed, Power

CONFIG, LORA = GPTConfig(layers=1, channels=8, heads=2, context=8), LoRAConfig(1, 2.0, ("attn.q",))


def adapter(seed, name="candidate"):
    weights, at = {}, 0
    for key, shape in shapes(CONFIG, LORA).items():
        size = shape[0] * shape[1] * 4
        weights[key] = bytes((seed * 31 + at + index) % 251 for index in range(size))
        at += size
    return Adapter(name, LORA, {"layers": 1, "channels": 8}, "ab" * 32, weights)


def facts(promoted=True, **more):
    return {
        "promoted": promoted, "reasons": () if promoted else ("Too bad.",), "figures": {"held_out_before_nats": 2.0, "base": float("nan")},
        "learned": {"a": "0" * 16}, "held_out": {"b": "1" * 16}, "texts_sha256": "cd", "parent": None, "settings": {"seed": 1},
    } | more  # fmt: skip


def journal(folder):
    return Journal([folder.files[name] for name in JOURNAL_FILES], "run x")


def history(folder):
    return History(journal(folder), lambda: "2026-12-01T00:00:00Z")


def test_an_adapter_comes_back_byte_for_byte():
    made = adapter(3, "ü name")
    again = unpacked(packed(made))
    assert again == made and again.weights == made.weights and adapter_sha256(again) == adapter_sha256(made) != adapter_sha256(adapter(4))


def test_versions_are_numbered_listed_and_the_last_promoted_is_in_use():
    kept = history(FaultyFolder({}))
    assert kept.in_use is None and len(kept) == 0
    one = kept.add(adapter(1), **facts())
    two = kept.add(adapter(2), **facts(False, parent=1))
    three = kept.add(adapter(3), **facts(parent=1, learned={"a": "0" * 16, "c": "2" * 16}, settings={"seed": 2}))
    assert [row.number for row in kept] == [1, 2, 3] and kept.in_use == three and kept[2].reasons == ("Too bad.",)
    assert one.adapter_sha256 == adapter_sha256(adapter(1)) and two == kept[2] and two.figures["base"] is None
    kept.use(1)
    assert kept.in_use.number == 1 and kept.adapter(3).weights == adapter(3).weights
    kept.use(None)
    assert kept.in_use is None and [row.number for row in kept] == [1, 2, 3]
    with pytest.raises(ConfigError, match="kept aside: Too bad."):
        kept.use(2)
    with pytest.raises(ConfigError, match=r"there are \[1, 2, 3\]; 4 came"):
        kept.use(4)
    assert kept.in_use is None and kept.use(2, aside=True).number == 2 == kept.in_use.number
    told = kept.compare(1, 3)
    assert told["learned"] == {"both": ["a"], "only_one": [], "only_other": ["c"]} and told["settings"] == {"seed": (1, 2)}
    kept.set_adapter_id(3, "run.ab")
    assert kept[3].adapter_id == "run.ab" and kept.adapter(3).weights == adapter(3).weights and kept.in_use.number == 2


def test_numbers_are_never_given_twice_and_corrections_do_not_touch_versions():
    folder = FaultyFolder({})
    corrections = Corrections(journal(folder))
    row = corrections.record("edit", "a", "b", "c")
    corrections.history.add(adapter(1), **facts())
    corrections.edit(row.id, kept="d")
    corrections.delete(row.id)
    corrections.clear()
    again = Corrections(journal(FaultyFolder(folder.after("none"))))
    assert len(again) == 0 and again.history.in_use.number == 1 and again.history.adapter(1).weights == adapter(1).weights
    assert again.history.add(adapter(2), **facts(False)).number == 2


@pytest.mark.parametrize("mode", ["all", "none", "some"])
def test_a_kill_at_every_byte_of_a_promotion_leaves_the_version_before_in_use(mode):
    folder = FaultyFolder({})
    history(folder).add(adapter(1), **facts())
    before, outcomes = folder.after("none"), set()
    whole = FaultyFolder(before)
    history(whole).add(adapter(2), **facts())
    for budget in range(0, whole.power.spent + 1, 3):
        folder = FaultyFolder(before, Power(budget))
        try:
            history(folder).add(adapter(2), **facts())
        except Killed:
            pass
        found = history(FaultyFolder(folder.after(mode, seed=budget)))
        number = found.in_use.number
        assert number in (1, 2) and len(found) == number and found.adapter(number).weights == adapter(number).weights
        outcomes.add(number)
    assert 1 in outcomes




@pytest.mark.parametrize("mode", ["all", "none", "some"])
def test_a_kill_at_every_byte_of_a_way_back_leaves_one_or_the_other(mode):
    folder = FaultyFolder({})
    kept = history(folder)
    kept.add(adapter(1), **facts()), kept.add(adapter(2), **facts())
    before = folder.after("none")
    whole = FaultyFolder(before)
    history(whole).use(1)
    for budget in range(whole.power.spent + 1):
        folder = FaultyFolder(before, Power(budget))
        try:
            history(folder).use(1)
        except Killed:
            pass
        found = history(FaultyFolder(folder.after(mode, seed=budget)))
        assert found.in_use.number == (1 if budget == whole.power.spent else found.in_use.number) in (1, 2)
        assert [found.adapter(number).weights for number in (1, 2)] == [adapter(1).weights, adapter(2).weights]


def test_an_adapter_that_is_not_what_was_kept_is_never_used():
    folder = FaultyFolder({})
    kept = history(folder)
    kept.add(adapter(1), **facts()), kept.add(adapter(2), **facts())
    records = kept.journal.records()
    kept.journal.rewrite([Record(records[0].facts, packed(adapter(9))), Record(records[1].facts, b"nothing")])
    for number in (1, 2):
        with pytest.raises(StoreCorruptError, match=f"version {number}: its adapter has the sha256"):
            kept.use(number)
    assert kept.in_use.number == 2 and len(kept) == 2
