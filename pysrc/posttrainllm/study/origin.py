"""What a saved autoencoder or tuned lens says of the model it was trained on, and where such files are put."""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError, FormatError, ShapeError

SIZES = ("layers", "channels", "heads", "hidden", "vocabulary")


def sizes_of(config) -> dict[str, int]:
    """Of a model's config, what no training changes."""
    return {name: getattr(config, name) for name in SIZES}


def require_sizes(place: str, sizes: dict, config) -> None:
    """Raise ShapeError for a model of other sizes than it was trained on ({}: it does not say). Weights are not compared: after more
    training it is still of use, though it fits less the longer that was."""
    other = [name for name in SIZES if name in sizes and sizes[name] != getattr(config, name)]
    if other:
        wanted, came = (", ".join(f"{name} {of(name):,}" for name in other) for of in (sizes.get, lambda name: getattr(config, name)))
        raise ShapeError(place, f"it was trained on a model of {wanted}", f"one of {came} came", "use the model it is of, or train another")


def sizes_read(place: str, value) -> dict[str, int]:
    """From a file's JSON; {} where it names none. Raises FormatError."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(type(each) is int for each in value.values()):
        raise FormatError(place, "the sizes of its model are whole numbers by name", f"{value!r:.60} came", "correct or leave them out")
    return value


def path_of(place: str, path) -> Path:
    """A file's or a folder's name as a Path. Raises ConfigError."""
    try:
        return Path(path)
    except TypeError as error:
        raise ConfigError(place, "the name of a file or a folder", f"{path!r:.60} came", "give a path") from error
