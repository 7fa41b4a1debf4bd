"""opfs.py against a fake of the browser's file system; the real one is the browser tests' affair."""

import asyncio
import sys

import pytest

from posttrainllm.errors import ShapeError, StoreBusyError, StoreCorruptError, StoreError, StoreQuotaError
from posttrainllm.store.buffers import CHUNK_BYTES, Tensor
from posttrainllm.store.opfs import OpfsVolume
from posttrainllm.store.runs import RunStore, now
from tests.store.fake_opfs import FakeBrowser, FakeDirectory, FakeDOMException, FakeFile, FakeUint8Array
from tests.store.samples import checkpoint


def volume_of(browser):
    return OpfsVolume(browser.root, FakeUint8Array, patience_seconds=0)


def test_an_engines_memory_goes_to_the_file_and_back_in_pieces():
    """A Uint8Array is saved and loaded without passing through Python; the memory is larger than a piece."""
    size = CHUNK_BYTES + 1000
    memory = FakeUint8Array(bytes(range(250)) * (size // 250 + 1)).subarray(0, size)
    state = checkpoint()
    state.weights["engine"] = Tensor("U8", (size,), memory)
    browser = FakeBrowser(most_bytes=1 << 20)
    with now(RunStore(volume_of(browser)).create("x", "x")) as run:
        run.save(state)
    with now(RunStore(volume_of(browser)).open("x")) as run:
        found = run.load().weights["engine"]
        target, plain = FakeUint8Array(size), bytearray(size)
        found.read_into(target)
        found.read_into(plain)
        assert target.to_bytes() == bytes(plain) == memory.to_bytes()
        with pytest.raises(ShapeError, match="the same size"):
            found.read_into(FakeUint8Array(size - 1))


def test_only_byte_arrays_are_taken():
    floats = FakeUint8Array(16)
    floats.BYTES_PER_ELEMENT = 4
    state = checkpoint()
    state.weights["engine"] = Tensor("F32", (4,), floats)
    with pytest.raises(ShapeError, match="4 bytes an element; wrap it in a Uint8Array"):
        state.to_chunks()


def test_a_write_that_takes_nothing_is_no_room():
    browser = FakeBrowser(most_bytes=0)
    with pytest.raises(StoreQuotaError, match="the browser has room"):
        now(RunStore(volume_of(browser)).create("x", "x"))


def test_a_read_that_ends_early_is_damage():
    volume = volume_of(FakeBrowser())
    folder = now(volume.open_run("x", create=True))
    folder.files["meta.bin"].write_at(0, b"12")
    with pytest.raises(StoreCorruptError, match="it ends early"):
        folder.files["meta.bin"].read_into(1, memoryview(bytearray(5)))


def test_a_folder_that_opens_halfway_is_let_go():
    browser = FakeBrowser()
    filled = RunStore(volume_of(browser))
    now(filled.create("x", "x")).close()
    files = browser.root.entries["x"].entries
    files["meta.bin"].held = True
    with pytest.raises(StoreBusyError, match="another tab"):
        now(filled.open("x"))
    assert not files["slot-A.bin"].held and not files["slot-B.bin"].held
    files["meta.bin"].held = False
    now(filled.open("x")).close()


def test_a_handle_let_go_a_moment_later_is_waited_for():
    browser = FakeBrowser()
    volume = OpfsVolume(browser.root, FakeUint8Array, patience_seconds=5)
    now(RunStore(volume).create("x", "x")).close()
    file = browser.root.entries["x"].entries["slot-A.bin"]
    file.held = True

    async def reopened():
        opening = asyncio.ensure_future(RunStore(volume).open("x"))
        await asyncio.sleep(0.08)
        assert not opening.done()
        file.held = False
        return await opening

    asyncio.run(reopened()).close()


def test_what_the_browser_says_otherwise_is_passed_on():
    class Broken(FakeDirectory):
        async def getDirectoryHandle(self, name, create=False):
            raise FakeDOMException("InvalidStateError")

    volume = OpfsVolume(Broken(FakeBrowser()), FakeUint8Array)
    with pytest.raises(StoreError, match="InvalidStateError"):
        now(volume.open_run("x", create=True))
    with pytest.raises(StoreError):
        now(volume.peek("x"))


def test_other_files_of_the_page_are_not_runs():
    browser = FakeBrowser()
    browser.root.entries |= {"some file": FakeFile(browser), "settings.json": FakeFile(browser)}
    store = RunStore(volume_of(browser))
    now(store.create("x", "x")).close()
    listed = {info.id: info.state for info in now(store.list())}
    assert listed == {"x": "empty", "settings.json": "unreadable"}


@pytest.mark.skipif(sys.platform == "emscripten", reason="there it has a real `js`")
def test_without_storage_it_says_what_to_do(monkeypatch):
    class Js:
        class navigator:
            class storage:
                @staticmethod
                async def getDirectory():
                    raise FakeDOMException("SecurityError")

    monkeypatch.setitem(sys.modules, "js", Js)
    with pytest.raises(StoreError, match="SecurityError.*leave private browsing") as caught:
        now(OpfsVolume.open())
    assert caught.value.code == "E-STORE-UNAVAILABLE"
