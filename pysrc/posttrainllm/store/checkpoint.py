"""Everything a run is, as one .safetensors file: 100 steps = 50 + save + reload + 50, bit for bit.

The tensors are the weights under their own names, and AdamW's moments as `adamw.m.<name>` and `adamw.v.<name>`: F32, BF16, or
8-bit codes (ops/adamw_8bit.py), whose scales are `adamw.m_scale.<name>` and `adamw.v_scale.<name>`, one for every 64 elements. All
else is text in the file's metadata, each field as JSON under `posttrainllm.<field>`; `history` is kept as its rows'
values under lists of their keys, which is less than half the text. Any reader of safetensors opens the file as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from posttrainllm.errors import FormatError, StoreVersionError
from posttrainllm.store.bits import rows_with_bits
from posttrainllm.store.buffers import Tensor, in_python, is_js, nbytes, pieces
from posttrainllm.store.safetensors import SafeTensors, encode
from posttrainllm.store.strict_json import Refused, kind, parse, quote

FORMAT_VERSION = 1
MAX_ROWS = 50_000  # of history: some 6 MB of text, which every save writes again
PREFIX = "posttrainllm."
M, V, M_SCALE, V_SCALE = "adamw.m.", "adamw.v.", "adamw.m_scale.", "adamw.v_scale."
_LEVELS = 32  # how deep a field's JSON may nest
_TYPES = {"str": (str, "text"), "int": (int, "a whole number"), "dict": (dict, "an object"), "list": (list, "a list")}


@dataclass
class Checkpoint:
    """A run at one step. `config` is the model's, `rng` the seed and any stream's place, `cursor` the data's, `history`
    the report rows (dicts, e.g. {"event": "step", "step": 10, "loss_nats": 3.1}).

    `adapter` says, where the run is of an adapter alone, what it is and the hash of the base's weights (train/checks.py). Times are
    ISO 8601 in UTC. `weights`, `m`, `v` map a parameter's name to its Tensor, `m_scale` and `v_scale` too where moments
    are codes; `frozen` names the weights that have no moments; `marks` are tags and a note (store/marks.py). A field holds what JSON does: tuples come back as lists, a number that is not finite as None.
    """

    name: str
    config: dict
    step: int
    tokenizer: dict
    weights: dict[str, Tensor]
    m: dict[str, Tensor] = field(default_factory=dict)
    v: dict[str, Tensor] = field(default_factory=dict)
    m_scale: dict[str, Tensor] = field(default_factory=dict)
    v_scale: dict[str, Tensor] = field(default_factory=dict)
    frozen: list = field(default_factory=list)
    adapter: dict = field(default_factory=dict)
    training: dict = field(default_factory=dict)
    schedule: dict = field(default_factory=dict)
    cursor: dict = field(default_factory=dict)
    rng: dict = field(default_factory=dict)
    corpus: dict = field(default_factory=dict)
    history: list = field(default_factory=list)
    marks: dict = field(default_factory=dict)
    created: str = ""
    updated: str = ""
    app_version: str = ""
    format_version: int = FORMAT_VERSION

    @property
    def resumable(self) -> bool:
        """True where training can go on exactly: every weight that is trained has both moments. Else weights only."""
        trained = self.weights.keys() - set(self.frozen)
        return bool(trained) and trained == self.m.keys() == self.v.keys()

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.weights.values())

    def last(self, key: str) -> Any:
        """The newest value in the history under `key` that is not None; None without one."""
        return next((row[key] for row in reversed(self.history) if row.get(key) is not None), None)

    def to_chunks(self) -> Iterator[Any]:
        """The file in chunks of at most 4 MiB (memoryviews, or Uint8Arrays where a tensor's data is one), uncopied.

        The same checkpoint gives the same bytes. FormatError, before the first chunk, where a field has another type
        than it must or a name collides.
        """
        self._check("checkpoint")
        metadata = self.metadata()
        tensors = [
            (prefix + name, tensor.dtype, tensor.shape, tensor.data)
            for prefix, group in (("", self.weights), *self._moments())
            for name, tensor in group.items()
        ]
        return encode(tensors, metadata)

    def metadata(self) -> dict[str, str]:
        """All but the tensors, as it goes into a file's metadata; the history thinned to about MAX_ROWS rows."""
        values = {name: getattr(self, name) for name in _FIELDS if name != "marks" or self.marks}
        values["history"] = _pack(thin(self.history))
        return {PREFIX + name: _dump(value, name) for name, value in values.items()}

    def to_bytes(self) -> bytes:
        """The whole file at once: natively, and for tests; a page streams `to_chunks`."""
        return b"".join(in_python(chunk, bytearray(nbytes(chunk))) for chunk in self.to_chunks())

    @classmethod
    def from_safetensors(cls, file: Any, place: str = "the run") -> Checkpoint:
        """A checkpoint out of bytes, a Uint8Array or a source (`size`, `read_at`), whose tensors are read when used.

        FormatError where it is not sound or not a saved run; StoreVersionError where a newer version wrote it.
        """
        parsed = SafeTensors(file, place)
        metadata = {key.removeprefix(PREFIX): value for key, value in parsed.metadata.items() if key.startswith(PREFIX)}
        if "format_version" not in metadata:
            raise FormatError(
                place,
                "a saved run carries posttrainllm.format_version in its metadata",
                f"this sound safetensors file of {len(parsed.tensors)} tensors carries none",
                "import a file that was exported as a run",
                code="E-FORMAT-FOREIGN",
            )
        version = _load(metadata["format_version"], "format_version", place)
        if type(version) is not int or version < 1:
            _refuse(place, "its format_version is 1 or above", f"it is {quote(version)}")
        if version > FORMAT_VERSION:
            raise StoreVersionError(
                place,
                f"this version opens runs of format {FORMAT_VERSION} and below",
                f"it has format {version}",
                "reload the page or update the package, then open it again",
            )
        values = {name: _load(metadata[name], name, place) for name in _FIELDS if name in metadata}
        for name in ("name", "config", "step", "tokenizer"):
            if name not in values:
                _refuse(place, f"a run has the field {name}", "it is missing")
        if "history" in values:
            values["history"] = _unpack(values["history"], place)
        groups: dict[str, dict[str, Tensor]] = {prefix: {} for prefix in ("", M, V, M_SCALE, V_SCALE)}
        for name, tensor in parsed.tensors.items():
            prefix = next((prefix for prefix in groups if prefix and name.startswith(prefix)), "")
            groups[prefix][name.removeprefix(prefix)] = tensor
        kept = {"weights": "", "m": M, "v": V, "m_scale": M_SCALE, "v_scale": V_SCALE}
        found = cls(**{name: groups[prefix] for name, prefix in kept.items()}, **values)
        found._check(place)
        return found

    def _moments(self) -> tuple[tuple[str, dict[str, Tensor]], ...]:
        """(prefix, tensors) of all but the weights."""
        return (M, self.m), (V, self.v), (M_SCALE, self.m_scale), (V_SCALE, self.v_scale)

    def _check(self, place: str) -> None:
        """The fields have their types, the step is possible, and each moment has its weight's shape."""
        for name, (wanted, title) in _FIELDS.items():
            value = getattr(self, name)
            if type(value) is not wanted:
                _refuse(place, f"its field {name} is {title}", f"it is {kind(value)}")
        if not 0 <= self.step < 1 << 53:
            _refuse(place, "its step is 0 or above and below 2^53", f"it is {quote(self.step)}")
        if not all(isinstance(row, dict) for row in self.history):
            _refuse(place, "its history is a list of rows", "one of them is not a row")
        if not all(isinstance(name, str) for name in self.frozen):
            _refuse(place, "its field frozen lists names of weights", "one of them is not text")
        for name in self.weights:
            if name.startswith((M, V, M_SCALE, V_SCALE)):
                _refuse_tensor(place, f"no weight's name begins with {M} or {V}", f"{quote(name)} does")
        for prefix, group in self._moments():
            for name, moment in group.items():
                weight = self.weights.get(name)
                if weight is None:
                    _refuse_tensor(place, "every moment belongs to a weight", f"{quote(prefix + name)} has none")
                if prefix in (M, V) and tuple(moment.shape) != tuple(weight.shape):
                    _refuse_tensor(
                        place,
                        f"{quote(prefix + name)} has its weight's shape, {quote(list(weight.shape))}",
                        f"it has {quote(list(moment.shape))}",
                    )


_FIELDS = {item.name: _TYPES[item.type] for item in fields(Checkpoint) if item.type in _TYPES}


def weights_sha256(weights: dict[str, Tensor]) -> str:
    """One hash of the weights' bytes, in the order of their names: what "same bits" compares."""
    digest, scratch = hashlib.sha256(), bytearray()
    for name in sorted(weights):
        for piece in pieces(weights[name].data):
            if is_js(piece) and len(scratch) < nbytes(piece):
                scratch = bytearray(nbytes(piece))
            digest.update(in_python(piece, scratch))
    return digest.hexdigest()


def history_text(checkpoint: Checkpoint) -> str:
    """The history as CSV under `#` lines that say what run it is; the columns are the rows' keys as they appear, then bits per byte."""
    facts = {
        "run": checkpoint.name,
        "step": checkpoint.step,
        "parameters": checkpoint.parameters,
        "created": checkpoint.created,
        "updated": checkpoint.updated,
        "app_version": checkpoint.app_version,
        "config": checkpoint.config,
        "training": checkpoint.training,
        "schedule": checkpoint.schedule,
        "rng": checkpoint.rng,
        "corpus": checkpoint.corpus,
        "tokenizer": {name: value for name, value in checkpoint.tokenizer.items() if name != "json"},
    }
    lines = [
        f"# {name}: {value if type(value) is int else json.dumps(value, ensure_ascii=False)}"
        for name, value in facts.items()
    ]
    history = rows_with_bits(checkpoint)
    columns = list(dict.fromkeys(key for row in history for key in row))
    lines.append(",".join(map(_cell, columns)))
    lines += [",".join(_cell(row.get(column)) for column in columns) for row in history]
    text = "\n".join(lines) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # a name with half a surrogate pair would not go into a file


def thin(history: list[dict], limit: int = MAX_ROWS) -> list[dict]:
    """The history itself up to `limit` rows. Of a longer one, every k-th step's row, the other rows (every j-th, where
    they alone are more than half of the limit), and the last row."""
    if len(history) <= limit:
        return history
    steps, others = [], []
    for index, row in enumerate(history):
        (steps if row.get("event", "step") == "step" else others).append(index)
    room = limit - min(len(others), limit // 2)
    return [history[index] for index in sorted(_spread(steps, room) + _spread(others, limit // 2))]


def _spread(indices: list[int], room: int) -> list[int]:
    return indices[:: -max(1, -(-len(indices) // room))]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def _pack(history: list[dict]) -> dict:
    shapes: dict[tuple, int] = {}
    rows = [[shapes.setdefault(tuple(row), len(shapes)), *row.values()] for row in history]
    if not all(isinstance(key, str) for keys in shapes for key in keys):
        _refuse("checkpoint", "the keys of history rows are text", "one is not")
    return {"keys": [list(keys) for keys in shapes], "rows": rows}


def _unpack(packed: Any, place: str) -> list[dict]:
    try:
        shapes = [[str(key) for key in keys] for keys in packed["keys"]]
        return [dict(zip(shapes[row[0]], row[1:], strict=True)) for row in packed["rows"]]
    except (TypeError, ValueError, KeyError, IndexError):
        _refuse(place, "its history is rows of values under lists of keys", "they do not fit together")


def _dump(value: Any, name: str) -> str:
    if not _has_text_keys(value):  # json would write 1 and "1" alike, and such a file could not be opened again
        _refuse("checkpoint", f"its field {name} holds what JSON can", "a key in it is not text")
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))
    except TypeError as error:
        _refuse("checkpoint", f"its field {name} holds what JSON can", str(error))


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_text_keys(item) for key, item in value.items())
    return all(map(_has_text_keys, value)) if isinstance(value, (list, tuple)) else True


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _load(text: str, name: str, place: str) -> Any:
    try:
        # A name may hold half a surrogate pair; JSON escapes it, and so it never meets UTF-8.
        return parse(text.encode("utf-8", "surrogatepass"), _LEVELS, f"its field {name}")
    except Refused as error:
        _refuse(place, error.rule, error.came)


def _refuse(place: str, rule: str, came: str) -> NoReturn:
    raise FormatError(place, rule, came, "export the run again", code="E-FORMAT-METADATA")


def _refuse_tensor(place: str, rule: str, came: str) -> NoReturn:
    raise FormatError(place, rule, came, "export the run again", code="E-FORMAT-TENSOR")
