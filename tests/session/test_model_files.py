"""Models in and out of a session: Hugging Face's files by name, its .zip, GGUF; and what is wrong is told, with nothing kept."""

import io
import json
import zipfile

import numpy as np
import pytest

from posttrainllm.store import hf
from tests.session.test_session import QUICK, TEXT, scenario
from tests.store.hf_samples import BPE, OTHER, PLAIN, arrays, by_hand, checkpoint, folder_of

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")


async def given(asker, files, *answers):
    return await asker.call("runs.import_files", *(answers or ("runs",)), names=list(files), files=list(files.values()))


def weights_of(asker):
    model = asker.session.model
    return {name: np.frombuffer(model.weight_bytes(name), "<f4") for name in model.weight_names()}


@scenario
async def test_files_by_name_become_a_run_that_writes_and_can_be_tuned(asker):
    listed = await given(asker, by_hand(OTHER, dtype="F16"))
    opened = await asker.wait("opened")
    assert opened["run_id"] == listed["imported"] and not opened["resumable"] and opened["step"] == 0
    assert opened["config"] == OTHER.to_dict() and opened["tokenizer"]["name"] == "bpe" and opened["name"] == "imported model"
    for name, array in weights_of(asker).items():
        assert np.array_equal(array, arrays(OTHER)[name].astype("<f2").astype("<f4").reshape(-1)), name
    asker.ask("write.start", prompt="To be", tokens=8)
    assert (await asker.wait("wrote"))["tokens"] == 8
    settings = {"steps": 3, "warmup_steps": 1, "decay_steps": 3, "evaluate_every_steps": 3, "evaluation_tokens": 64}
    asker.ask("tune.start", how="text", text=TEXT, training=settings, name="an adapter")
    assert (await asker.wait("tune.stopped"))["step"] == 3


@scenario
async def test_a_zip_of_the_folder_under_its_own_name(asker):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in by_hand(PLAIN).items():
            archive.writestr(f"gpt2/{name}", data)
    for ask in ("runs.import_files", "runs.import"):
        fields = {"names": ["my gpt2.zip"], "files": [memory.getvalue()]} if ask.endswith("files") else {"name": "my gpt2.zip", "buffer": memory.getvalue()}
        await asker.call(ask, "runs", **fields)
        opened = await asker.wait("opened")
        assert (opened["name"], opened["config"]) == ("my gpt2", PLAIN.to_dict())
        assert all(np.array_equal(array, arrays(PLAIN)[name].reshape(-1)) for name, array in weights_of(asker).items())


@scenario
async def test_a_folder_chosen_with_its_own_name(asker):
    await given(asker, {f"distilled/{name}": data for name, data in by_hand(PLAIN).items()})
    assert (await asker.wait("opened"))["name"] == "distilled"


@scenario
async def test_an_exported_run_still_comes_back_as_one_file(asker):
    stopped = await asker.trained()
    data = (await asker.call("runs.export", "exported", run_id=stopped["run_id"], format="safetensors"))["buffer"]
    await given(asker, {"a run.safetensors": data})
    assert (await asker.wait("opened"))["step"] == 30


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config.json": b"{}"}, "config.json came alone"),
        ({"model.safetensors": by_hand()["model.safetensors"]}, "posttrainllm.format_version"),
        ({"a.zip": b"PK\3\4"}, "sound archive"),
        (by_hand(activation_function="relu"), "'relu' came"),
        (by_hand(n_positions=4096), "context is a whole number from 1 to 2,048"),
        ({name: data for name, data in by_hand().items() if name != "config.json"}, "config.json among them"),
        ({}, "0 names and 0 files came"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_kept(files, message):
    @scenario
    async def body(asker):
        failed = await given(asker, files, "failed")
        assert message in failed["message"] and failed["code"].startswith(("E-FORMAT", "E-CONFIG")), failed
        assert (await asker.call("runs.list", "runs"))["runs"] == []

    body()


@scenario
async def test_a_run_is_taken_out_for_transformers_and_for_llama_cpp(asker):
    await given(asker, by_hand(OTHER))
    run_id = (await asker.wait("opened"))["run_id"]
    exported = await asker.call("runs.export", "exported", run_id=run_id, format="hf")
    assert exported["name"] == "imported model.zip" and exported["bytes"] == len(exported["buffer"]) and exported["note"] == ""
    with zipfile.ZipFile(io.BytesIO(exported["buffer"])) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    expected = folder_of(checkpoint(OTHER, BPE))
    assert found.keys() == expected.keys()
    assert all(found[name] == expected[name] for name in expected if name != "model.safetensors")
    again = hf.read(found)
    assert all(bytes(tensor.view()) == arrays(OTHER)[name].tobytes() for name, tensor in again.weights.items())
    for matrices in ("f32", "f16", "q8_0"):
        exported = await asker.call("runs.export", "exported", run_id=run_id, format="gguf", matrices=matrices)
        assert exported["name"] == "imported model.gguf" and exported["buffer"][:4] == b"GGUF" and "tanh form" in exported["note"]
    assert "'onnx' came" in (await asker.call("runs.export", "failed", run_id=run_id, format="onnx"))["message"]
    assert "'q3' came" in (await asker.call("runs.export", "failed", run_id=run_id, format="gguf", matrices="q3"))["message"]


@scenario
async def test_a_run_that_is_not_open_is_taken_out_too(asker):
    first = (await asker.trained())["run_id"]
    await given(asker, by_hand(PLAIN))
    await asker.wait("opened")
    exported = await asker.call("runs.export", "exported", run_id=first, format="hf")
    with zipfile.ZipFile(io.BytesIO(exported["buffer"])) as archive:
        assert json.loads(archive.read("config.json"))["n_embd"] == 48
    assert (await asker.call("runs.delete", "runs", run_id=first))["runs"][0]["name"] == "imported model", "it was closed again"


@scenario
async def test_while_a_run_goes_an_import_waits_in_the_list(asker):
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 400})
    await asker.wait("step")
    listed = await given(asker, by_hand(PLAIN))
    assert any(row["run_id"] == listed["imported"] and not row["live"] for row in listed["runs"])
    asker.ask("train.stop")
    assert (await asker.wait("stopped"))["step"] > 0


@scenario
async def test_an_imported_model_is_trained_on_as_a_whole(asker):
    """A new run begins with its weights and in its tokens, and goes on like any other; the import stays as it was."""
    await given(asker, by_hand(OTHER))
    first = (await asker.wait("opened"))["run_id"]
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", base=first, training=QUICK | {"steps": 6, "learning_rate": 1e-3})
    started = await asker.wait("started")
    assert started["config"] == OTHER.to_dict() and started["tokenizer"]["name"] == "bpe" and started["name"] == "imported model, on hamlet"
    assert started["run_id"] != first
    stopped = await asker.wait("stopped")
    losses = [row for event in asker.events if event["kind"] == "step" for row in event["rows"]]
    assert stopped["step"] == 6 and losses
    assert any(not np.array_equal(array, arrays(OTHER)[name].reshape(-1)) for name, array in weights_of(asker).items())
    await asker.call("runs.continue", "started", run_id=started["run_id"], steps=2)
    assert (await asker.wait("stopped"))["step"] == 8
    await asker.call("runs.open", "opened", run_id=first)
    assert all(np.array_equal(array, arrays(OTHER)[name].reshape(-1)) for name, array in weights_of(asker).items())
    await asker.call("train.start", "started", base=first, training=QUICK | {"steps": 1, "learning_rate": 0.0, "weight_decay": 0.0})
    await asker.wait("stopped")
    assert all(np.array_equal(array, arrays(OTHER)[name].reshape(-1)) for name, array in weights_of(asker).items()), "the weights it began with"
    assert "exists" in (await asker.call("train.start", "failed", base="nothing"))["message"]
