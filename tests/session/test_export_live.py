"""Export of what is in memory: where nothing can be saved, and where the run is further than its file; and a save that was taken and not kept."""

import asyncio

import pytest

from posttrainllm.errors import StoreQuotaError
from posttrainllm.session import Host
from posttrainllm.store.checkpoint import Checkpoint, weights_sha256
from posttrainllm.store.renewal import require_kept
from posttrainllm.store.runs import Run

from .test_session import QUICK, TEXT, running

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/test_storage_lost.py takes the storage away in the tab")


def no_room(self, checkpoint):
    raise StoreQuotaError("save", "there is room", "there is none", "free some space")


def exported(event):
    return Checkpoint.from_safetensors(bytes(event["buffer"]), "exported")


def test_a_run_that_could_never_be_saved_is_exported(monkeypatch):
    async def go():
        async with running() as asker:
            monkeypatch.setattr(Run, "save", no_room)
            asker.ask("corpus.text", text=TEXT, name="hamlet")
            asker.ask("train.start", preset="tiny", training=QUICK)
            stopped = await asker.wait("stopped", "failed")
            while stopped["kind"] == "failed":
                assert "free some space" in stopped["message"]
                stopped = await asker.wait("stopped", "failed")
            assert not stopped["saved"]
            live = await asker.call("runs.export_live", "exported")
            held = await asker.call("runs.export", "exported", run_id=asker.session.runs.held_id)
            return exported(live), exported(held), asker.session.model.weights_sha256()

    live, held, sha = asyncio.run(go())
    for found in (live, held):
        assert found.step == QUICK["steps"] and weights_sha256(found.weights) == sha and found.m and found.v


def test_a_run_that_is_further_than_its_file_is_exported_as_it_stands(monkeypatch):
    async def go():
        async with running() as asker:
            await asker.trained()
            monkeypatch.setattr(Run, "save", no_room)
            asker.ask("train.extend", steps=5)
            stopped = await asker.wait("stopped", "failed")
            while stopped["kind"] == "failed":
                stopped = await asker.wait("stopped", "failed")
            found = await asker.call("runs.export", "exported", run_id=asker.session.runs.held_id)
            return exported(found), asker.session.model.weights_sha256()

    found, sha = asyncio.run(go())
    assert found.step == QUICK["steps"] + 5 and weights_sha256(found.weights) == sha


def test_without_a_model_there_is_nothing_to_export():
    async def go():
        async with running() as asker:
            return await asker.call("runs.export_live", "failed")

    assert "press Train, or open a run" in asyncio.run(go())["message"]


def test_a_save_that_was_taken_and_not_kept_is_no_save():
    """A browser that drops writes: the head that a reader finds is older than the save that seemed to go well."""

    async def go():
        host = Host(device="cpu")
        async with running(host) as asker:
            await asker.trained()
            runs = asker.session.runs
            run, store = runs.held, runs.store
            before, generation = run.newest, run.generation
            await require_kept(store, run, before)  # what is there is there
            heads = await store.volume.peek(run.id)

            async def old(run_id):
                return heads

            run.save(run.load())
            assert run.generation == generation + 1
            store.volume.peek = old
            with pytest.raises(StoreQuotaError, match="took it and did not keep it"):
                await require_kept(store, run, before)
            assert run.newest == before and run.generation == generation

    asyncio.run(go())
