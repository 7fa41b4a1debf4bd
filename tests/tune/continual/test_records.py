"""Corrections as records: kept, edited, deleted for good, and in and out as JSONL."""

import json

import pytest

from posttrainllm.errors import ConfigError, DataError, StoreQuotaError
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.tune.continual.records import Correction, Corrections, as_corrections
from tests.store.samples import checkpoint


@pytest.fixture(name="volume")
def volume_with_a_run():
    volume = MemoryVolume()
    with now(RunStore(volume).create("mine", "mine")) as run:
        run.save(checkpoint(1))
    return volume


def opened(volume):
    return now(RunStore(volume).open("mine"))


def test_each_kind_is_kept_with_what_it_was_made_of(volume):
    with opened(volume) as run:
        kept = Corrections(run.journal)
        assert kept.saved and len(kept) == 0
        a = kept.record("accept", "Who?", "Me.", "something else", sampler={"temperature": 0.8}, version=2, adapter_id="a.1", base_sha256="ab")
        b = kept.record("edit", "Who?", "Me.", "It is I.")
        c = kept.record("retry", "Why?", "No.", "ignored")
        d = kept.record("correct", "Why?", "No.", "Because.\nTruly.", note="mine")
    assert (a.kept, c.kept, d.note) == ("Me.", "", "mine") and len({a.id, b.id, c.id, d.id}) == 4
    with opened(volume) as run:
        again = Corrections(run.journal)
        assert list(again) == [a, b, c, d] and again[a.id].sampler == {"temperature": 0.8} and again.list(1, 2) == [b, c]
    assert not Corrections().saved


def test_an_edit_and_a_deletion_leave_nothing_of_the_text_behind(volume):
    with opened(volume) as run:
        kept = Corrections(run.journal)
        one, two = kept.record("edit", "Who?", "Me.", "A SECRET text"), kept.record("edit", "Why?", "No.", "Another SECRET")
        changed = kept.edit(one.id, kept="plain", note="n")
        assert (changed.id, changed.created, changed.kept) == (one.id, one.created, "plain")
        assert kept.delete(two.id) == 1 and list(kept) == [changed]
    for file in volume.runs["mine"].values():
        assert b"SECRET" not in file.data
    with opened(volume) as run:
        again = Corrections(run.journal)
        assert list(again) == [changed]
        with pytest.raises(DataError, match="an id of the list; 'none' came"):
            again.delete("none")
        with pytest.raises(DataError, match="what can be edited"):
            again.edit(changed.id, id="other")
        with pytest.raises(DataError, match="holds at least one letter"):
            again.edit(changed.id, kept="  ")
        assert list(again) == [changed] and again.clear() == 1 and len(again) == 0


def test_jsonl_goes_out_and_comes_in_with_the_same_names():
    kept = Corrections()
    for number in range(5):
        kept.record("edit", f"Who is {number}?", "Me.", f"Line\n{number} — ü 🙂")
    text = kept.to_jsonl()
    assert len(text.splitlines()) == 5 and list(json.loads(text.splitlines()[0])) == list(Correction.__dataclass_fields__)
    other = Corrections()
    assert other.add_jsonl(text) == list(kept) and list(other) == list(kept)
    assert other.add_jsonl(text) == [] and len(other) == 5, "those that are here already stay as they are"
    made = other.add_jsonl('{"what": "accept", "prompt": "a", "kept": "b"}\n\n{"what": "edit", "prompt": "c", "offered": "d", "kept": "e"}')
    assert [(row.offered, row.kept) for row in made] == [("b", "b"), ("d", "e")] and all(row.id and row.created for row in made)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"what": "edit", "prompt": "a"', "line 2: it nests at most"),
        ("[1]", "a correction is a JSON object"),
        ('{"what": "praise", "prompt": "a", "kept": "b"}', "what is one of accept, edit, retry, correct; 'praise' came"),
        ('{"what": "edit", "prompt": "a", "kept": 3}', "kept is a text; a int came"),
        ('{"what": "edit", "prompt": " ", "kept": "b"}', "a prompt of at least one letter"),
        ('{"what": "correct", "prompt": "a", "kept": ""}', "what is kept of a correction holds at least one letter"),
        ('{"what": "edit", "prompt": "a", "keep": "b"}', "'keep' came; rename or remove it"),
        ('{"what": "retry", "prompt": "a", "offered": ""}', "what was offered holds at least one letter"),
        ('{"what": "edit", "prompt": "a", "kept": "b", "version": -1}', "version is a number, or null"),
        ('{"what": "edit", "prompt": "a", "kept": "b", "sampler": 1}', "sampler is an object"),
        ('{"what": "edit", "prompt": "a", "kept": "\\ud800"}', "half of a surrogate pair"),
        ('{"what": "edit", "prompt": "a", "kept": "' + "x" * 70_000 + '"}', "kept is at most 65,536 characters; 70,000 came"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_none_is_added(line, said):
    kept = Corrections()
    with pytest.raises(DataError) as caught:
        kept.add_jsonl('{"what": "accept", "prompt": "a", "kept": "b"}\n' + line, "mine.jsonl")
    assert said in str(caught.value) and "mine.jsonl, line 2" in str(caught.value) and len(kept) == 0


def test_a_full_disk_keeps_what_was_there_and_says_so(volume):
    with opened(volume) as run:
        kept = Corrections(run.journal)
        first = kept.record("edit", "Who?", "Me.", "I.")
        volume.limit_bytes = sum(file.size() for file in volume.runs["mine"].values()) + 20
        with pytest.raises(StoreQuotaError):
            kept.record("edit", "Why?", "No.", "Because.")
        with pytest.raises(StoreQuotaError):
            kept.edit(first.id, kept="x" * 100)
        assert list(kept) == [first]
    volume.limit_bytes = None
    with opened(volume) as run:
        assert list(Corrections(run.journal)) == [first]


def test_a_run_keeps_so_many_and_says_how_many(monkeypatch):
    kept = Corrections()
    kept._limits["most_records"] = 2
    kept.record("accept", "a", "b"), kept.record("accept", "c", "d")
    with pytest.raises(ConfigError, match="a run keeps at most 2; 3 would be there"):
        kept.record("accept", "e", "f")
    assert len(kept) == 2


def test_lists_of_dicts_and_of_records_are_corrections_too():
    rows = list(as_corrections([{"what": "accept", "prompt": "a", "kept": "b"}]))
    assert as_corrections(rows)[rows[0].id] == rows[0]
    with pytest.raises(DataError, match="item 1"):
        as_corrections([{"prompt": "a"}])
