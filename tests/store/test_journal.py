"""The journal beside a run's saves: a kill at any byte of a write loses that write alone, and what is deleted is gone from the medium."""

import zlib

import pytest

from posttrainllm.errors import FormatError, StoreCorruptError, StoreQuotaError, StoreVersionError
from posttrainllm.store.journal import Journal, Record
from posttrainllm.store.memory import MemoryFile, MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.slots import encode_page
from posttrainllm.store.volume import JOURNAL_FILES, PAGE_BYTES
from tests.store.faults import FaultyFolder, Killed, Power
from tests.store.samples import checkpoint

MODES = ["all", "none", "some"]
FIRST, SECOND, THIRD = Record({"n": 1}, b"first" * 9), Record({"n": 2, "text": "zwei ü"}), Record({"n": 3}, b"3" * 200)


def journal(folder):
    return Journal([folder.files[name] for name in JOURNAL_FILES], "run x")


def filled(*records):
    """The medium after these records."""
    folder = FaultyFolder({})
    made = journal(folder)
    for record in records:
        made.append(*record)
    return folder.after("none")


def kill_everywhere(before, work, mode):
    """(what a new start finds, whether the work had ended) for a kill after each byte and operation of it."""
    whole = FaultyFolder(before)
    opened = journal(whole)
    opened.records()
    work(opened)
    for budget in range(whole.power.spent + 1):
        folder = FaultyFolder(before, Power(budget))
        try:
            work(journal(folder))
            ended = True
        except Killed:
            ended = False
        yield folder.after(mode, seed=budget), ended


def test_records_come_back_in_order_with_their_bytes():
    before = filled(FIRST, SECOND, THIRD)
    found = journal(FaultyFolder(before))
    assert found.records() == [FIRST, SECOND, THIRD] and found.recovered == ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("count", [0, 2])
def test_a_kill_at_every_byte_of_an_append_loses_that_record_alone(mode, count):
    known = [FIRST, SECOND][:count]
    before, outcomes = filled(*known), set()
    for number, (after, ended) in enumerate(kill_everywhere(before, lambda it: it.append(*THIRD), mode)):
        found = journal(FaultyFolder(after)).records()
        assert found in (known, [*known, THIRD])
        assert not ended or found == [*known, THIRD], "an append that returned is there"
        outcomes.add(len(found))
        if number % 97 == 0:  # and it goes on from there
            folder = FaultyFolder(after)
            journal(folder).append(*FIRST)
            again = journal(FaultyFolder(folder.after("none")))
            assert again.records() == [*found, FIRST] and again.recovered == ""
    assert outcomes == {count, count + 1}


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_every_byte_of_a_rewrite_leaves_the_old_or_the_new(mode):
    before, outcomes = filled(FIRST, SECOND, THIRD), set()
    for after, ended in kill_everywhere(before, lambda it: it.rewrite([FIRST, THIRD]), mode):
        found = journal(FaultyFolder(after)).records()
        assert found in ([FIRST, SECOND, THIRD], [FIRST, THIRD])
        assert not ended or found == [FIRST, THIRD]
        outcomes.add(len(found))
    assert outcomes == {2, 3}


def test_what_is_left_out_is_gone_from_the_medium():
    before = filled(FIRST, THIRD)
    folder = FaultyFolder(before)
    journal(folder).rewrite([FIRST])
    after = folder.after("none")
    assert b"3" * 50 not in b"".join(map(bytes, after.values())) and journal(FaultyFolder(after)).records() == [FIRST]


def test_a_kill_before_the_old_file_was_emptied_is_made_good():
    folder = FaultyFolder(filled(FIRST, THIRD))
    made, old = journal(folder), folder.files[JOURNAL_FILES[0]]
    kept = bytes(old.seen)
    made.rewrite([FIRST])
    after = folder.after("none") | {JOURNAL_FILES[0]: kept}
    folder = FaultyFolder(after)
    assert journal(folder).records() == [FIRST]
    assert not any(b"3" * 50 in bytes(data) for data in folder.after("none").values())


def test_what_a_longer_write_left_is_never_read_as_records():
    """A cut-off record whose bytes hold whole records: a shorter one in its place must not bring them to life."""
    inner = bytes(filled(SECOND)[JOURNAL_FILES[0]])[PAGE_BYTES:]
    big = Record({"n": 9}, b"x" * 31 + inner * 3)
    known = filled(FIRST)
    for torn in range(40, 160, 7):
        after = bytearray(known[JOURNAL_FILES[0]])
        whole = bytes(filled(FIRST, big)[JOURNAL_FILES[0]])
        after += whole[len(after) : len(after) + torn] + inner
        folder = FaultyFolder(known | {JOURNAL_FILES[0]: after})
        opened = journal(folder)
        assert opened.records() == [FIRST] and "cut off" in opened.recovered
        opened.append(*THIRD)
        assert journal(FaultyFolder(folder.after("none"))).records() == [FIRST, THIRD]


def test_a_whole_record_that_was_never_added_behind_the_last_is_none():
    """As what an append cut off truncated but did not flush may leave, in just the wrong place."""
    known, stray = filled(FIRST), bytes(filled(SECOND)[JOURNAL_FILES[0]])[PAGE_BYTES:]
    found = journal(FaultyFolder(known | {JOURNAL_FILES[0]: known[JOURNAL_FILES[0]] + stray}))
    assert found.records() == [FIRST] and "cut off" in found.recovered


def test_a_record_damaged_in_the_middle_is_left_out_and_said():
    before = filled(FIRST, THIRD, SECOND)
    data = before[JOURNAL_FILES[0]]
    data[data.index(b"333") + 5] ^= 1
    found = journal(FaultyFolder(before))
    assert found.records() == [FIRST, SECOND] and "1 of its records is damaged" in found.recovered
    found.append(*THIRD)
    assert found.records()[-1] == THIRD


def test_headers_that_are_damaged_or_newer_are_said_and_nothing_is_written():
    before = filled(FIRST)
    before[JOURNAL_FILES[0]][20] ^= 1
    with pytest.raises(StoreCorruptError, match="its saves are not touched"):
        journal(FaultyFolder(before)).append(*SECOND)
    page = bytearray(encode_page(3, 0, 0, {}))
    page[8] = 9  # a format of the future
    page[12:16] = bytes(4)
    page[12:16] = zlib.crc32(page).to_bytes(4, "little")
    with pytest.raises(StoreVersionError):
        journal(FaultyFolder({JOURNAL_FILES[0]: bytearray(page)})).records()


def test_no_room_leaves_all_as_it_was():
    volume = MemoryVolume()
    files = [MemoryFile(volume), MemoryFile(volume)]
    volume.runs["x"] = dict(zip(JOURNAL_FILES, files))
    made = Journal(files, "run x")
    made.append(*FIRST)
    volume.limit_bytes = files[0].size() + 100
    for work in (lambda: made.append(*THIRD), lambda: made.rewrite([FIRST, FIRST])):
        with pytest.raises(StoreQuotaError):
            work()
        assert made.records() == [FIRST] == Journal(files, "run x").records()
    volume.limit_bytes = None
    made.append(*SECOND)
    assert Journal(files, "run x").records() == [FIRST, SECOND]


def test_what_json_cannot_hold_is_refused_before_anything_is_written():
    made = journal(FaultyFolder({}))
    for wrong in ({"n": float("nan")}, {"n": b"bytes"}):
        with pytest.raises(FormatError):
            made.append(wrong)
    assert made.records() == []


def test_a_run_keeps_its_journal_and_its_copy_has_it_too(tmp_path):
    from posttrainllm.store.disk import DiskVolume

    for volume in (MemoryVolume(), DiskVolume(tmp_path)):
        store = RunStore(volume)
        with now(store.create("one", "one")) as run:
            run.save(checkpoint(3))
            run.journal.append(*FIRST)
        copied = now(store.duplicate("one", "two"))
        with now(store.open("one")) as run:
            run.journal.append(*SECOND)
            assert run.load().step == 3
        with now(store.open(copied)) as run:
            assert run.journal.records() == [FIRST] and run.load().step == 3
        with now(store.open("one")) as run:
            assert run.journal.records() == [FIRST, SECOND]
        now(store.delete("one"))
        assert now(store.volume.list_runs()) == [copied]
