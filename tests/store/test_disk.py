"""Runs on a real disk: locks between processes, real kills, a full file system, and files that others left."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import posttrainllm
from posttrainllm.errors import StoreBusyError, StoreError, StoreQuotaError
from posttrainllm.store.disk import DiskFile, DiskVolume
from posttrainllm.store.runs import RunStore, now
from tests.store.samples import checkpoint

pytestmark = pytest.mark.skipif(sys.platform == "emscripten", reason="Pyodide has no processes; OPFS is its disk")
HERE = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(posttrainllm.__file__).parents[1]), str(HERE)])}

SAVER = """
import sys, itertools
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.buffers import Tensor
from tests.store.samples import checkpoint
run = now(RunStore(DiskVolume(sys.argv[1])).open("x"))
first = run.load().step
for step in itertools.count(first + 1):
    state = checkpoint(step)
    state.weights["big"] = Tensor("U8", (1 << 20,), bytes([step % 256]) * (1 << 20))
    run.save(state)
    print(step, flush=True)
"""


def test_a_process_killed_while_it_saves_leaves_the_last_save_it_reported(tmp_path):
    with now(RunStore(DiskVolume(tmp_path)).create("x", "x")) as run:
        run.save(checkpoint(0))
    steps = []
    for patience in (0.0, 0.002, 0.005, 0.01, 0.02):
        child = subprocess.Popen([sys.executable, "-c", SAVER, str(tmp_path)], env=ENVIRONMENT, stdout=subprocess.PIPE)
        said = child.stdout.readline()
        time.sleep(patience)
        child.send_signal(signal.SIGKILL)
        reported = int((said + child.stdout.read()).split()[-1])
        child.wait()
        child.stdout.close()
        with now(RunStore(DiskVolume(tmp_path)).open("x")) as run:
            found = run.load()
            assert found.step in (reported, reported + 1)
            assert bytes(found.weights["big"].view()) == bytes([found.step % 256]) * (1 << 20)
            steps.append(found.step)
    assert steps == sorted(steps) and steps[-1] >= len(steps)


def test_another_process_finds_the_run_busy(tmp_path):
    with now(RunStore(DiskVolume(tmp_path)).create("x", "x")) as run:
        run.save(checkpoint())
        command = [sys.executable, "-c", SAVER, str(tmp_path)]
        child = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        assert "StoreBusyError: run x: one process at a time has it open; another has, or this one;" in child.stderr
    with pytest.raises(StoreBusyError), now(RunStore(DiskVolume(tmp_path)).open("x")):
        now(RunStore(DiskVolume(tmp_path)).open("x"))


def test_a_full_disk_is_a_quota_error(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(StoreQuotaError, match="No space left on device"):
        DiskFile(Path("/dev/full")).write_at(0, b"x")


def test_other_errors_of_the_disk_keep_their_words(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=os.strerror(errno.ENOTDIR)):
        now(RunStore(DiskVolume(tmp_path / "file")).create("x"))


def test_what_others_left_in_the_directory_is_not_a_run(tmp_path):
    store = RunStore(DiskVolume(tmp_path))
    assert now(store.list()) == []
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "name with spaces").mkdir()
    (tmp_path / "name with spaces" / "meta.bin").write_bytes(b"")
    (tmp_path / ".deleted-x").mkdir()
    (tmp_path / ".deleted-x" / "meta.bin").write_bytes(b"")
    with now(store.create("x", "x")) as run:
        run.save(checkpoint())
    assert [info.id for info in now(store.list())] == ["x"]
    now(store.delete("x"))
    assert now(store.list()) == [] and (tmp_path / "notes.txt").read_text() == "mine"


def test_reading_beyond_the_end_allocates_nothing(tmp_path):
    file = DiskFile(tmp_path / "f")
    file.write_at(0, b"12345")
    assert bytes(file.read_at(3, 1 << 60)) == b"45" and bytes(file.read_at(9, 1 << 60)) == b""
    file.truncate(2)
    assert file.size() == 2
    file.flush()
    file.close()


def test_a_run_that_finds_room_for_its_folder_and_not_for_its_files_leaves_nothing(tmp_path, monkeypatch):
    made = DiskFile.__init__

    def full(self, path):
        if path.name == "meta.bin":
            raise StoreQuotaError("saving", "there is room", "there is none", "free some")
        made(self, path)

    monkeypatch.setattr(DiskFile, "__init__", full)
    with pytest.raises(StoreQuotaError):
        now(RunStore(DiskVolume(tmp_path / "runs")).create("first"))
    assert list((tmp_path / "runs").iterdir()) == []
