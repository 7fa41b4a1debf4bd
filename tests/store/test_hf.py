"""Hugging Face's folder without Hugging Face's programs: what is written is read back, and what is no GPT-2 is named."""

import io
import json
import zipfile

import numpy as np
import pytest

from posttrainllm.errors import ConfigError, FormatError, UserError
from posttrainllm.model.config import GPTConfig
from posttrainllm.store import hf
from posttrainllm.store.archive import File, opened_zip, zipped
from posttrainllm.store.buffers import CHUNK_BYTES, FileRange, MemorySource
from posttrainllm.store.hf_weights import Widened, ours, theirs
from posttrainllm.store.safetensors import SafeTensors, encode
from tests.store.hf_samples import BPE, OTHER, PLAIN, arrays, by_hand, checkpoint, folder_of, narrowed, widened

HEAD = ("lm_head.weight", "F32", (256, 24), bytes(4 * 256 * 24))


def same_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == "F32" and bytes(tensor.view()) == np.asarray(expected[name]).tobytes(), name


@pytest.mark.parametrize(("config", "tokenizer"), [(PLAIN, None), (OTHER, None), (OTHER, BPE)])
def test_what_is_written_is_read_back(config, tokenizer):
    one = checkpoint(config, tokenizer)
    again = hf.read(folder_of(one), "again")
    assert GPTConfig.from_dict(again.config) == config and again.tokenizer == one.tokenizer and again.name == "again"
    assert not again.resumable and again.step == 0
    same_weights(again.weights, arrays(config))


def test_the_folder_says_what_transformers_asks():
    files = folder_of(checkpoint(OTHER))
    config = json.loads(files["config.json"])
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["n_inner"] == 50 and config["n_ctx"] == config["n_positions"] == 20
    assert (config["activation_function"], config["tie_word_embeddings"], config["bos_token_id"]) == ("gelu", False, BPE.specials["<|endoftext|>"])
    plain = json.loads(folder_of(checkpoint(PLAIN))["config.json"])
    assert (plain["n_inner"], plain["activation_function"], plain["tie_word_embeddings"], plain["eos_token_id"]) == (None, "gelu_new", True, None)
    vocabulary, merges = json.loads(files["vocab.json"]), files["merges.txt"].decode().splitlines()
    assert len(vocabulary) == 290 and merges[0] == "#version: 0.2" and len(merges) - 1 == len(BPE.merges)
    assert list(json.loads(folder_of(checkpoint(PLAIN))["vocab.json"]).values()) == list(range(256))
    header = files["model.safetensors"][8:200]
    assert b'"__metadata__":{"format":"pt"}' in header and b"lm_head.weight" in files["model.safetensors"]
    assert b"lm_head" not in folder_of(checkpoint(PLAIN))["model.safetensors"], "a tied head is not written twice"


@pytest.mark.parametrize("prefix", ["transformer.", ""])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_prefixed_or_not_in_any_precision(prefix, dtype):
    found = hf.read(by_hand(prefix=prefix, dtype=dtype))
    same_weights(found.weights, {name: widened(array, dtype) for name, array in arrays(PLAIN).items()})


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_widened_wherever_a_reader_begins(dtype):
    data = np.arange(-5, 6, dtype="<f4") / 3
    narrow = narrowed(data, dtype)
    source = Widened(dtype, FileRange(MemorySource(b"??" + narrow + b"?"), 2, len(narrow)))
    whole = widened(data, dtype).tobytes()
    assert source.size == len(whole)
    for at in range(len(whole) + 2):
        for count in (0, 1, 3, 4, 9, 100):
            assert bytes(source.read_at(at, count)) == whole[at : at + count]


def sharded(files, shards=3):
    """The same folder with its weights in several files."""
    tensors = [(name, *each) for name, each in SafeTensors(files["model.safetensors"]).tensors.items()]
    made = {name: data for name, data in files.items() if name != "model.safetensors"}
    places = {}
    for at in range(shards):
        name = f"model-{at + 1:05}-of-{shards:05}.safetensors"
        made[name] = b"".join(map(bytes, encode(tensors[at::shards], {})))
        places |= {each[0]: name for each in tensors[at::shards]}
    return made | {"model.safetensors.index.json": json.dumps({"metadata": {"total_size": 1}, "weight_map": places}).encode()}


def test_weights_in_several_files():
    files = sharded(by_hand(OTHER))
    same_weights(hf.read(files).weights, arrays(OTHER))
    for change, message in (
        ({"model-00002-of-00003.safetensors": None}, "model-00002-of-00003.safetensors is missing"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "../../x.safetensors"}}'}, "'a' is in '../../x.safetensors'"),
        ({"model.safetensors.index.json": b'{"weight_map": {}}'}, "there is none"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "model-00002-of-00003.safetensors"}}'}, "it holds 'a'"),
        ({"model.safetensors.index.json": b"[1"}, "closes what it opens"),
        ({"model-00002-of-00003.safetensors": files["model-00001-of-00003.safetensors"]}, "as model.safetensors.index.json says"),
    ):
        broken = {name: data for name, data in (files | change).items() if data is not None}
        with pytest.raises(FormatError, match=message.replace(".", r"\.").replace("[", r"\[")):
            hf.read(broken)


def test_the_causal_masks_of_old_files_are_passed_over():
    masks = [(f"h.{layer}.attn.{name}", "F32", (1, 1, 2, 2), bytes(16)) for layer in (0, 1) for name in ("bias", "masked_bias")]
    same_weights(hf.read(by_hand(prefix="", more=masks)).weights, arrays(PLAIN))


def test_a_head_that_is_there_counts_where_it_differs():
    """As transformers has it: both present and different means they are not tied, whatever config.json says."""
    copy = ("lm_head.weight", "F32", (256, 24), arrays(PLAIN)["wte.weight"].tobytes())
    assert GPTConfig.from_dict(hf.read(by_hand(more=[copy])).config).tied
    other = hf.read(by_hand(more=[HEAD]))
    assert not GPTConfig.from_dict(other.config).tied and not any(other.weights["lm_head.weight"].view())
    assert not GPTConfig.from_dict(hf.read(by_hand(more=[copy], tie_word_embeddings=False)).config).tied


def test_the_older_pair_of_tokenizer_files():
    files = folder_of(checkpoint(OTHER, BPE))
    del files["tokenizer.json"]
    found = hf.tokenizer_of(files, 300)
    assert found.tokens == BPE.tokens and found.merges == BPE.merges
    assert found.specials == {"<|endoftext|>": BPE.specials["<|endoftext|>"]}, "what these files can say"
    text = "Whether 'tis  nobler<|endoftext|>…\n"
    assert list(found.encode(text)) == list(BPE.encode(text))
    windows = files | {"merges.txt": files["merges.txt"].replace(b"\n", b"\r\n")}
    assert hf.tokenizer_of(windows, 300).merges == BPE.merges
    for name, data in (("merges.txt", b"\xff"), ("merges.txt", b"#version: 0.2\na b c\n"), ("vocab.json", b'{"a": 0}'), ("vocab.json", b"[]")):
        with pytest.raises(FormatError):
            hf.tokenizer_of(files | {name: data}, 300)


def test_without_a_tokenizer():
    files = {name: data for name, data in by_hand().items() if name not in ("tokenizer.json", "vocab.json", "merges.txt")}
    assert hf.read(files).tokenizer == {"name": "bytes", "vocabulary": 256}
    other = {name: data for name, data in by_hand(OTHER).items() if name not in ("tokenizer.json", "vocab.json", "merges.txt")}
    with pytest.raises(FormatError, match="tokenizer.json, or vocab.json and merges.txt; neither came"):
        hf.read(other)
    with pytest.raises(FormatError, match="at most the model's 256 tokens; 290 came"):
        hf.read(by_hand() | {"tokenizer.json": BPE.to_json().encode()})


REFUSED = {
    "relu": ({"activation_function": "relu"}, "one of gelu_new, gelu_pytorch_tanh, gelu; 'relu' came"),
    "another model": ({"model_type": "llama"}, "its model_type is gpt2; 'llama' came"),
    "another epsilon": ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-05"),
    "scaled by layer": ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is false, all that this program does; True came"),
    "not scaled": ({"scale_attn_weights": False}, "scale_attn_weights is true"),
    "cross attention": ({"add_cross_attention": True}, "add_cross_attention is false"),
    "quantized": ({"quantization_config": {"bits": 4}}, "quantization_config is null"),
    "no sizes": ({"n_layer": None}, "n_layer is a whole number; None came"),
    "a wrong size": ({"n_embd": 25}, "heads divide channels"),
    "too long": ({"n_positions": 1 << 20}, "context is a whole number from 1 to 2,048"),
    "a width in words": ({"n_inner": "wide"}, "n_inner is a whole number or null"),
    "tied perhaps": ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is true or false"),
    "a head that is missing": ({"tie_word_embeddings": False}, "lm_head.weight is there where tie_word_embeddings is false"),
    "another width": ({"n_inner": 100}, r"transformer.h.\d.mlp.c_fc.(weight|bias) is "),
    "more layers": ({"n_layer": 3}, "the 40 weights of 3 layers; transformer.h.2..* is missing"),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_this_program_does_not_do_is_named(settings, message):
    with pytest.raises((FormatError, ConfigError), match=message) as caught:
        hf.read(by_hand(**settings))
    assert isinstance(caught.value, UserError) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": [("score.weight", "F32", (1,), bytes(4))]}, "a GPT-2 with a head for text; 'score.weight' came"),
        ({"more": [("wte.weight", "F32", (256, 24), bytes(4 * 256 * 24))]}, "each weight is there once; 'wte.weight' came again"),
        ({"without": ["blocks.1.ln_2.bias"]}, "transformer.h.1.ln_2.bias is missing"),
        ({"more": [("h.7.ln_1.bias", "F32", (24,), bytes(96))]}, "transformer.h.7.ln_1.bias is too many"),
        ({"without": ["wpe.weight"], "more": [("wpe.weight", "F32", (24, 20), bytes(4 * 480))]}, r"transformer.wpe.weight is \[20, 24\]; it is \[24, 20\]"),
        ({"without": ["wpe.weight"], "more": [("wpe.weight", "I8", (20, 24), bytes(480))]}, "weights are F32, F16, BF16; 'wpe.weight' is I8"),
    ],
)
def test_wrong_tensors_are_named(change, message):
    with pytest.raises(FormatError, match=message):
        hf.read(by_hand(**change))


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_file_that_is_missing_is_named(missing):
    files = {name: data for name, data in by_hand().items() if name != missing}
    with pytest.raises(FormatError, match=missing):
        hf.read(files)


def test_the_run_of_an_adapter_is_no_model():
    one = checkpoint()
    one.adapter = {"name": "a", "lora": {}, "base_sha256": ""}
    with pytest.raises(FormatError, match="merge it into its base first, or export it for PEFT"):
        hf.files_of(one)


@pytest.mark.parametrize("name", list(arrays(OTHER)))
def test_names_there_and_back(name):
    assert ours(theirs(name)) == name == ours(theirs(name).removeprefix("transformer."))


def packed(files, method, folder=""):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(folder + name, data)
    return memory.getvalue()


@pytest.mark.parametrize("folder", ["", "my model/", "a/b/"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_out_of_a_zip(method, folder):
    data = packed(by_hand(OTHER), method, folder)
    same_weights(hf.read_zip(data, "x").weights, arrays(OTHER))


def test_the_zip_that_is_written_is_read_and_says_nothing_of_the_day():
    one = checkpoint(OTHER)
    data = b"".join(zipped(hf.files_of(one)))
    assert data == b"".join(zipped(hf.files_of(one)))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None and set(archive.namelist()) == set(folder_of(one))
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    same_weights(hf.read_zip(data).weights, arrays(OTHER))


def test_a_zip_is_written_a_piece_at_a_time():
    """No more than a piece is held: the chunks of a large file come as they are asked for."""
    taken = []

    def chunks():
        for at in range(5):
            taken.append(at)
            yield bytes(CHUNK_BYTES)

    parts = zipped({"large": File(5 * CHUNK_BYTES, chunks())})
    for at in range(5):
        assert len(next(parts)) <= CHUNK_BYTES + 100 and taken == list(range(at + 1))


def test_above_two_gigabytes_a_zip_says_so():
    """The sizes then take 64 bits: known before the first byte, since nobody seeks back."""
    data = b"".join(zipped({"large": File(1 << 31, [b"abc"])}))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.read("large") == b"abc" and archive.infolist()[0].extract_version >= 45


def locked(data):
    """The same archive with every entry said to be locked with a password."""
    changed = bytearray(data)
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = changed.find(mark)
        while place >= 0:
            changed[place + at] |= 1
            place = changed.find(mark, place + 4)
    return bytes(changed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\3\4 nothing", "sound archive"),
        (packed({"readme.txt": b"x"}, zipfile.ZIP_STORED), "config.json among them"),
        (packed({"config.json": b"{}"}, zipfile.ZIP_BZIP2), "compressed in another way"),
        (locked(packed({"config.json": b"{}"}, zipfile.ZIP_STORED)), "locked with a password"),
        (packed({"config.json": bytes(100_000_000)}, zipfile.ZIP_DEFLATED), "unpacks to 100,000,000 bytes"),
    ],
)
def test_archives_that_are_refused(data, message):
    with pytest.raises(FormatError, match=message):
        hf.read_zip(data)


def test_a_stored_file_lies_in_the_archive_itself():
    """Nothing is copied out: the entry reads where the archive holds it."""
    data = packed({"a": b"0123456789"}, zipfile.ZIP_STORED)
    entry = opened_zip(data)["a"]
    assert bytes(entry.read_at(3, 100)) == b"3456789" and entry.size == 10 and data[entry.offset :][:10] == b"0123456789"
