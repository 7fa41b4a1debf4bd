"""Tags and notes of runs: they stay through saving, renaming, copying and files, and nothing hostile gets further than text."""

import json

import pytest

from posttrainllm.errors import ConfigError
from posttrainllm.store.checkpoint import PREFIX, Checkpoint
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.marks import MAX_NOTE, MAX_TAG, MAX_TAGS, Marks
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.safetensors import SafeTensors, encode
from posttrainllm.store.slots import encode_page
from posttrainllm.store.volume import META_FILE, PAGE_BYTES
from tests.store.samples import checkpoint

MARKS = Marks(("baseline", "größer"), "First try.\nThe rate was too high.")


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    return RunStore(MemoryVolume() if request.param == "memory" else DiskVolume(tmp_path / "runs"))


def marked(store, marks=MARKS):
    with now(store.create("a run")) as run:
        run.save(checkpoint(3))
        run.mark(marks)
    return run.id


def listed(store, run_id):
    return {info.id: info for info in now(store.list())}[run_id]


def exported(store, run_id):
    with now(store.open(run_id)) as run:
        return b"".join(bytes(chunk) for chunk in run.export())


def test_marks_stay_through_renaming_saving_copying_and_files(store):
    run_id = marked(store)
    assert listed(store, run_id).marks == MARKS
    now(store.rename(run_id, "another name"))
    with now(store.open(run_id)) as run:
        run.save(checkpoint(4))
        assert run.marks == MARKS and run.load().marks == MARKS.to_dict()
    copy = now(store.duplicate(run_id, "a copy"))
    other = RunStore(MemoryVolume())
    back = now(other.import_(exported(store, copy)))
    for place, each, name in ((store, run_id, "another name"), (store, copy, "a copy"), (other, back, "a copy")):
        info = listed(place, each)
        assert (info.name, info.marks) == (name, MARKS)


def test_marks_taken_away_are_not_in_the_file(store):
    run_id = marked(store)
    with now(store.open(run_id)) as run:
        run.save(checkpoint(4))
        run.mark(Marks())
    data = exported(store, run_id)
    assert PREFIX + "marks" not in SafeTensors(data, "file").metadata and b"baseline" not in data


def test_a_run_of_before_has_none(store):
    """Its page says name and time only, in ASCII, and its file has no field of marks."""
    with now(store.create("a run")) as run:
        run.save(checkpoint(3))
        file = run._slots.folder.files[META_FILE]
        file.write_at(0, encode_page(9, 0, 0, {"name": "gr\\u00f6\\u00dfer", "created": "2026-01-01T00:00:00Z"}))
        file.flush()
    assert listed(store, run.id).marks == Marks()
    data = exported(store, run.id)
    assert PREFIX + "marks" not in SafeTensors(data, "file").metadata
    assert listed(store, now(store.import_(data))).marks == Marks()


@pytest.mark.parametrize(
    "marks, kept",
    [
        ("text", Marks()),
        ([1], Marks()),
        ({"tags": {"a": 1}, "note": ["x"]}, Marks()),
        ({"tags": [1, None, " a,  b ", "A B", "<img src=x onerror=alert(1)>"]}, Marks(("a b", "<img src=x onerror=alert(1)>"))),
        ({"tags": ["\u202egnp.exe", "\x00\x1b[31m", "\ud800"], "note": "a\r\nb\x07\u2066c"}, Marks(("gnp.exe", "[31m", "?"), "a\nbc")),
        ({"tags": [f"{at}" * 100 for at in range(5000)], "note": "ä" * 10_000}, None),
    ],
)
def test_hostile_marks_are_cut_to_text(store, marks, kept):
    found = Marks.of(marks)
    assert kept is None or found == kept
    assert len(found.tags) <= MAX_TAGS and all(0 < len(tag) <= MAX_TAG for tag in found.tags) and len(found.note) <= MAX_NOTE
    if not isinstance(marks, dict):
        return
    parsed = SafeTensors(checkpoint(3).to_bytes(), "file")
    metadata = parsed.metadata | {PREFIX + "marks": json.dumps(marks)}
    data = b"".join(bytes(chunk) for chunk in encode([(name, *tensor) for name, tensor in parsed.tensors.items()], metadata))
    assert listed(store, now(store.import_(data))).marks == found


def test_what_does_not_fit_its_page_is_refused_and_what_was_there_stays(store):
    run_id = marked(store)
    wide = Marks(tuple(chr(0x4E00 + at) * MAX_TAG for at in range(MAX_TAGS)), "字" * MAX_NOTE)
    with now(store.open(run_id)) as run:
        with pytest.raises(ConfigError, match="shorten the note"):
            run.mark(wide)
        assert run.marks == MARKS
        run.mark(wide, cut=True)
        assert run.marks.tags == wide.tags and 0 < len(run.marks.note) < MAX_NOTE and run.name == "a run"
        with pytest.raises(ConfigError):
            run.rename("字" * 200)
    assert listed(store, run_id).name == "a run"
    assert len(encode_page(1, 0, 0, {"name": "x" * 5000})) == PAGE_BYTES


@pytest.mark.parametrize("tags, note, words", [(["x" * 41], "", "40 letters"), ([str(at) for at in range(13)], "", "at most 12"), (["a"], "n" * 1001, "1000 letters"), ("a", "", "list of words"), ([1], "", "list of words")])
def test_too_much_is_said(tags, note, words):
    with pytest.raises(ConfigError, match=words):
        Marks.checked(tags, note)
    assert Marks.checked([" a ", "A", "", "b,c"], " n ") == Marks(("a", "b c"), "n")


def test_a_checkpoint_with_marks_is_a_file_and_back():
    made = checkpoint(3)
    made.marks = MARKS.to_dict()
    assert Checkpoint.from_safetensors(made.to_bytes()).marks == MARKS.to_dict()
