"""GGUF, the file that llama.cpp runs: a whole GPT-2 with its tokenizer, written as a stream.

    magic "GGUF", version 3, number of tensors, number of keys
    keys and values; then each tensor's name, sizes (fastest first), type and place; then their data, each at a multiple of 32 bytes

The four linears of a block are turned to (out, in), as llama.cpp's converter does for GPT-2; norms, biases and positions stay
F32. A tied head is left out: the reader takes the embedding. The format cannot say which GELU a model has, and llama.cpp computes
the tanh form for GPT-2: a model of the exact form comes near (its units differ by 5e-4 at most), and `note_of` says so.
Sources: the GGUF specification (ggml-org/ggml, docs/gguf.md), gguf-py's constants, llama.cpp's converter for GPT2LMHeadModel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..data import tokenizer_json
from ..data.tokenizers import from_dict
from ..errors import ConfigError, FormatError
from ..model.config import GPTConfig
from ..model.gpt import parameters
from ..ops.lazy import np
from .archive import File
from .buffers import Tensor, in_python, nbytes, pieces
from .checkpoint import Checkpoint
from .hf import parts_of

ALIGNMENT = 32
VERSION = 3
KINDS = {"f32": 0, "f16": 1, "q8_0": 7}
"""How matrices are kept, and the number that general.file_type has for it."""
_F32, _F16, _Q8_0 = 0, 1, 8
_TYPES = {"f32": _F32, "f16": _F16, "q8_0": _Q8_0}
_BLOCK = 32
"""Numbers that share a scale in Q8_0: 2 bytes of scale, 32 bytes."""
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5
_MODULES = {"ln_1": "attn_norm", "attn.qkv": "attn_qkv", "attn.proj": "attn_output", "ln_2": "ffn_norm", "mlp.fc": "ffn_up", "mlp.proj": "ffn_down"}
_NAMES = {"wte.weight": "token_embd.weight", "wpe.weight": "position_embd.weight", "lm_head.weight": "output.weight"}
_ROWS_BYTES = 4 << 20


class _Entry(NamedTuple):
    """A tensor as it is written: shape rows first, type, and whether what is held is (in, out) and is turned."""

    name: str
    shape: tuple[int, ...]
    type: int
    turned: bool
    tensor: Tensor

    @property
    def nbytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return {_F32: 4 * count, _F16: 2 * count, _Q8_0: count // _BLOCK * 34}[self.type]


def file_of(checkpoint: Checkpoint, kind: str = "f32") -> File:
    """The file: matrices in F32, "f16" or "q8_0" (F16 where a row is no multiple of 32 long). Weights are read as chunks are taken.

    Raises ConfigError for another kind, FormatError for an adapter's run.
    """
    if kind not in KINDS:
        raise ConfigError("gguf", f"matrices are kept as one of {', '.join(KINDS)}", f"{kind!r} came", "choose one of those")
    if checkpoint.adapter:
        raise FormatError("export", "a whole model", "the run of an adapter came", "merge it into its base first", code="E-FORMAT-MODEL")
    config = GPTConfig.from_dict(checkpoint.config)
    entries = _entries(checkpoint, config, _TYPES[kind])
    pairs, place = _pairs(checkpoint, config, KINDS[kind]), 0
    head = [b"GGUF", struct.pack("<IQQ", VERSION, len(entries), len(pairs)), *pairs]
    for entry in entries:
        sizes = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
        head.append(_text(entry.name) + sizes + struct.pack("<IQ", entry.type, place))
        place += _padded(entry.nbytes)
    whole = b"".join(head)
    whole += bytes(_padded(len(whole)) - len(whole))
    return File(len(whole) + place, _chunks(whole, entries))


def note_of(config: GPTConfig) -> str:
    """What a person who takes the file should know; empty for a model that llama.cpp computes as it is."""
    return "" if config.activation == "gelu_new" else "llama.cpp computes the tanh form of GELU for GPT-2; this model has the exact form, so its numbers will differ a little."


def name_of(name: str) -> str:
    """`blocks.1.attn.qkv.weight` as GGUF names it."""
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith("ln_f."):
        return name.replace("ln_f", "output_norm")
    _, layer, rest = name.split(".", 2)
    module, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_MODULES[module]}.{kind}"


def _entries(checkpoint: Checkpoint, config: GPTConfig, matrices: int) -> list[_Entry]:
    found = []
    for parameter in parameters(config):
        tensor = checkpoint.weights[parameter.name]
        turned = parameter.name.startswith("blocks.") and len(parameter.shape) == 2
        shape = parameter.shape[::-1] if turned else parameter.shape
        kind = _F32 if len(shape) == 1 or parameter.name == "wpe.weight" else matrices
        if kind == _Q8_0 and shape[-1] % _BLOCK:
            kind = _F16
        found.append(_Entry(name_of(parameter.name), shape, kind, turned, tensor))
    return found


def _pairs(checkpoint: Checkpoint, config: GPTConfig, file_type: int) -> list[bytes]:
    tokens, merges, specials = parts_of(from_dict(checkpoint.tokenizer))
    names, lacking = tokenizer_json.names_of(tokens, specials), config.vocabulary - len(tokens)
    control = set(specials.values())
    types = [_CONTROL if token in control else _NORMAL for token in range(len(tokens))]
    found = [
        _pair("general.architecture", _STRING, "gpt2"),
        _pair("general.name", _STRING, checkpoint.name),
        _pair("general.file_type", _UINT32, file_type),
        _pair("general.quantization_version", _UINT32, 2),
        _pair("general.alignment", _UINT32, ALIGNMENT),
        _pair("gpt2.context_length", _UINT32, config.context),
        _pair("gpt2.embedding_length", _UINT32, config.channels),
        _pair("gpt2.block_count", _UINT32, config.layers),
        _pair("gpt2.feed_forward_length", _UINT32, config.hidden),
        _pair("gpt2.attention.head_count", _UINT32, config.heads),
        _pair("gpt2.attention.layer_norm_epsilon", _FLOAT32, 1e-5),
        _pair("tokenizer.ggml.model", _STRING, "gpt2"),
        _pair("tokenizer.ggml.pre", _STRING, "gpt-2"),
        _list("tokenizer.ggml.tokens", _STRING, [*names, *(f"[PAD{len(tokens) + at}]" for at in range(lacking))]),
        _list("tokenizer.ggml.token_type", _INT32, types + [_UNUSED] * lacking),
        _list("tokenizer.ggml.merges", _STRING, [f"{names[left]} {names[right]}" for left, right in merges]),
        _pair("tokenizer.ggml.add_bos_token", _BOOL, False),
    ]
    end = specials.get(tokenizer_json.END_OF_TEXT)
    if end is not None:
        found += [_pair(f"tokenizer.ggml.{which}_token_id", _UINT32, end) for which in ("bos", "eos")]
    return found


def _pair(key: str, kind: int, value: Any) -> bytes:
    return _text(key) + struct.pack("<I", kind) + _value(kind, value)


def _list(key: str, kind: int, values: list) -> bytes:
    return _text(key) + struct.pack("<IIQ", _ARRAY, kind, len(values)) + b"".join(_value(kind, value) for value in values)


def _value(kind: int, value: Any) -> bytes:
    return _text(value) if kind == _STRING else struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<?"}[kind], value)


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return struct.pack("<Q", len(data)) + data


def _padded(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT


def _chunks(head: bytes, entries: list[_Entry]) -> Iterator[Any]:
    yield from pieces(head)
    for entry in entries:
        for rows in _turned(entry) if entry.turned else _straight(entry):
            yield _narrowed(rows, entry.type)
        yield bytes(_padded(entry.nbytes) - entry.nbytes)


def _straight(entry: _Entry) -> Iterator[Any]:
    """float32 rows as they lie, so many at a time."""
    width = entry.shape[-1]
    for piece in pieces(entry.tensor.data, max(1, _ROWS_BYTES // (4 * width)) * 4 * width):
        yield np.frombuffer(in_python(piece, bytearray(nbytes(piece))), "<f4").reshape(-1, width)


def _turned(entry: _Entry) -> Iterator[Any]:
    """Rows of the transpose: one matrix of a block is held at a time."""
    outputs, inputs = entry.shape
    held = np.empty((inputs, outputs), "<f4")
    whole, at = memoryview(held.reshape(-1).view(np.uint8)), 0
    for piece in pieces(entry.tensor.data):
        came = in_python(piece, bytearray(nbytes(piece)))
        whole[at : at + came.nbytes] = came.cast("B")
        at += came.nbytes
    step = max(1, _ROWS_BYTES // (4 * inputs))
    for first in range(0, outputs, step):
        yield np.ascontiguousarray(held[:, first : first + step].T)


def _narrowed(rows: Any, kind: int) -> bytes:
    if kind == _F32:
        return rows.tobytes()
    if kind == _F16:
        with np.errstate(over="ignore"):
            return rows.astype("<f2").tobytes()
    blocks = rows.reshape(-1, _BLOCK)
    scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse
    numbers = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).astype(np.int8)  # half away from zero, as ggml rounds
    return np.concatenate([scale.astype("<f2").view(np.uint8), numbers.view(np.uint8)], 1).tobytes()
