"""`import` and `export`: a Hugging Face folder becomes a run and back; a sentence for every contradiction."""

import json
import tempfile
import zipfile

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.errors import FormatError
from posttrainllm.model.live import GPT
from posttrainllm.store import hf
from posttrainllm.store.checkpoint import weights_sha256
from posttrainllm.train import exchange
from posttrainllm.train.files import opened
from tests.store.hf_samples import OTHER, arrays, by_hand

from .calling import call

pytestmark = pytest.mark.native_only(reason="the command line is native")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gpt2").mkdir()
    for name, data in by_hand(OTHER).items():
        (tmp_path / "gpt2" / name).write_bytes(data)
    return tmp_path / "gpt2"


def event(*arguments, status=0):
    out, _ = call(*arguments, "--json", status=status)
    return json.loads(out.splitlines()[-1])


def test_in_and_out_again_with_the_same_weights(folder, tmp_path):
    kept = event("import", folder, "--out", tmp_path / "run")
    assert kept["event"] == "imported" and kept["config"] == OTHER.to_dict() and kept["tokenizer"] == "bpe"
    with opened(tmp_path / "run") as checkpoint:
        assert weights_sha256(checkpoint.weights) == kept["weights_sha256"] and checkpoint.name == "run"
    out = event("export", tmp_path / "run", tmp_path / "again")
    assert out == {"event": "exported", "to": "hf", "place": str(tmp_path / "again"), "bytes": out["bytes"], "note": ""}
    assert sum(file.stat().st_size for file in (tmp_path / "again").iterdir()) == out["bytes"]
    with opened(tmp_path / "again") as checkpoint:
        assert weights_sha256(checkpoint.weights) == kept["weights_sha256"]
    text = [call("sample", "--from", place, "--tokens", 6, "--temperature", 0, "--device", "cpu")[0] for place in (folder, tmp_path / "run", tmp_path / "again")]
    assert text[0] == text[1] == text[2]


def test_gguf_and_one_file(folder, tmp_path):
    for matrices in ("f32", "f16", "q8_0"):
        out = event("export", folder, tmp_path / f"{matrices}.gguf", "--to", "gguf", "--matrices", matrices)
        assert (tmp_path / f"{matrices}.gguf").stat().st_size == out["bytes"] and "tanh form" in out["note"]
    event("export", folder, tmp_path / "m.safetensors", "--to", "safetensors")
    with opened(tmp_path / "m.safetensors") as checkpoint:
        assert checkpoint.config == OTHER.to_dict()


def test_an_adapter_is_worked_in_or_written_alone(folder, tmp_path):
    (tmp_path / "text.txt").write_text("Six big juicy steaks sizzled in a pan as five workmen left the quarry. " * 30)
    steps = ["--steps", 4, "--learning-rate", 0.1, "--data", tmp_path / "text.txt", "--device", "cpu", "--evaluation-tokens", 64]
    call("lora", "--from", folder, *steps, "--out", tmp_path / "ad", "--export", tmp_path / "ad.safetensors", "--target", "mlp.fc", "--target", "attn.q")
    call("lora", "--from", folder, "--adapter", tmp_path / "ad", "--merge", tmp_path / "merged.safetensors", "--device", "cpu")
    event("export", folder, tmp_path / "merged", "--adapter", tmp_path / "ad", "--device", "cpu")
    with opened(tmp_path / "merged") as one, opened(tmp_path / "merged.safetensors") as other:
        assert weights_sha256(one.weights) == weights_sha256(other.weights)
    event("export", tmp_path / "ad.safetensors", tmp_path / "peft", "--to", "peft")
    assert (tmp_path / "peft" / "adapter_model.safetensors").read_bytes()[-200:] == (tmp_path / "ad" / "adapter_model.safetensors").read_bytes()[-200:]


def test_a_live_model_with_an_adapter_is_not_exported(folder, tmp_path):
    import posttrainllm as pt

    model = GPT.from_hf(folder, device="cpu", threads=1)
    model.attach(pt.LoRAConfig.of())
    for write in (model.to_hf, model.to_gguf):
        with pytest.raises(pt.ConfigError, match=r"model.merged\(\)"):
            write(tmp_path / "x")
    model.close()


def test_it_can_be_trained_at_once(folder):
    import posttrainllm as pt

    model = GPT.from_hf(folder, device="cpu", threads=1, training=True)
    corpus = pt.Corpus.from_text("To be, or not to be, that is the question. " * 100)
    losses = [report.loss_nats for report in pt.train(model, corpus, steps=5, learning_rate=1e-3, warmup_steps=1) if isinstance(report, pt.StepReport)]
    assert len(losses) == 5 and losses[-1] < losses[0]
    model.close()


def packed_into(place, files, **changes):
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (files | changes).items():
            archive.writestr(name, data)
    return place


def test_a_deflated_model_is_unpacked_only_once_it_was_found_sound(tmp_path, monkeypatch):
    unpacked = []
    monkeypatch.setattr(exchange.tempfile, "TemporaryFile", lambda made=tempfile.TemporaryFile: unpacked.append(made()) or unpacked[-1])
    files = by_hand(OTHER) | {"other.safetensors": bytes(500_000)}
    settings = json.loads(files["config.json"])
    large = json.dumps({"wte.weight": {"dtype": "F32", "shape": [300, 1000], "data_offsets": [0, 1_200_000]}}).encode()
    for changes in (
        {"config.json": b"{}"},
        {"config.json": json.dumps(settings | {"n_layer": 3}).encode()},
        {"tokenizer.json": b"{}"},
        {"model.safetensors": len(large).to_bytes(8, "little") + large + bytes(1_200_000)},
    ):
        with pytest.raises(FormatError):
            exchange.read_hf(packed_into(tmp_path / "m.zip", files, **changes))
        assert not unpacked
    found = exchange.read_hf(packed_into(tmp_path / "m.zip", files))
    assert len(unpacked) == 1, "a file of weights that is not the model's stays packed"
    assert weights_sha256(found.weights) == weights_sha256(hf.read(files).weights)


@pytest.mark.parametrize("dtype", ["F32", "F16"])
@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused_and_nothing_is_left(tmp_path, monkeypatch, bad, dtype):
    name = "blocks.1.mlp.proj.weight"
    spoiled = arrays(OTHER)
    spoiled[name][7, 3] = bad
    monkeypatch.setattr("tests.store.hf_samples.arrays", lambda *_: spoiled)
    (tmp_path / "gpt2").mkdir()
    for file, data in by_hand(OTHER, dtype=dtype).items():
        (tmp_path / "gpt2" / file).write_bytes(data)
    _, said = call("import", tmp_path / "gpt2", "--out", tmp_path / "runs" / "run", status=1)
    assert "transformer.h.1.mlp.c_proj.weight has one that is NaN or infinite" in said
    assert not (tmp_path / "runs").exists()
    with pytest.raises(FormatError, match="each is a finite number"):
        GPT.from_hf(tmp_path / "gpt2", device="cpu", threads=1)


def test_a_folder_that_holds_no_model_is_called_that(folder, tmp_path):
    (folder / "config.json").unlink()
    _, said = call("import", folder, "--out", tmp_path / "run", status=1)
    assert "a run is saved there, or a model's config.json and its files are; neither is" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "gpt2", "--out", "gpt2/run"], ""),
        (["import", "nothing", "--out", "run"], "reading nothing"),
        (["export", "gpt2", "gpt2"], "a config.json is in gpt2"),
        (["export", "gpt2", "gpt2", "--overwrite"], "SOURCE is only read"),
        (["export", "gpt2", "out", "--matrices", "f16"], "--matrices is gguf's"),
        (["export", "gpt2", "out", "--strength", "2"], "no --adapter came"),
        (["export", "gpt2", "out", "--to", "peft"], "cannot be read|an adapter"),
        (["export", "gpt2", "out", "--to", "peft", "--adapter", "x"], "give the adapter as SOURCE"),
        (["export", "gpt2", "gpt2/model.safetensors/x", "--to", "gguf"], "can be written"),
        (["export", "gpt2", "gpt2", "--to", "gguf"], "OUT is a file"),
        (["export", "gpt2", "gpt2/config.json"], "config.json is a file"),
    ],
)
def test_what_cannot_be_is_said(folder, arguments, message, tmp_path, monkeypatch):
    import re

    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    status = 1 if message else 0
    _, said = call(*arguments, status=status)
    assert re.search(message, said), said
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


@pytest.mark.parametrize("to", ["gguf", "safetensors"])
def test_a_file_that_is_there_is_replaced_only_where_that_was_asked_for(folder, to, tmp_path):
    out = tmp_path / "notes.txt"
    out.write_text("mine")
    _, said = call("export", folder, out, "--to", to, status=1)
    assert "is there already" in said and "--overwrite" in said and out.read_text() == "mine"
    call("export", folder, out, "--to", to, "--overwrite")
    assert out.stat().st_size > 1000 and not list(tmp_path.glob(".*.part"))
