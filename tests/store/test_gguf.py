"""GGUF: every byte of the file's head by hand, matrices turned, and the real gguf package's reader and quantizer as the judge."""

import struct

import numpy as np
import pytest

from posttrainllm.errors import ConfigError, FormatError
from posttrainllm.model.config import GPTConfig
from posttrainllm.store.gguf import ALIGNMENT, KINDS, file_of, name_of, note_of
from tests.store.hf_samples import BPE, OTHER, PLAIN, arrays, checkpoint
from tests.study.by_hand import forward

WIDE = GPTConfig(layers=2, channels=64, heads=4, context=20, vocabulary=256, batch=16)
CONFIGS_BY_NAME = {PLAIN: "narrow", OTHER: "a head of its own", WIDE: "whole blocks"}
TOKENS = [1, 2, 77, 3, 200, 9]


def written(config, kind="f32", tokenizer=None):
    file = file_of(checkpoint(config, tokenizer), kind)
    data = b"".join(map(bytes, file.chunks))
    assert len(data) == file.most_bytes
    return data


class Parsed:
    """A reader in a page, by the specification alone."""

    def __init__(self, data):
        self.data, self.at = data, 0
        assert self.take(4) == b"GGUF" and self.number("<I") == 3
        tensors, pairs = self.number("<Q"), self.number("<Q")
        self.fields = {}
        for _ in range(pairs):
            key = self.text()
            self.fields[key] = self.value(self.number("<I"))
        infos = []
        for _ in range(tensors):
            name = self.text()
            sizes = [self.number("<Q") for _ in range(self.number("<I"))]
            infos.append((name, sizes, self.number("<I"), self.number("<Q")))
        start = -(-self.at // ALIGNMENT) * ALIGNMENT
        assert not any(data[self.at : start])
        self.tensors = {name: (sizes, kind, start + place) for name, sizes, kind, place in infos}

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self):
        return self.take(self.number("<Q")).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("<I"), self.number("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.number({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind])

    def array(self, name):
        sizes, kind, place = self.tensors[name]
        assert kind == 0 and place % ALIGNMENT == 0
        return np.frombuffer(self.data, "<f4", int(np.prod(sizes)), place).reshape(sizes[::-1])


@pytest.mark.parametrize("config", [PLAIN, OTHER], ids=["tied", "a head of its own"])
def test_by_the_specification_it_is_the_model(config):
    """Read back by hand, turned to (in, out), the numbers give the very logits of the weights that were written."""
    found, weights = Parsed(written(config)), arrays(config)
    assert len(found.tensors) == len(weights) and ("output.weight" in found.tensors) != config.tied
    again = {}
    for name, array in weights.items():
        there = found.array(name_of(name))
        again[name] = there.T if name.startswith("blocks.") and array.ndim == 2 else there
        assert again[name].shape == array.shape and np.array_equal(again[name], array), name
    one, other = (forward({name: each.astype(float) for name, each in held.items()}, config, TOKENS)["logits"] for held in (again, weights))
    assert np.array_equal(one, other)


def test_keys_and_tokens():
    fields = Parsed(written(OTHER, "q8_0", BPE)).fields
    assert fields["general.architecture"] == "gpt2" and fields["general.alignment"] == 32 and fields["general.file_type"] == KINDS["q8_0"]
    assert [fields[f"gpt2.{name}"] for name in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count")] == [20, 24, 2, 50, 3]
    assert fields["gpt2.attention.layer_norm_epsilon"] == np.float32(1e-5)
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    assert len(tokens) == len(kinds) == 300, "as many as the model has rows"
    assert tokens[290:] == [f"[PAD{at}]" for at in range(290, 300)] and set(kinds[290:]) == {5}
    end = BPE.specials["<|endoftext|>"]
    assert tokens[end] == "<|endoftext|>" and kinds[end] == 3 and kinds[0] == 1
    assert fields["tokenizer.ggml.bos_token_id"] == fields["tokenizer.ggml.eos_token_id"] == end
    assert len(fields["tokenizer.ggml.merges"]) == len(BPE.merges) and " " in fields["tokenizer.ggml.merges"][0]
    plain = Parsed(written(PLAIN)).fields
    assert plain["tokenizer.ggml.merges"] == [] and "tokenizer.ggml.eos_token_id" not in plain and plain["tokenizer.ggml.tokens"][32] == "Ġ"


def test_what_is_refused_and_what_is_said():
    with pytest.raises(ConfigError, match="one of f32, f16, q8_0; 'q4' came"):
        file_of(checkpoint(), "q4")
    one = checkpoint()
    one.adapter = {"name": "a", "lora": {}, "base_sha256": ""}
    with pytest.raises(FormatError, match="merge it into its base first"):
        file_of(one)
    assert note_of(PLAIN) == "" and "tanh form" in note_of(OTHER)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CONFIGS_BY_NAME, ids=CONFIGS_BY_NAME.values())
def test_the_gguf_package_reads_it_and_quantizes_alike(config, kind, tmp_path):
    gguf = pytest.importorskip("gguf", reason="the gguf package is a peer of native tests")
    (tmp_path / "m.gguf").write_bytes(written(config, kind))
    reader, weights = gguf.GGUFReader(tmp_path / "m.gguf"), arrays(config)
    assert reader.fields["general.architecture"].contents() == "gpt2" and len(reader.tensors) == len(weights)
    found = {each.name: each for each in reader.tensors}
    known = {gguf.TENSOR_NAMES[each].format(bid=layer) for each in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.GPT2] for layer in range(config.layers)}
    types = set()
    for name, array in weights.items():
        each = found[name_of(name)]
        assert each.name.rpartition(".")[0] in known
        there = array.T if name.startswith("blocks.") and array.ndim == 2 else array
        assert list(each.shape) == list(reversed(there.shape)), "fastest first"
        assert each.data_offset % ALIGNMENT == 0
        if array.ndim == 1 or name == "wpe.weight":
            assert each.tensor_type.name == "F32"
        elif kind == "q8_0":
            assert each.tensor_type.name == ("F16" if there.shape[-1] % 32 else "Q8_0")
        types.add(each.tensor_type.name)
        expected = gguf.quants.quantize(np.ascontiguousarray(there), each.tensor_type)
        assert bytes(each.data) == expected.tobytes(), name
        if each.tensor_type.name == "Q8_0":
            near = gguf.quants.dequantize(each.data, each.tensor_type).reshape(there.shape)
            assert np.abs(near - there).max() <= np.abs(there).max() / 127 * (0.5 + 127 * 2**-11), "half a step, and a scale in half precision"
    quantized = {"narrow": {"F16", "Q8_0"}, "a head of its own": {"F16"}, "whole blocks": {"Q8_0"}}
    assert types == {"F32"} | {"f32": set(), "f16": {"F16"}, "q8_0": quantized[CONFIGS_BY_NAME[config]]}[kind]
    assert reader.fields["tokenizer.ggml.tokens"].contents()[:2] == (["Ā", "ā"] if config.vocabulary == 256 else ["!", '"'])
