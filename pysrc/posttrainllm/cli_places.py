"""Where adapters come from, and where results go: seen before the first step to be free, and such that they can be written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .errors import ConfigError, DataError, StoreError

if TYPE_CHECKING:
    from .model.lora import Adapter


def adapter_at(path: Path) -> Adapter:
    """An adapter out of PEFT's folder or file, or out of what a run that trains one saved. Raises DataError, FormatError."""
    from .model.lora import Adapter
    from .store.checkpoint import PREFIX
    from .store.safetensors import SafeTensors
    from .train.files import opened
    from .train.state import adapter_of

    run = is_run(path)
    if path.is_file():
        with contextlib.suppress(OSError):
            run = f"{PREFIX}format_version" in SafeTensors(path.read_bytes(), str(path)).metadata
    if not run:
        return Adapter.load(path)
    with opened(path) as checkpoint:
        found = adapter_of(checkpoint)
    if found is None:
        raise DataError("adapter", "--adapter is an adapter", f"{path} is a whole model's run", "give it as --from")
    return found


def is_run(folder: Path) -> bool:
    """Whether a run was saved in a folder."""
    from .store.slots import SLOT_FILES

    return any((folder / name).exists() for name in SLOT_FILES)


@contextlib.contextmanager
def gone_unless_saved(folder: Path | None) -> Iterator[None]:
    """Where a new run's folder is made while this lasts and nothing is saved there, it goes again. Enter it before the run is held."""
    from .store.volume import FILES, SLOT_FILES

    if folder is None or any((folder / name).exists() for name in FILES):
        yield
        return
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if not any((folder / name).exists() and (folder / name).stat().st_size for name in SLOT_FILES):
                for name in FILES:
                    (folder / name).unlink(missing_ok=True)
                for each in made:
                    each.rmdir()


def weights_of(adapter: Path) -> Path:
    """The file of an adapter's weights: in its folder, or that file itself."""
    from .store.peft import WEIGHTS

    return adapter if adapter.is_file() else adapter / WEIGHTS


def require_new_adapter(place: str, out: Path, overwrite: bool) -> None:
    """Raise ConfigError where `out` is no folder for an adapter, or another adapter's (unless that may go)."""
    if out.exists() and not out.is_dir():
        _refuse(place, "--out is an adapter's folder", f"{out} is a file", "name a folder")
    if is_run(out):
        _refuse(place, "--out is an adapter's folder", f"a run is saved in {out}", "choose another")
    if weights_of(out).exists() and not overwrite:
        _refuse(place, "--out is a new adapter's folder", f"an adapter is in {out}", "choose another, or add --overwrite")


def require_new_file(place: str, option: str, path: Path, read: dict[str, Path | None]) -> None:
    """Raise ConfigError where a file that is to be written is a folder, one of those that are `read` (by option), or in a run's folder."""
    if path.is_dir():
        _refuse(place, f"{option} is a file", f"{path} is a folder", "name a file")
    for other, known in read.items():
        if known is not None and _same(path, known):
            _refuse(place, f"what {other} names is only read", f"{option} {path} would replace it", "choose another file")
    if is_run(path.parent):
        _refuse(place, f"{option} is a file beside runs", f"a run is saved in {path.parent}", "choose another folder")


@contextlib.contextmanager
def writable(folder: Path | None = None, *files: Path | None) -> Iterator[None]:
    """See that `folder` (made where there is none) and the folders of `files` can be written into, so that it is not found out after the
    training. What was made goes again where nothing was put into it. Raises StoreError."""
    made: list[Path] = []
    try:
        if folder is not None:
            made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
            with _told(folder, "the folder"):
                folder.mkdir(parents=True, exist_ok=True)
                _probe(folder)
        for file in files:
            if file is not None:
                with _told(file, "the file"):
                    _probe(file.parent)
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):  # it holds something by now
                each.rmdir()


def _probe(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder):
        pass


@contextlib.contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"writing {path}", f"{what} can be written", error.strerror or str(error), "choose another place") from error


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except OSError:
        return False


def _refuse(place: str, rule: str, came: str, remedy: str) -> NoReturn:
    raise ConfigError(place, rule, came, remedy)
