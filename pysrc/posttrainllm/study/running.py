"""run: one forward pass with activations read and replaced at will."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ..compile.tape import address
from ..decode.choices import token_text
from ..errors import ConfigError, DataError, ShapeError
from ..ops.lazy import np
from ..waiting import begun, now
from .addresses import Place, chosen, place_of
from .checks import require_numbers, require_open
from .passes import look, padded
from .picture import table
from .weights import fetched, projection_async

KEEP = -0.0
"""What is added where an activation stays: y + (-0) is y, to the sign of a zero."""


@dataclass(frozen=True)
class Change:
    """How an activation is changed rather than replaced: factor·y + add. Each broadcasts to the address's shape."""

    factor: object = 1.0
    add: object = 0.0


class Activations(Mapping):
    """What `run` read: address to array, shaped as study/addresses.py says, with the batch in front where tokens [B,T] came.

    float32; float64 on the reference engine, and for what is computed here (scores, patterns, results). `tokens` [T] or [B,T];
    `labels` are the tokens as a person reads them.
    """

    def __init__(self, arrays: dict[str, object], tokens, labels: list) -> None:
        self._arrays, self.tokens, self.labels = arrays, tokens, labels

    def __getitem__(self, address: str):
        return self._arrays[address]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __str__(self) -> str:
        rows = []
        for name, array in self._arrays.items():
            finite = array[np.isfinite(array)]
            shape = "×".join(map(str, array.shape))
            rows.append((name, shape, *(f"{float(each):.4g}" for each in (finite.mean(), finite.std(), finite.min(), finite.max()))))
        return table(("address", "shape", "mean", "deviation", "least", "most"), rows)

    def to_dict(self) -> dict:
        """{"tokens", "labels": plain lists, "arrays": address to float32 array}."""
        arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in self._arrays.items()}
        return {"tokens": self.tokens.tolist(), "labels": self.labels, "arrays": arrays}


def tokens_of(model, text):
    """Text or token ids (a sequence, or rows of one length) as an int32 array [T] or [B,T]. Raises DataError."""
    if isinstance(text, str):
        text = list(model.tokenizer.encode(text))
    try:
        if isinstance(text, (AbstractSet, Mapping)):
            raise TypeError("these have no order of their own")
        found = np.asarray(text if hasattr(text, "dtype") else list(text))
    except (TypeError, ValueError) as error:  # nothing to go through, or not in an order, or rows of several lengths
        raise DataError("study", "a text, its tokens, or rows of tokens, all of one length", f"{text!r:.60} came", "give one of those") from error
    config = model.config
    if found.ndim not in (1, 2) or not found.size or found.shape[-1] > config.context:
        came = "×".join(map(str, found.shape)) if found.size else "none"
        raise DataError("study", f"1 to {config.context} tokens (the context)", f"{came} came", "shorten the text" if found.size else "give some text")
    if found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= config.vocabulary:
        came = f"{found.min()} to {found.max()}" if found.dtype.kind in "iuf" else f"{str(found.flat[0])!r:.60}"
        raise DataError("study", f"a token is a number from 0 to {config.vocabulary - 1}", f"{came} came", "use the model's tokenizer", code="E-DATA-TOKEN")
    return found.astype(np.int32)


def labels_of(model, tokens) -> list:
    """Each token as a person reads it, in lists of the tokens' shape."""
    if getattr(tokens, "ndim", 1) == 2:
        return [labels_of(model, row) for row in tokens]
    known = model.tokenizer.vocabulary
    return [token_text(model.tokenizer, int(token)) if token < known else f"#{int(token)}" for token in tokens]


class Run:
    """A forward pass of tokens [B,T] with its changes, which can be asked for activations again and again."""

    def __init__(self, model, tokens) -> None:
        require_open(model)
        self.model, self.tokens = model, tokens
        self.batch, self.time = tokens.shape
        self.padded = padded(self.time, model.config.context)
        self.images: dict[str, tuple] = {}
        self._mixing: dict[str, object] = {}  # scores and patterns that were put there: no engine has them

    async def values(self, names: frozenset[str], lens: tuple[str, ...] = ()) -> dict[str, object]:
        """The engine's values by name, [B,T,…]; and of `lens` the logits "lens.<name>". Raises NonFiniteError."""
        machine = self.model.machine
        made = look(self.model, self.batch, self.padded, names, frozenset(self.images), lens)
        await made.ready(machine)
        tokens = np.zeros((self.batch, self.padded), "<i4")
        tokens[:, : self.time] = self.tokens
        machine.upload(address(made.each.tokens), tokens.tobytes())
        for name, pair in made.changes.items():
            for value, image in zip(pair, self.images[name]):
                machine.upload(address(value), image.tobytes())
        machine.replay(made.loaded)
        asked = {name: begun(fetched(machine, *made.each.address(name), value.shape)) for name, value in made.each.outputs.items()}
        found = {name: self._cut(await answer) for name, answer in asked.items()}
        require_numbers(self.model.config, found)
        return found

    def _cut(self, array):
        """[B·padded, …] without the positions that no token stands at."""
        return array.reshape(self.batch, self.padded, *array.shape[1:])[:, : self.time]

    async def read(self, wanted: list[Place]) -> dict[str, object]:
        """Arrays [B, …] by address."""
        values = await self.values(frozenset(place.value for place in wanted))
        found = {}
        for place in wanted:
            if place.address in self._mixing:
                found[place.address] = self._mixing[place.address]
            elif place.kind == "attn.result":
                found[place.address] = await self._results(place, values[place.value])
            else:
                found[place.address] = self._of(place, values[place.value])
        return found

    def _of(self, place: Place, value):
        """What stands at a place, from the engine's value [B,T,…]; a view unless it is computed."""
        config, (batch, time) = self.model.config, value.shape[:2]
        if place.value.endswith("attn.qkv") and place.kind != "attn.qkv":
            q, k, v = (value.reshape(batch, time, 3, config.heads, config.head_width)[:, :, part] for part in range(3))
            if place.derived:
                scores = scores_of(q, k)
                return scores if place.kind == "attn.scores" else softmax(scores)
            return {"q": q, "k": k, "v": v}[place.kind[-1]]
        if place.dims == "THD":
            return value.reshape(batch, time, config.heads, config.head_width)
        return value

    async def _results(self, place: Place, value):
        config = self.model.config
        weight = await projection_async(self.model, place.layer)
        z = value.reshape(*value.shape[:2], config.heads, config.head_width).astype(np.float64)
        return np.einsum("bthd,hdc->bthc", z, weight.reshape(config.heads, config.head_width, -1))

    async def change(self, address: str, what, single: bool = False) -> None:
        """Change what stands at an address from now on. `single`: a callable sees no batch."""
        place = place_of(self.model.config, address)
        if callable(what):
            now_there = (await self.read([place]))[address]
            what = what((now_there[0] if single else now_there).copy())  # a copy, so that it may be changed in place
        if what is None:
            raise ConfigError("study", "a replacement is a number, an array, a Change, or a function that returns one", "None came", "return what shall stand there")
        if place.derived:
            address, what = await self._mixed(place, what)
            place = place_of(self.model.config, address)
        shape = (self.batch, self.padded, *place_width(place, self.model.config))
        if place.value not in self.images:
            self.images[place.value] = (np.ones(shape, "<f4"), np.full(shape, KEEP, "<f4"))
        factor, given = (self._of(place, image)[:, : self.time] for image in self.images[place.value])
        if isinstance(what, Change):
            times = _fitting(place, what.factor, factor.shape)  # of what stands there by now, replaced or not
            factor[...], given[...] = times * factor, times * given + _fitting(place, what.add, given.shape)
            return
        new = _fitting(place, what, given.shape)
        replaced = ~np.isnan(new)
        factor[replaced], given[replaced] = 0.0, new[replaced]

    async def _mixed(self, place: Place, what) -> tuple[str, object]:
        """A pattern or scores as the replacement of what the heads then read."""
        block = place.address.rsplit(".", 1)[0]
        need = chosen(self.model.config, [place.address, f"{block}.v"])
        there = await self.read(need)
        pattern = there[place.address]
        if isinstance(what, Change):
            seen = np.tril(np.ones(pattern.shape[-2:], bool))  # a key after its query stays unseen
            factor, add = (_fitting(place, each, pattern.shape) for each in (what.factor, what.add))
            what = np.where(seen, factor * np.where(seen, pattern, 0.0) + add, np.nan)
        new = _fitting(place, what, pattern.shape)
        pattern = self._mixing[place.address] = np.where(np.isnan(new), pattern, new)
        if place.kind == "attn.scores":
            pattern = self._mixing[f"{block}.pattern"] = softmax(pattern)
        return f"{block}.y", np.einsum("bhqk,bkhd->bqhd", pattern, there[f"{block}.v"].astype(np.float64))


def place_width(place: Place, config) -> tuple[int, ...]:
    """Columns of the engine's value that a place lies in."""
    columns = {"3": 3 * config.channels, "F": config.hidden, "V": config.vocabulary}
    if place.value.endswith("attn.qkv"):
        return (columns["3"],)
    return (columns.get(place.dims[-1], config.channels),)


def _fitting(place: Place, what, shape: tuple[int, ...]):
    try:
        return np.broadcast_to(np.asarray(what, np.float64 if place.derived else np.float32), shape)
    except (ValueError, TypeError) as error:
        came = list(what.shape) if isinstance(what, np.ndarray) else f"{what!r:.60}"
        raise ShapeError(f"study: {place.address} takes what broadcasts to {list(shape)}; {came} came. NaN leaves a number as it is.") from error


def scores_of(q, k):
    """Scaled scores [B,H,T,T] in float64 of q and k [B,T,H,D]; -inf where a key comes after its query."""
    time, width = q.shape[1], q.shape[-1]
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(np.float64), k.astype(np.float64)) / math.sqrt(width)
    return np.where(np.tril(np.ones((time, time), bool)), scores, -np.inf)


def softmax(scores):
    """Over the last axis, in the array's precision."""
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


async def run_async(model, text, taps=(), replace: Mapping[str, object | Callable] | None = None) -> Activations:
    """`run`, for code that awaits."""
    tokens = tokens_of(model, text)
    single = tokens.ndim == 1
    made = Run(model, tokens[None] if single else tokens)
    for address, what in in_order(model, replace or {}):
        await made.change(address, what, single)
    found = await made.read(chosen(model.config, taps) if taps else [])
    return Activations({name: each[0] if single else each for name, each in found.items()}, tokens, labels_of(model, tokens))


def in_order(model, replace: Mapping) -> list:
    """Replacements as the forward pass comes to them: one that looks first must see those before it."""
    if not isinstance(replace, Mapping):
        raise ConfigError("study", "replacements by address, {address: what}", f"{type(replace).__name__} came", "give a dict")
    for each in replace:
        place_of(model.config, each)
    return [(place.address, replace[place.address]) for place in chosen(model.config, replace)] if replace else []


def run(model, text, taps=(), replace: Mapping[str, object | Callable] | None = None) -> Activations:
    """Run `text` (or tokens [T] or [B,T]) through the model and read the activations at `taps`, an address or several.

    `replace` maps an address to what shall stand there instead: an array (or number) that broadcasts to its shape, NaN leaving a
    number as it was; a function of the array that would stand there; or a Change. A replaced pattern takes effect through the
    heads' mix of values. Scores and patterns given as an array or by a function are taken as they are, so a finite score above the diagonal
    lets a query see a later token; a Change keeps the mask, and so does NaN there. Nothing is taken over by the next run. Raises ConfigError, DataError, ShapeError, DeviceError,
    NonFiniteError where weights are broken.

        act = run(model, "ROMEO:", taps=["blocks.*.attn.pattern", "logits"])
        off = run(model, "ROMEO:", taps="logits", replace={"blocks.0.mlp.out": 0.0})["logits"]
    """
    return now(run_async(model, text, taps, replace))
