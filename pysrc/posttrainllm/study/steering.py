"""Writing while something inside is changed: a feature's direction added, a head taken away, anything `run` can replace."""

from __future__ import annotations

from collections.abc import Mapping

from ..compile.tape import address
from ..errors import DataError
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen, place_of
from .checks import number, place_read, require_numbers, require_open, whole
from .passes import build_decoding
from .running import Change, Run, in_order, tokens_of
from .sae import SparseAutoencoder


class Changed:
    """A model under changes, to be written with: `decode.write(changed, prompt, …)` or `changed.generate(prompt, …)`.

    The model itself stays as it is. Values broadcast to windows of any length: a number, or one row. Where each change is of its own
    position alone (all but functions, patterns and scores, and arrays of several positions), keys and values under the changes stand
    in the model's cache, in turn with its own, and a token costs about what it costs without changes; else a pass over the window.
    """

    def __init__(self, model, replace: Mapping) -> None:
        self.model, self.config, self.tokenizer = model, model.config, model.tokenizer
        self._replace = in_order(model, replace)
        self._cached = _Cached(model, self._replace) if all(_by_position(model.config, *each) for each in self._replace) else None

    async def logits_of_async(self, tokens, last: int) -> list[memoryview]:
        """Logits [V] (float32) after each of the `last` of `tokens`, under the changes."""
        rows = tokens_of(self.model, list(tokens))
        if not 1 <= last <= len(rows):
            raise DataError("study", f"logits after 1 to {len(rows)} of the tokens", f"{last} was asked for", "change it")
        require_open(self.model)
        if self._cached is not None:
            return await self._cached.logits(rows.tolist(), last)
        run = Run(self.model, rows[None])
        for address, what in self._replace:
            await run.change(address, what, True)
        logits = (await run.read(chosen(self.config, "logits")))["logits"][0, -last:]
        return [memoryview(np.ascontiguousarray(row, np.float32)) for row in logits]

    async def logits_async(self, tokens) -> memoryview:
        """Those after the last of `tokens`."""
        return (await self.logits_of_async(tokens, 1))[0]

    def logits_of(self, tokens, last: int) -> list[memoryview]:
        """`logits_of_async`, from plain code."""
        return now(self.logits_of_async(tokens, last))

    def logits(self, tokens) -> memoryview:
        """`logits_async`, from plain code."""
        return now(self.logits_async(tokens))

    def generate(self, prompt: str, tokens: int = 200, **how) -> str:
        """Text that continues `prompt`; see decode.generate.write for the sampler's settings."""
        from ..decode.generate import write

        return "".join(piece.text for piece in write(self, prompt, tokens, **how))


def _by_position(config, address: str, what) -> bool:
    """Whether a change is the same at every position, and needs to know of no other."""
    place = place_of(config, address)
    parts = (what.factor, what.add) if isinstance(what, Change) else (what,)
    if place.derived or what is None or any(map(callable, parts)):
        return False
    try:
        shapes = [np.shape(part) for part in parts]
    except ValueError:  # rows of several lengths: refused when it is put there
        return False
    return all(len(shape) < len(place.dims) or shape[-len(place.dims)] == 1 for shape in shapes)


class _Cached:
    """Logits under changes that are the same at every position, by passes that know the model's cache. What is blended in is uploaded
    before each: other passes use the same slots."""

    def __init__(self, model, replace: list) -> None:
        self.model, self.config, self.machine, self.program = model, model.config, model.machine, self
        self._replace, self._made_for, self._rows, self._looks = replace, None, {}, {}
        self._past = model.guest(self, self._ready)

    async def logits(self, tokens: list[int], last: int) -> list[memoryview]:
        """After each of the `last` of `tokens`."""
        if self._made_for is not self.model.program:  # other tapes: an adapter came or went
            run = Run(self.model, np.zeros((1, 1), np.int32))
            for address, what in self._replace:
                await run.change(address, what)
            self._rows = {name: [image[:, :1] for image in pair] for name, pair in run.images.items()}
            self._looks, self._made_for = {}, self.model.program
            self._past.forget()
        rows = await self._past.logits(tokens, last)
        require_numbers(self.config, {"logits": np.array([np.asarray(row) for row in rows])})
        return rows

    def decoding(self, time: int):
        """The pass for `time` tokens after those in the cache, as Program.decoding."""
        if time not in self._looks:
            self._looks[time] = build_decoding(self.model.program, time, frozenset(self._rows))
        return self._looks[time].each

    async def _ready(self, each):
        look = next(look for look in self._looks.values() if look.each is each)
        await look.ready(self.machine)
        for name, pair in look.changes.items():
            for value, row in zip(pair, self._rows[name]):
                self.machine.upload(address(value), np.ascontiguousarray(np.broadcast_to(row[0], value.shape), "<f4").tobytes())
        return look.loaded


def changed(model, replace: Mapping) -> Changed:
    """A model to write with, under what `run` takes as `replace`. Raises ConfigError."""
    return Changed(model, replace)


def steer(model, autoencoder: SparseAutoencoder, feature: int, strength: float) -> Changed:
    """A model to write with, `strength` times a feature's direction added to every row its autoencoder reads.

    A feature's own activations (Feature.most) are a measure for the strength; a negative one holds it back. Raises ConfigError, ShapeError.
    """
    address = place_read(model, autoencoder).address
    direction = autoencoder.decoder[whole("sae", "a feature", feature, 0, autoencoder.features - 1)]
    return Changed(model, {address: Change(add=np.float32(number("sae", "strength", strength)) * direction)})
