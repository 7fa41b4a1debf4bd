"""The safetensors format: a strict reader for files from anywhere, and a writer that streams.

    8 bytes   header length n, unsigned little-endian
    n bytes   JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
    the rest  the tensors' bytes; offsets count from here; no holes, no overlaps, nothing after the last

Source: the format's description in huggingface/safetensors. Stricter than its library in five ways: extra keys in an
entry, a name given twice, `"__metadata__": null`, more than 64 dimensions and dtypes below a byte are refused.
Data is little-endian, as every machine this runs on is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from posttrainllm.errors import FormatError
from posttrainllm.store.buffers import FileRange, Tensor, as_source, nbytes, pieces, read_exactly
from posttrainllm.store.strict_json import Crowd, Refused, kind, parse, quote

MAX_HEADER_BYTES = 100_000_000  # the format's own limit
MAX_DIMENSIONS = 64
DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


def header_limit_bytes(tensors: int) -> int:
    """The most that the header of so many tensors may take: 64 KiB for its __metadata__, and four times a usual entry for each."""
    return (64 << 10) + 512 * tensors


class SafeTensors:
    """A parsed file: `.metadata` (text to text) and `.tensors` (name to Tensor, in file order, none of them read yet).

    `file` is bytes-like, a Uint8Array, or an object with `size` and `read_at(offset, nbytes)`. Only the header is read,
    never more than the file holds. Every way in which a file can be wrong is a FormatError with its own sentence.
    A reader who knows how many tensors there can be says so with `most_tensors`: then the header is bounded by them too.
    """

    def __init__(self, file: Any, place: str = "the safetensors file", most_tensors: int | None = None):
        source = as_source(file)
        self._place, self._most = place, most_tensors
        self.header_bytes = self._header_length(source)
        header = self._parse(read_exactly(source, 8, self.header_bytes, place))
        self.metadata = self._metadata(header)
        begin = 8 + self.header_bytes
        spans = [(*self._span(name, entry, source.size - begin), name) for name, entry in header.items()]
        spans.sort()
        self._tile(spans, source.size - begin)
        self.tensors: dict[str, Tensor] = {}
        for first, last, name in spans:
            entry = header[name]
            if hasattr(file, "read_at"):
                data = FileRange(source, begin + first, last - first)
            else:
                data = source.read_at(begin + first, last - first)
            self.tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), data)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            self._refuse("TENSOR", f"it holds a tensor {quote(name)}", f"it holds {len(self.tensors)} others")
        return self.tensors[name]

    def _refuse(self, case: str, rule: str, came: str, remedy: str = "save or download it again") -> NoReturn:
        raise FormatError(self._place, rule, came, remedy, code=f"E-FORMAT-{case}")

    def _header_length(self, source: Any) -> int:
        if source.size < 8:
            self._refuse("SHORT", "it begins with 8 bytes that give the header's length", f"it has {source.size} bytes")
        length = int.from_bytes(read_exactly(source, 0, 8, self._place), "little")
        if length == 0:
            self._refuse("LENGTH", "its header is at least {}", "its header length is 0", "choose a .safetensors file")
        most = MAX_HEADER_BYTES if self._most is None else header_limit_bytes(self._most)
        if length > most:
            self._refuse(
                "LENGTH",
                f"its header has at most {most:,} bytes" + ("" if self._most is None else f", for {self._most:,} tensors"),
                f"it says {length:,}",
                "choose a .safetensors file",
            )
        if length > source.size - 8:
            self._refuse(
                "LENGTH",
                "its header ends inside the file",
                f"it says {length:,} bytes of header, and the whole file has {source.size:,}",
            )
        return length

    def _parse(self, raw: memoryview) -> dict:
        data = bytes(raw)
        if data[:1] != b"{":
            self._refuse(
                "HEADER", "its header begins with {", f"it begins with {quote(data[:1])}", "choose a .safetensors file"
            )
        count = self._most
        most = Crowd() if count is None else Crowd(4 * count + 16, 16 * count + 4096, 16 * count + 8192)
        try:
            return parse(data, 3, "its header", most)  # an object: it begins with {
        except Refused as error:
            self._refuse(error.case, error.rule, error.came)

    def _metadata(self, header: dict) -> dict[str, str]:
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict):
            self._refuse("METADATA", "its __metadata__ maps text to text", f"it is {kind(metadata)}")
        for key, value in metadata.items():
            if not isinstance(value, str):
                self._refuse("METADATA", "its __metadata__ maps text to text", f"{quote(key)} is {kind(value)}")
        return metadata

    def _span(self, name: str, entry: Any, data_bytes: int) -> tuple[int, int]:
        """Offsets of one tensor, once everything its entry says about itself holds."""
        title = f"tensor {quote(name)}"
        if not _encodable(name):
            self._refuse("HEADER", "its tensors' names are Unicode text", f"{title} holds half a surrogate pair")
        if not isinstance(entry, dict):
            self._refuse("ENTRY", f"{title} has dtype, shape and data_offsets", f"its entry is {kind(entry)}")
        if entry.keys() != {"dtype", "shape", "data_offsets"}:
            self._refuse(
                "ENTRY",
                f"{title} has exactly dtype, shape and data_offsets",
                f"its entry has {', '.join(map(quote, sorted(entry)[:8])) or 'nothing'}",
            )
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            self._refuse(
                "DTYPE",
                f"the dtype of {title} is one of {', '.join(DTYPE_BYTES)}",
                f"it is {quote(dtype)}",
                "convert it to F32",
            )
        if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
            self._refuse("SHAPE", f"the shape of {title} is a list of integers from 0 up", f"it is {quote(shape)}")
        if len(shape) > MAX_DIMENSIONS:
            self._refuse("SHAPE", f"{title} has at most {MAX_DIMENSIONS} dimensions", f"it has {len(shape)}")
        needed = DTYPE_BYTES[dtype]
        for size in shape:
            needed *= size
            if needed >= 1 << 64:
                self._refuse("SHAPE", f"{title} has fewer than 2^64 bytes", f"its shape is {quote(shape)}")
        if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets):
            self._refuse("OFFSETS", f"the data_offsets of {title} are two integers", f"they are {quote(offsets)}")
        begin, end = offsets
        if not 0 <= begin <= end < 1 << 64:
            self._refuse(
                "OFFSETS",
                f"the data_offsets of {title} are in order, from 0 up and below 2^64",
                f"they are {quote(offsets)}",
            )
        if end - begin != needed:
            self._refuse(
                "SIZE",
                f"{title}, {dtype} {quote(shape)}, takes {needed:,} bytes",
                f"its data_offsets give it {end - begin:,}",
            )
        if end > data_bytes:
            self._refuse(
                "TRUNCATED",
                f"{title} ends inside the file, whose data has {data_bytes:,} bytes",
                f"it ends at byte {end:,}",
            )
        return begin, end

    def _tile(self, spans: list[tuple[int, int, str]], data_bytes: int) -> None:
        """The tensors, sorted, follow each other without overlap or hole and end where the file does."""
        end, before = 0, "the header"
        for first, last, name in spans:
            if first < end:
                self._refuse(
                    "OVERLAP",
                    "no two tensors share bytes",
                    f"{before} ends at byte {end:,} and {quote(name)} begins at {first:,}",
                )
            if first > end:
                self._refuse(
                    "HOLE",
                    "each tensor begins where the one before ends",
                    f"{first - end:,} bytes between {before} and {quote(name)} belong to none",
                )
            end, before = last, quote(name)
        if end < data_bytes:
            self._refuse("TRAILING", "it ends with its last tensor", f"{data_bytes - end:,} more bytes follow")


def encode(tensors: Iterable[tuple[str, str, Iterable[int], Any]], metadata: dict[str, str]) -> Iterator[Any]:
    """A .safetensors file as chunks: the header, then each buffer in pieces of at most 4 MiB, uncopied.

    `tensors` are (name, dtype, shape, data), data a Python buffer, a Uint8Array or a FileRange of exactly that size.
    Metadata gets `"format": "pt"`, without which transformers does not load the file; the header is padded with spaces
    so that the data begins at a multiple of 8, and wide dtypes go first so that each tensor is aligned to its own.
    Raises FormatError before the first chunk, so that a save refused here has touched no slot.
    """
    ordered = sorted(
        ((name, dtype, tuple(shape), data) for name, dtype, shape, data in tensors),
        key=lambda tensor: -DTYPE_BYTES.get(tensor[1], 0),
    )
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise FormatError(
                "safetensors",
                "metadata maps text to text",
                f"{quote(key)} is {kind(value)}",
                "turn it into text",
                code="E-FORMAT-METADATA",
            )
    end = 0
    for name, dtype, shape, data in ordered:
        if name in header:
            raise FormatError(
                "safetensors",
                "names are given once, and __metadata__ is none",
                f"{quote(name)} came",
                "rename it",
                code="E-FORMAT-DUPLICATE",
            )
        if dtype not in DTYPE_BYTES:
            raise FormatError(
                "safetensors",
                f"dtypes are {', '.join(DTYPE_BYTES)}",
                f"{quote(name)} is {dtype}",
                "convert it",
                code="E-FORMAT-DTYPE",
            )
        needed = DTYPE_BYTES[dtype]
        for size in shape:
            needed *= size
        if needed != nbytes(data):
            raise FormatError(
                "safetensors",
                f"{quote(name)}, {dtype} {list(shape)}, takes {needed} bytes",
                f"its buffer has {nbytes(data)}",
                "pass matching ones",
                code="E-FORMAT-SIZE",
            )
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + needed]}
        end += needed
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(
            "safetensors",
            "names and metadata are Unicode text",
            "one holds half a surrogate pair",
            "rename it",
            code="E-FORMAT-HEADER",
        ) from None
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise FormatError(
            "safetensors",
            f"a header has at most {MAX_HEADER_BYTES:,} bytes",
            f"this has {len(text):,}",
            "keep less history",
            code="E-FORMAT-LENGTH",
        )
    return _chunks(len(text).to_bytes(8, "little") + text, [data for *_, data in ordered])


def _chunks(head: bytes, buffers: list[Any]) -> Iterator[Any]:
    yield from pieces(head)
    for data in buffers:
        yield from pieces(data)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
