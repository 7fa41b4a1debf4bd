"""GPT-2's tensors as Hugging Face names them, out of one .safetensors file or several, under our names, and the other way.

Both keep the four linears of a block (in, out), Hugging Face's Conv1D, so bytes are the same. Half-precision files are widened
piece by piece as they are read; nothing is held twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from ..errors import FormatError
from ..model.config import GPTConfig
from ..model.gpt import Layout, parameters
from ..ops.lazy import np
from .archive import not_burst
from .buffers import FileRange, Tensor, as_source, pieces, read_exactly
from .safetensors import SafeTensors, header_limit_bytes
from .strict_json import Crowd, Refused, parse, quote

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MODULES = {"ln_1": "ln_1", "attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "ln_2": "ln_2", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}
"""Parts of a block, ours and theirs."""
_OURS = {theirs: ours for ours, theirs in MODULES.items()}
_THEIRS = re.compile(r"(?:transformer\.)?(?:h\.(\d{1,3})\.([a-z0-9_.]+)|wte|wpe|ln_f)\.(weight|bias)")
_BUFFER = re.compile(r"(?:transformer\.)?h\.\d{1,3}\.attn\.(?:bias|masked_bias)")
"""The causal mask, which old files hold."""
_SHARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}\.safetensors")
DTYPES = {"F32": 4, "F16": 2, "BF16": 2}


class Widened:
    """Half-precision numbers of a source as float32 bytes, made as they are read."""

    def __init__(self, dtype: str, part: FileRange) -> None:
        self.size, self._dtype, self._part = 2 * part.nbytes, dtype, part

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        """float32 bytes; shorter than asked only at the end."""
        nbytes = max(0, min(nbytes, self.size - offset))
        if not nbytes:
            return memoryview(b"")
        first, stop = offset // 4, -(-(offset + nbytes) // 4)
        narrow = read_exactly(self._part.source, self._part.offset + 2 * first, 2 * (stop - first), "the weights")
        if self._dtype == "F16":
            wide = np.frombuffer(narrow, "<f2").astype("<f4").tobytes()
        else:
            wide = bytearray(4 * (stop - first))
            wide[2::4], wide[3::4] = bytes(narrow[::2]), bytes(narrow[1::2])
        return memoryview(wide)[offset - 4 * first : offset - 4 * first + nbytes]


class Finite:
    """float32 weights, seen to be numbers as they are read: a file may hold NaN, and a model with one writes nothing but."""

    def __init__(self, name: str, part: FileRange) -> None:
        self.size, self._name, self._part = part.nbytes, name, part

    def read_at(self, offset: int, nbytes: int) -> memoryview:
        """Bytes; shorter than asked only at the end. Raises FormatError where a weight among them is not finite."""
        nbytes = max(0, min(nbytes, self.size - offset))
        found = read_exactly(self._part.source, self._part.offset + offset, nbytes, "the weights")
        whole = found[-offset % 4 :]
        if not np.isfinite(np.frombuffer(whole[: whole.nbytes // 4 * 4], "<f4")).all():
            _refuse("the weights", "each is a finite number", f"{theirs(self._name)} has one that is NaN or infinite", "choose a model that is sound")
        return found


def theirs(name: str) -> str:
    """`blocks.1.attn.qkv.weight` as GPT2LMHeadModel has it."""
    if name == "lm_head.weight":
        return name
    if not name.startswith("blocks."):
        return f"transformer.{name}"
    _, layer, rest = name.split(".", 2)
    module, _, kind = rest.rpartition(".")
    return f"transformer.h.{layer}.{MODULES[module]}.{kind}"


def ours(name: str) -> str | None:
    """Our name for a tensor of GPT-2, prefixed or not; None for one that it has not."""
    if name == "lm_head.weight":
        return name
    match = _THEIRS.fullmatch(name)
    if match is None or (match[2] is not None and match[2] not in _OURS):
        return None
    return name.removeprefix("transformer.") if match[1] is None else f"blocks.{int(match[1])}.{_OURS[match[2]]}.{match[3]}"


def read(files: Mapping[str, Any], config: GPTConfig, tied: bool) -> tuple[GPTConfig, dict[str, Tensor]]:
    """(config with the head as the files have it, the tensors by our names, in the files' order, as float32).

    `tied` is what config.json says. As transformers does it, a head that is there and differs from the embedding counts.
    Raises FormatError for tensors that are missing, too many, doubled, of another shape, or of whole numbers; reading a weight does for
    one that is not finite.
    """
    found: dict[str, Tensor] = {}
    for file, name, tensor in _tensors(files, config):
        if _BUFFER.fullmatch(name):
            continue
        own = ours(name)
        if own is None:
            _refuse(file, "it holds the weights of a GPT-2 with a head for text", f"{quote(name)} came")
        if own in found:
            _refuse(file, "each weight is there once", f"{quote(name)} came again")
        found[own] = _as_float32(file, name, tensor)
    head = found.get("lm_head.weight")
    if head is None and not tied:
        _refuse(SINGLE, "lm_head.weight is there where tie_word_embeddings is false", "it is missing")
    if tied and head is not None and _same(head, found.get("wte.weight")):
        del found["lm_head.weight"]
        head = None
    made = GPTConfig.from_dict(config.to_dict() | {"tied": head is None})
    shapes = {parameter.name: parameter.shape for parameter in parameters(made)}
    for name in sorted(shapes.keys() ^ found.keys()):
        _refuse(SINGLE, f"it holds the {len(shapes)} weights of {made.layers} layers", f"{theirs(name)} is {'missing' if name in shapes else 'too many'}")
    for name, tensor in found.items():
        if tuple(tensor.shape) != shapes[name]:
            _refuse(SINGLE, f"{theirs(name)} is {list(shapes[name])}", f"it is {quote(list(tensor.shape))}")
        found[name] = tensor._replace(data=FileRange(Finite(name, tensor.data), 0, tensor.nbytes))
    return made, found


def most_tensors(config: GPTConfig) -> int:
    """How many tensors can be there: 12 of a block, its two masks in old files, two tables, the last norm, a head."""
    return 14 * config.layers + 5


def places(files: Mapping[str, Any], config: GPTConfig) -> dict[str, list[str]]:
    """The files of weights, and the names that the index says are in each: none of them is read. All are there, else FormatError."""
    if SINGLE in files:
        return {SINGLE: []}
    if INDEX not in files:
        _refuse("the model", f"its weights are in {SINGLE}", f"{', '.join(sorted(map(quote, files))[:8]) or 'nothing'} came",
                "convert older .bin files with transformers' save_pretrained")  # fmt: skip
    found: dict[str, list[str]] = {}
    for name, place in _weight_map(files[INDEX], most_tensors(config)).items():
        found.setdefault(place, []).append(name)
    for place in sorted(found):
        if place not in files:
            _refuse(INDEX, "the files that it names are there", f"{place} is missing", "choose all of them together")
    return dict(sorted(found.items()))


def _tensors(files: Mapping[str, Any], config: GPTConfig) -> Iterator[tuple[str, str, Tensor]]:
    """(file, name, tensor) of all files of weights."""
    most = most_tensors(config)
    count, header_bytes = 0, 0
    for file, names in places(files, config).items():
        parsed = SafeTensors(as_source(files[file]), file, most)
        held = parsed.tensors
        count, header_bytes = count + len(held), header_bytes + parsed.header_bytes
        if count > most:
            _refuse(file, f"a model of {config.layers} layers has at most {most:,} tensors", f"{count:,} came")
        if header_bytes > header_limit_bytes(most):
            _refuse(file, f"the headers of {most:,} tensors have at most {header_limit_bytes(most):,} bytes together", "these have more")
        for name in names:
            if name not in held:
                _refuse(file, f"it holds {quote(name)}, as {INDEX} says", "it does not")
        for name, tensor in held.items():
            yield file, name, tensor


def _weight_map(file: Any, most: int) -> dict[str, str]:
    source = as_source(file)
    limit = header_limit_bytes(most)
    if source.size > limit:
        _refuse(INDEX, f"it has at most {limit:,} bytes, for {most:,} tensors", f"{source.size:,} came")
    not_burst(source, INDEX)
    try:
        whole = parse(bytes(read_exactly(source, 0, source.size, INDEX)), 8, "it", Crowd(1024, 2 * most + 4096, 4 * most + 8192))
    except Refused as error:
        _refuse(INDEX, error.rule, error.came)
    weight_map = whole.get("weight_map") if isinstance(whole, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        _refuse(INDEX, "its weight_map says which file holds each weight", "there is none")
    if len(weight_map) > most:
        _refuse(INDEX, f"it names at most {most:,} tensors, all that the model can have", f"{len(weight_map):,} came")
    for name, place in weight_map.items():
        if not isinstance(place, str) or not _SHARD.fullmatch(place):
            _refuse(INDEX, "its weight_map names .safetensors files beside it", f"{quote(name)} is in {quote(place)}")
    return weight_map


def _as_float32(file: str, name: str, tensor: Tensor) -> Tensor:
    if tensor.dtype not in DTYPES:
        _refuse(file, f"weights are {', '.join(DTYPES)}", f"{quote(name)} is {tensor.dtype}", "convert them")
    if tensor.dtype == "F32":
        return tensor
    part = tensor.data
    return Tensor("F32", tensor.shape, FileRange(Widened(tensor.dtype, part), 0, 2 * part.nbytes))


def _same(one: Tensor, other: Tensor | None) -> bool:
    """Whether two tensors hold the same bytes: one after the other, since a deflated file is read forwards."""
    return other is not None and one.nbytes == other.nbytes and _sha256(one) == _sha256(other)


def _sha256(tensor: Tensor) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces(tensor.data):
        digest.update(piece)
    return digest.digest()


def written(weights: Mapping[str, Tensor], config: GPTConfig) -> list[tuple[str, str, tuple[int, ...], Any]]:
    """(their name, dtype, shape, data) of every weight, for `safetensors.encode`: a tied head is left out, as transformers has it."""
    return [(theirs(parameter.name), *weights[parameter.name]) for parameter in Layout.of(config).parameters]


def _refuse(place: str, rule: str, came: str, remedy: str = "download it again, or save it with transformers") -> NoReturn:
    raise FormatError(place, rule, came, remedy, code="E-FORMAT-MODEL")
