"""A Hugging Face model into the tab and out again, through real File objects: the same weights, in the worker's storage and after it."""

from __future__ import annotations

import base64
import io
import zipfile

import pytest
from e2e.driver import Driver

from posttrainllm.store import hf
from posttrainllm.store.safetensors import SafeTensors
from tests.store.hf_samples import BPE, OTHER, arrays, by_hand, checkpoint, folder_of, widened

pytestmark = pytest.mark.slow


def same(weights, expected) -> bool:
    return weights.keys() == expected.keys() and all(bytes(tensor.view()) == expected[name].tobytes() for name, tensor in weights.items())


def test_in_as_files_and_as_a_zip_and_out_for_transformers_and_llama_cpp(contexts, site, tmp_path):
    """Half-precision weights, a head of its own, the exact GELU and a BPE vocabulary at once."""
    expected = {name: widened(array, "F16") for name, array in arrays(OTHER).items()}
    for name, data in by_hand(OTHER, dtype="F16").items():
        (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in by_hand(OTHER):
            archive.write(tmp_path / name, f"gpt2/{name}")
    driver = Driver(contexts().new_page(), site.url)
    driver.wait("ready")
    for paths in ([tmp_path / name for name in by_hand(OTHER)], [tmp_path / "packed.zip"]):
        identity = driver.ask_with_files("runs.import_files", *paths)
        listed = driver.wait("runs", reply_to=identity)
        opened = driver.wait("opened")
        assert opened["run_id"] == listed["imported"] and opened["config"] == OTHER.to_dict() and opened["tokenizer"]["name"] == "bpe"
        assert same(driver.checkpoint(opened["run_id"]).weights, expected)
    driver.ask("write.start", prompt="To be", tokens=12, temperature=0)
    assert driver.wait("wrote")["tokens"] == 12

    exported = driver.call("runs.export", "exported", run_id=opened["run_id"], format="hf")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(exported["buffer"]))) as archive:
        assert archive.testzip() is None
        found = {name: archive.read(name) for name in archive.namelist()}
    assert exported["name"] == "packed.zip" and same(hf.read(found).weights, expected)
    here = folder_of(checkpoint(OTHER, BPE))
    assert all(found[name] == here[name] for name in here if name != "model.safetensors"), "the tab writes what CPython does"
    assert SafeTensors(found["model.safetensors"]).metadata == {"format": "pt"}
    exported = driver.call("runs.export", "exported", run_id=opened["run_id"], format="gguf", matrices="q8_0")
    assert base64.b64decode(exported["buffer"])[:4] == b"GGUF" and "tanh form" in exported["note"]


def test_what_is_no_gpt2_is_named_and_nothing_is_kept(contexts, site, tmp_path):
    for name, data in by_hand(OTHER, activation_function="silu").items():
        (tmp_path / name).write_bytes(data)
    driver = Driver(contexts().new_page(), site.url)
    driver.wait("ready")
    failed = driver.wait("failed", reply_to=driver.ask_with_files("runs.import_files", *(tmp_path / name for name in by_hand(OTHER))))
    assert failed["code"] == "E-FORMAT-MODEL" and "'silu' came" in failed["message"]
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "config.json").write_bytes(by_hand(OTHER)["config.json"])
    failed = driver.wait("failed", reply_to=driver.ask_with_files("runs.import_files", tmp_path / "alone" / "config.json"))
    assert "config.json came alone" in failed["message"]
    assert driver.call("runs.list", "runs")["runs"] == []
