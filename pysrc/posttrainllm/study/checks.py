"""What study calls take, checked in one place, so that what does not fit is refused in a sentence before anything runs."""

from __future__ import annotations

import math
import operator

from ..errors import ConfigError, DataError, NonFiniteError, ShapeError
from ..ops.lazy import np
from .addresses import Place, place_of
from .origin import require_sizes
from .sae import SparseAutoencoder


def whole(place: str, name: str, value, least: int, most: int | None = None) -> int:
    """A whole number (Python's or NumPy's) in a range, as an int. Raises ConfigError."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least or (most is not None and number > most):
        to = "" if most is None else f" to {most:,}"
        raise ConfigError(place, f"{name} is a whole number from {least}{to}", f"{value!r:.60} came", "change it")
    return number


def number(place: str, name: str, value) -> float:
    """A finite number as a float. Raises ConfigError."""
    try:
        found = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(place, f"{name} is a finite number", f"{value!r:.60} came", "change it")
    return found


def position_of(tokens, position) -> int:
    """A position of a text's tokens [T], from its end where negative, as one from 0. Raises DataError."""
    try:
        at = operator.index(position)
    except TypeError:
        at = len(tokens)
    if isinstance(position, bool) or not -len(tokens) <= at < len(tokens):
        raise DataError("study", f"a position from 0 to {len(tokens) - 1}", f"{position!r:.60} came", "choose one in the text")
    return at % len(tokens)


def text_tokens(place: str, tokens):
    """The tokens of a text (a sequence, an array or bytes) as an integer array [N]. Raises DataError, for a Corpus or letters too."""
    if isinstance(tokens, (bytes, bytearray)):
        return np.frombuffer(tokens, np.uint8)
    try:
        found = np.asarray(tokens)
    except (TypeError, ValueError):  # rows of several lengths
        found = np.zeros((0, 0))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        came = f"{found.dtype} [{'×'.join(map(str, found.shape))}]" if isinstance(tokens, np.ndarray) else f"{type(tokens).__name__} {tokens!r:.40}"
        raise DataError(place, "the tokens of one text, whole numbers one after the other", f"{came} came", "give corpus.train, or model.tokenizer.encode(text)")
    return found


def require_open(model) -> None:
    """Raise ConfigError for a model that was closed."""
    if model.closed:
        raise ConfigError("study", "a model that is open", "this one was closed", "make or load it again")


def require_rows(model, address: str) -> Place:
    """The Place of an address with one row a token. Raises ConfigError for another."""
    place = place_of(model.config, address)
    if place.dims not in ("TC", "TF"):
        raise ConfigError("sae", "an address with one row a token (resid_post, mlp.out, mlp.post, attn.out, …)", f"{address!r} came", "choose one")
    return place


def place_read(model, autoencoder) -> Place:
    """Where in a model an autoencoder reads. Raises ConfigError where it says no such place, ShapeError where rows there have another
    width, or the model has other sizes than it was trained on."""
    if not isinstance(autoencoder, SparseAutoencoder):
        raise ConfigError("sae", "a SparseAutoencoder", f"{type(autoencoder).__name__} came", "give trainer.autoencoder, or SparseAutoencoder.load(folder)")
    if not autoencoder.address:
        raise ConfigError("sae", "an autoencoder that says where it reads", "its address is empty", 'set autoencoder.address = "blocks.1.resid_post"')
    place = require_rows(model, autoencoder.address)
    width = place.shape(model.config, 1, 1)[-1]
    if width != autoencoder.channels:
        raise ShapeError("sae", f"{place.address} has rows of {width} numbers in this model", f"an autoencoder of {autoencoder.channels} came", "use the model it is of")
    require_sizes("sae", autoencoder.sizes, model.config)
    return place


def require_numbers(config, values: dict) -> None:
    """Raise NonFiniteError where an activation that was read (arrays by the engine's name) is NaN or infinite, naming the first there is."""
    broken = [name for name, array in values.items() if not np.isfinite(array).all()]
    if not broken:
        return
    from .addresses import places

    order = {place.value: number for number, place in enumerate(places(config).values())}
    first = min(broken, key=lambda name: order.get(name.removeprefix("lens."), -1))
    raise NonFiniteError(
        "study", "activations are numbers", f"{first} holds NaN or infinity", "the weights are broken, or what was put there is too large; open an earlier save"
    )
