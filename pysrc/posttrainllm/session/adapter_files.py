"""An adapter as one file that a person moves in and out of the page: PEFT's two files in a .zip, or the weights alone."""

from __future__ import annotations

import io
import zipfile
import zlib

from ..errors import FormatError
from ..model.lora import Adapter
from ..store.peft import CONFIG, WEIGHTS, from_files, to_files

MOST_BYTES = 512 << 20
"""Of a file in an archive: an adapter is far below it."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packed(adapter: Adapter) -> bytes:
    """The .zip: the same bytes from the same adapter."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, data in to_files(adapter).items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return memory.getvalue()


def read(data: bytes, file_name: str) -> Adapter:
    """The adapter of such a file, under the file's name where that says something. Raises FormatError."""
    weights, config = unpacked(data) if data[:2] == b"PK" else (data, None)
    adapter, stem = from_files(weights, config), file_name.rsplit(".", 1)[0]
    return adapter if stem in ("", WEIGHTS.rsplit(".", 1)[0]) else adapter.renamed(stem)


def unpacked(data: bytes) -> tuple[bytes, bytes]:
    """(weights, config) out of an archive with PEFT's two files. Raises FormatError."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {entry.filename.rsplit("/", 1)[-1]: entry for entry in archive.infolist()}
            missing = [name for name in (WEIGHTS, CONFIG) if name not in entries]
            if missing:
                raise FormatError("adapter", f"the archive holds {WEIGHTS} and {CONFIG}", f"{missing[0]} is missing", "choose another file")
            sizes = max(entries[name].file_size for name in (WEIGHTS, CONFIG))
            if sizes > MOST_BYTES:
                raise FormatError("adapter", f"its files have at most {MOST_BYTES:,} bytes", f"{sizes:,} came", "choose another file")
            return archive.read(entries[WEIGHTS]), archive.read(entries[CONFIG])
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise FormatError("adapter", "the archive is a sound .zip file", str(error) or type(error).__name__, "export it again") from error
