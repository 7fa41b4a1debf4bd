"""A GPT-2 as Hugging Face keeps it: a folder of config.json, model.safetensors and a tokenizer's files, read and written.

Read is any GPT-2 with a head for text: tied or not, tanh or exact GELU, any n_inner, names with the prefix `transformer.` or
without, float32 or half-precision weights, in one file or several. Written is what `transformers` loads with equal logits.
Source: the files that transformers 4 and 5 write for GPT2LMHeadModel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from .. import __version__
from ..data import tokenizer_json
from ..data.bpe import BPETokenizer
from ..data.tokenizers import ByteTokenizer, from_dict, plain
from ..errors import DataError, FormatError
from ..model.config import GPTConfig
from . import hf_weights
from .archive import File, not_burst, opened_zip
from .buffers import as_source, read_exactly
from .checkpoint import Checkpoint
from .safetensors import encode
from .strict_json import Refused, parse, quote

CONFIG, TOKENIZER, VOCABULARY, MERGES = "config.json", "tokenizer.json", "vocab.json", "merges.txt"
GENERATION, TOKENIZER_CONFIG = "generation_config.json", "tokenizer_config.json"
MOST_CONFIG_BYTES, MOST_TOKENIZER_BYTES = 1 << 18, 64 << 20
ACTIVATIONS = {"gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "gelu": "gelu"}
"""Theirs, and ours: two names for one formula."""
SIZES = {"layers": "n_layer", "channels": "n_embd", "heads": "n_head", "context": "n_positions", "vocabulary": "vocab_size"}
_WITHOUT = {
    "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False, "is_encoder_decoder": False,
    "pruned_heads": {}, "quantization_config": None, "layer_norm_epsilon": 1e-5,
}  # fmt: skip
"""What changes the numbers of a GPT-2, and the only value this program has. (reorder_and_upcast_attn does not: it is about half precision.)"""
_TOKENS_OF_A_BATCH = 4096


def read(files: Mapping[str, Any], name: str = "model", unpack: Callable[[Any], Any] | None = None) -> Checkpoint:
    """A model from its files by name (bytes, Uint8Arrays or sources): weights, config and tokenizer, as a run that was not trained here.

    Weights are read when they are used, as float32, and never all at once. Without tokenizer.json, vocab.json and merges.txt serve;
    without both, a vocabulary of 256 is bytes. Raises FormatError, naming what this program does not do, and ConfigError for sizes.
    Whoever wrote them, the texts take at most 32 times their size while they are parsed (200 times what they are packed to in a .zip:
    archive.py bounds what they may unpack to), and headers and the index what the config's layers can need, 2 MB for 256 of them.
    `unpack` says where weights are read from once all was found sound: the command line unpacks deflated ones to its disk.
    """
    settings = _json(files, CONFIG, MOST_CONFIG_BYTES)
    config = config_of(settings)
    tokenizer = tokenizer_of(files, config.vocabulary)
    tied = settings.get("tie_word_embeddings", True)
    if type(tied) is not bool:
        _refuse(CONFIG, "tie_word_embeddings is true or false", f"{quote(tied)} came")
    sizes = config
    config, weights = hf_weights.read(files, sizes, tied)
    if unpack is not None:
        there = {place: unpack(files[place]) for place in hf_weights.places(files, sizes)}
        config, weights = hf_weights.read({**files, **there}, sizes, tied)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Checkpoint(
        name=name, config=config.to_dict(), step=0, tokenizer=tokenizer.to_dict(), weights=weights, created=now, updated=now, app_version=__version__
    )


def read_zip(file: Any, name: str = "model") -> Checkpoint:
    """The same out of a .zip of the folder (bytes, a Uint8Array or a source). Raises FormatError."""
    return read(folder_in(opened_zip(file)), name)


def folder_in(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The files beside the config.json that lies least deep, by their own names. Raises FormatError."""
    places = [path.removesuffix(CONFIG) for path in entries if path == CONFIG or path.endswith(f"/{CONFIG}")]
    if not places:
        _refuse(CONFIG, "a model's files have a config.json among them", f"{len(entries)} others came")
    top = min(places, key=lambda place: (place.count("/"), place))
    return {path.removeprefix(top): entry for path, entry in entries.items() if path.startswith(top)}


def config_of(settings: Mapping[str, Any]) -> GPTConfig:
    """Sizes and activation out of config.json, with a batch of about 4,096 tokens. Raises FormatError, ConfigError."""
    if settings.get("model_type") != "gpt2":
        _refuse(CONFIG, "its model_type is gpt2", f"{quote(settings.get('model_type'))} came", "choose a GPT-2")
    for key, only in _WITHOUT.items():
        value = settings.get(key)
        if value is not None and (type(value) is not type(only) or value != only):
            _refuse(CONFIG, f"{key} is {json.dumps(only)}, all that this program does", f"{quote(value)} came", "choose another model")
    activation = settings.get("activation_function", "gelu_new")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        _refuse(CONFIG, f"activation_function is one of {', '.join(ACTIVATIONS)}", f"{quote(activation)} came", "choose another model")
    sizes = {ours: settings.get(theirs) for ours, theirs in SIZES.items()}
    for ours, theirs in SIZES.items():
        if type(sizes[ours]) is not int:
            _refuse(CONFIG, f"{theirs} is a whole number", f"{quote(sizes[ours])} came")
    hidden = settings.get("n_inner")
    if hidden is not None and type(hidden) is not int:
        _refuse(CONFIG, "n_inner is a whole number or null", f"{quote(hidden)} came")
    context = sizes["context"]
    batch = max(1, min(16, _TOKENS_OF_A_BATCH // context)) if context > 0 else 1
    return GPTConfig(**sizes, batch=batch, activation=ACTIVATIONS[activation], hidden=hidden)


def tokenizer_of(files: Mapping[str, Any], vocabulary: int) -> BPETokenizer | ByteTokenizer:
    """The tokenizer among the files; bytes where there is none and the vocabulary has 256. Raises FormatError."""
    if TOKENIZER in files:
        found = BPETokenizer.from_json(_bytes(files, TOKENIZER, MOST_TOKENIZER_BYTES))
    elif VOCABULARY in files and MERGES in files:
        lists = [_bytes(files, name, MOST_TOKENIZER_BYTES) for name in (VOCABULARY, MERGES)]
        try:
            found = BPETokenizer(*tokenizer_json.read_lists(*lists))
        except DataError as error:
            _refuse(VOCABULARY, error.parts[1], error.parts[2])
    elif vocabulary == ByteTokenizer.vocabulary:
        return ByteTokenizer()
    else:
        _refuse("the model", f"its tokenizer is there: {TOKENIZER}, or {VOCABULARY} and {MERGES}", "neither came", "choose those files too")
    if found.vocabulary > vocabulary:
        _refuse(TOKENIZER, f"it has at most the model's {vocabulary:,} tokens", f"{found.vocabulary:,} came")
    return plain(found)


def files_of(checkpoint: Checkpoint) -> dict[str, File]:
    """The folder of a whole model, file by file; weights are read as the chunks are taken. Raises FormatError for an adapter's run."""
    if checkpoint.adapter:
        _refuse("export", "a whole model", "the run of an adapter came", "merge it into its base first, or export it for PEFT")
    config, tokenizer = GPTConfig.from_dict(checkpoint.config), from_dict(checkpoint.tokenizer)
    tokens, merges, specials = parts_of(tokenizer)
    names = tokenizer_json.names_of(tokens, specials)
    end = specials.get(tokenizer_json.END_OF_TEXT)
    ids = {"bos_token_id": end, "eos_token_id": end}
    tensors = hf_weights.written(checkpoint.weights, config)
    texts = {
        CONFIG: _text(_config(config) | ids),
        GENERATION: _text({"_from_model_config": True} | {name: token for name, token in ids.items() if token is not None}),
        TOKENIZER: tokenizer_json.write(tokens, merges, specials),
        VOCABULARY: json.dumps({name: token for token, name in enumerate(names)}, ensure_ascii=False),
        MERGES: "".join(["#version: 0.2\n", *(f"{names[left]} {names[right]}\n" for left, right in merges)]),
        TOKENIZER_CONFIG: _text(_tokenizer_config(config, end)),
    }
    written = {name: File(len(data), [data]) for name, data in ((name, text.encode("utf-8", "replace")) for name, text in texts.items())}
    return written | {hf_weights.SINGLE: File(sum(tensor.nbytes for tensor in checkpoint.weights.values()) + (1 << 24), encode(tensors, {}))}


def parts_of(tokenizer: BPETokenizer | ByteTokenizer) -> tokenizer_json.Parts:
    """(tokens by id, merges, specials): bytes are 256 tokens without merges, in their own order."""
    if tokenizer.name == "bytes":
        return [bytes((byte,)) for byte in range(256)], [], {}
    return list(tokenizer.tokens), list(tokenizer.merges), tokenizer.specials


def _config(config: GPTConfig) -> dict:
    """config.json, but for the special tokens. n_ctx is what llama.cpp's converter reads."""
    own = config.to_dict()
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{theirs: own[ours] for ours, theirs in SIZES.items()},
        "n_ctx": config.context,
        "n_inner": own.get("hidden"),
        "activation_function": config.activation,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
        "tie_word_embeddings": config.tied,
        "use_cache": True,
        "torch_dtype": "float32",
    }


def _tokenizer_config(config: GPTConfig, end: int | None) -> dict:
    """A class that takes tokenizer.json as it is: GPT2Tokenizer would add its own special token to a vocabulary that has none."""
    special = None if end is None else tokenizer_json.END_OF_TEXT
    names = {} if end is None else dict.fromkeys(("bos_token", "eos_token", "unk_token"), special)
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": config.context, "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
    } | names  # fmt: skip


def _text(value: dict) -> str:
    return json.dumps(value, indent=2) + "\n"


def _bytes(files: Mapping[str, Any], name: str, most: int) -> bytes:
    if name not in files:
        _refuse(name, "a model's folder has it", f"{', '.join(sorted(map(quote, files))[:8]) or 'nothing'} came", "choose the folder's files together")
    source = as_source(files[name])
    if source.size > most:
        _refuse(name, f"it has at most {most:,} bytes", f"{source.size:,} came")
    not_burst(source, name)
    return bytes(read_exactly(source, 0, source.size, name))


def _json(files: Mapping[str, Any], name: str, most: int) -> dict:
    try:
        found = parse(_bytes(files, name, most), 16, "it")
    except Refused as error:
        _refuse(name, error.rule, error.came)
    if not isinstance(found, dict):
        _refuse(name, "it is an object", f"{quote(found)} came")
    return found


def _refuse(place: str, rule: str, came: str, remedy: str = "download it again, or save it with transformers") -> NoReturn:
    raise FormatError(place, rule, came, remedy, code="E-FORMAT-MODEL")
