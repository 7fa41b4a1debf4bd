"""Slots: what is loaded when headers or payloads are damaged, newer, or read too late."""

import zlib

import pytest

from posttrainllm.errors import StoreCorruptError, StoreError, StoreMissingError, StoreVersionError
from posttrainllm.store.slots import Slots, decode_page, encode_page, newest
from tests.store.faults import FaultyFolder

A, B = "slot-A.bin", "slot-B.bin"


def folder_with(*steps):
    folder = FaultyFolder({})
    slots = Slots(folder, "run x")
    for step in steps:
        slots.save([bytes([step]) * 100], {"step": step})
    return folder


def step_of(folder):
    payload, summary = Slots(folder, "run x").load()
    assert bytes(payload.read_at(0, 100)) == bytes([summary["step"]]) * 100
    return summary["step"]


def test_page_round_trip_and_every_flipped_bit_of_the_header_is_seen():
    page = encode_page(7, 1000, 0xDEADBEEF, {"step": 3, "name": "ü"})
    assert decode_page(page)[:4] == ("good", 7, 1000, 0xDEADBEEF)
    assert decode_page(page).summary == {"step": 3, "name": "ü"}
    for bit in range(8 * 120):
        flipped = bytearray(page)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decode_page(flipped).state == "damaged"
    for at in (200, 4095):
        assert decode_page(page[:at] + b"\x01" + page[at + 1 :]).state == "damaged"
    assert decode_page(page[:4000]).state == "damaged"
    assert decode_page(bytes(4096)).state == decode_page(b"").state == "blank"


def test_a_summary_too_long_for_its_page_is_left_out_and_the_save_counts():
    folder = FaultyFolder({})
    Slots(folder, "run x").save([b"123"], {"name": "x" * 5000})
    assert bytes(Slots(folder, "run x").load()[0].read_at(0, 3)) == b"123"


@pytest.mark.parametrize("place", [4096, 4195, 0, 30])
def test_damage_to_the_newest_falls_back_to_the_other_and_says_so(place):
    folder = folder_with(1, 2, 3)
    folder.files[A].seen[place] ^= 1
    assert step_of(folder) == 2
    slots = Slots(folder, "run x")
    slots.load()
    assert slots.recovered == (
        "run x: one of its two saves was cut off or damaged; the other was opened, from step 2."
    )
    slots.save([bytes([4]) * 100], {"step": 4})
    assert step_of(folder) == 4 and slots.recovered == ""
    folder.files[A].seen[4100] ^= 1
    assert step_of(folder) == 2, "the save after a recovery went over the damaged slot"


def test_a_file_cut_short_is_damage():
    folder = folder_with(1, 2)
    del folder.files[B].seen[4150:]
    assert step_of(folder) == 1
    heads = {name: (folder.files[name].size(), folder.files[name].read_at(0, 8192)) for name in (A, B)}
    page, damaged = newest(heads)
    assert page.summary["step"] == 1 and damaged


def test_both_damaged_is_corrupt_and_nothing_saved_is_missing():
    folder = folder_with(1, 2)
    for name in (A, B):
        folder.files[name].seen[4096] ^= 255
    with pytest.raises(StoreCorruptError, match="none does"):
        Slots(folder, "run x").load()
    Slots(folder, "run x").save([bytes([9]) * 100], {"step": 9})
    assert step_of(folder) == 9, "a run in memory can still be saved over a corrupt one"
    with pytest.raises(StoreMissingError, match="nothing was saved"):
        Slots(FaultyFolder({}), "run x").load()


def test_a_newer_format_is_neither_opened_nor_written_over():
    folder = folder_with(1, 2)
    page = bytearray(folder.files[A].seen[:4096])
    page[8:12] = (2).to_bytes(4, "little")
    page[12:16] = bytes(4)
    page[12:16] = zlib.crc32(page).to_bytes(4, "little")
    folder.files[A].seen[:4096] = page
    before = bytes(folder.files[A].seen), bytes(folder.files[B].seen)
    for attempt in (lambda slots: slots.load(), lambda slots: slots.save([b"1"], {})):
        with pytest.raises(StoreVersionError, match="reload the page"):
            attempt(Slots(folder, "run x"))
    assert before == (bytes(folder.files[A].seen), bytes(folder.files[B].seen))


def test_a_payload_is_read_until_its_slot_is_taken_again():
    folder = folder_with(1)
    slots = Slots(folder, "run x")
    payload, _ = slots.load()
    slots.save([bytes([2]) * 10], {"step": 2})
    assert bytes(payload.read_at(0, 1)) == b"\x01"
    assert bytes(payload.read_at(95, 50)) == b"\x01" * 5, "never past its own end"
    slots.save([bytes([3]) * 10], {"step": 3})
    with pytest.raises(StoreError, match="its bytes are gone") as caught:
        payload.read_at(0, 1)
    assert caught.value.code == "E-STORE-CLOSED"
    current, _ = slots.load()
    slots.close()
    with pytest.raises(StoreError):
        current.read_at(0, 1)


def test_a_payload_longer_and_shorter_than_the_one_before():
    folder = FaultyFolder({})
    slots = Slots(folder, "run x")
    for length in (5000, 10, 9000, 0, 20):
        assert slots.save([bytes(length)], {}) == length
        assert Slots(folder, "run x").load()[0].size == length
