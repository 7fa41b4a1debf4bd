"""Models that come into a Session from other programs, and that leave it for them. Events: runs (with `imported`), exported.

    runs.import_files {"names": [text, …], "files": [File or bytes, …]}   a Hugging Face folder's files, its .zip, or a run's .safetensors
    runs.export {"run_id", "format": "safetensors" | "hf" | "gguf", "matrices": "f32" | "f16" | "q8_0"}

hf is a .zip of the folder that transformers loads. `note` of the event is a sentence where a person should know something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import ConfigError, FormatError
from ..model.config import GPTConfig
from ..store import gguf, hf
from ..store.archive import zipped
from ..store.checkpoint import Checkpoint

FORMATS = ("safetensors", "hf", "gguf")
_ZIP = b"PK\3\4"


async def keep_files(session, names: list, files: Iterable[Any]) -> str:
    """Keep a model that came as files as a run; its id. Raises FormatError, ConfigError, DataError, StoreError; then nothing is kept."""
    files = list(files)
    if len(names) != len(files) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError("import", "each file comes with its name", f"{len(names)} names and {len(files)} files came", "choose them again")
    sources = {name.replace("\\", "/"): session.host.source_of(file, name) for name, file in zip(names, files)}
    store = session.runs.store
    if len(sources) > 1:
        await session.host.load_numpy()  # half-precision weights are widened with it
        return await store.keep(hf.read(hf.folder_in(sources), _folder_name(names)))
    ((name, source),) = sources.items()
    if bytes(source.read_at(0, 4)) == _ZIP:
        await session.host.load_numpy()
        return await store.keep(hf.read_zip(source, _stem(name)))
    if name.rpartition("/")[2] in (hf.CONFIG, hf.TOKENIZER):
        raise FormatError("import", "a Hugging Face model is its files together", f"{name} came alone", "choose config.json, model.safetensors and tokenizer.json", code="E-FORMAT-MODEL")  # fmt: skip
    return await store.import_(source)


def _folder_name(names: list[str]) -> str:
    folder = names[0].replace("\\", "/").split("/")[0] if all("/" in name.replace("\\", "/") for name in names) else ""
    return folder or "imported model"


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0] or "imported model"


def taken_out(checkpoint: Checkpoint, form: str, matrices: str = "f32") -> tuple[Iterator[Any], str, str]:
    """(chunks, the file's ending, a note) of a run for another program. Raises ConfigError, FormatError."""
    if form == "hf":
        return zipped(hf.files_of(checkpoint)), "zip", ""
    if form != "gguf":
        raise ConfigError("export", f"format is one of {', '.join(FORMATS)}", f"{form!r} came", "choose one of those")
    return iter(gguf.file_of(checkpoint, matrices).chunks), "gguf", gguf.note_of(GPTConfig.from_dict(checkpoint.config))
