"""Writing while something inside is changed: a feature's direction added, a head taken away, anything `run` can replace."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import DataError
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen
from .checks import number, place_read, whole
from .running import Change, Run, in_order, tokens_of
from .sae import SparseAutoencoder


class Changed:
    """A model under changes, to be written with: `decode.write(changed, prompt, …)` or `changed.generate(prompt, …)`.

    The model itself stays as it is. Every token costs a pass over the whole window: what was changed holds for all of it, so keys
    and values of the plain model are of no use. Values broadcast to windows of any length: a number, or one row.
    """

    def __init__(self, model, replace: Mapping) -> None:
        self.model, self.config, self.tokenizer = model, model.config, model.tokenizer
        self._replace = in_order(model, replace)

    async def logits_of_async(self, tokens, last: int) -> list[memoryview]:
        """Logits [V] (float32) after each of the `last` of `tokens`, under the changes."""
        rows = tokens_of(self.model, list(tokens))
        if not 1 <= last <= len(rows):
            raise DataError("study", f"logits after 1 to {len(rows)} of the tokens", f"{last} was asked for", "change it")
        run = Run(self.model, rows[None])
        for address, what in self._replace:
            await run.change(address, what, True)
        logits = (await run.read(chosen(self.config, "logits")))["logits"][0, -last:]
        return [memoryview(np.ascontiguousarray(row, np.float32)) for row in logits]

    async def logits_async(self, tokens) -> memoryview:
        """Those after the last of `tokens`."""
        return (await self.logits_of_async(tokens, 1))[0]

    def logits(self, tokens) -> memoryview:
        """`logits_async`, from plain code."""
        return now(self.logits_async(tokens))

    def generate(self, prompt: str, tokens: int = 200, **how) -> str:
        """Text that continues `prompt`; see decode.generate.write for the sampler's settings."""
        from ..decode.generate import write

        return "".join(piece.text for piece in write(self, prompt, tokens, **how))


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
