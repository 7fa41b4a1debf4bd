"""How well a sparse autoencoder stands in for what it reads: the model's loss with x' in x's place, batch by batch."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from ..ops.lazy import np
from ..waiting import now
from .addresses import place_of
from .checks import place_read
from .running import Run
from .sae import SparseAutoencoder
from .sae_engine import Coder
from .sparse import batches, windows

JUDGED_TOKENS = 8_192


@dataclass(frozen=True)
class Recovered:
    """How well an autoencoder stands in for what it reads, on a text it was not trained on.

    Losses in nats: as the model is, with x' in x's place, with zeros there. recovered: the share of what zeros lose that x' does
    not, NaN where zeros lose nothing: then there is no way to have gone any share of. l0 and explained variance over the text's tokens; dead: share of features that fired nowhere in it.
    """

    loss_nats: float
    replaced_nats: float
    zeroed_nats: float
    l0: float
    explained: float
    dead: float
    tokens: int

    @property
    def recovered(self) -> float:
        """1 where nothing is lost, 0 where as much is as with zeros, below 0 where more is; NaN where zeros lose nothing."""
        lost = self.zeroed_nats - self.loss_nats
        return (self.zeroed_nats - self.replaced_nats) / lost if lost > 0 else math.nan

    def __str__(self) -> str:
        share = "zeros lose nothing, so no share can be told," if math.isnan(self.recovered) else f"{100 * self.recovered:.1f} % recovered"
        return (
            f"loss {self.loss_nats:.3f} nats, {self.replaced_nats:.3f} through the autoencoder, {self.zeroed_nats:.3f} through zeros: "
            f"{share} at L0 {self.l0:.1f}; {100 * self.explained:.1f} % explained, "
            f"{100 * self.dead:.1f} % of features dead in {self.tokens:,} tokens"
        )

    def to_dict(self) -> dict:
        """Plain JSON; no share is None."""
        return asdict(self) | {"recovered": None if math.isnan(self.recovered) else self.recovered}


def _loss_nats(logits, tokens) -> float:
    """Mean -ln probability of each next token: logits [B,T,V], tokens [B,T]."""
    logits = logits[:, :-1].astype(np.float64)
    top = logits.max(-1, keepdims=True)
    own = np.take_along_axis(logits - top, tokens[:, 1:, None].astype(np.int64), 2)[..., 0]
    return float((np.log(np.exp(logits - top).sum(-1)) - own).mean())


class Judge:
    """`recovered`, batch by batch, for who has other work in between: advance_async until done is total, then verdict."""

    def __init__(self, model, tokens, autoencoder: SparseAutoencoder, count: int = JUDGED_TOKENS, seed: int = 1, machine=None) -> None:
        self.model, self.autoencoder, self.done = model, autoencoder, 0
        self._place, self._out = place_read(model, autoencoder), place_of(model.config, "logits")
        self._batches = batches(model, windows(tokens, model.config.context, count, seed))
        self._engine = Coder(model, autoencoder, machine)
        self._losses, self._windows, self._seen = np.zeros(3), 0, []
        self._fired = np.zeros(autoencoder.features, np.int64)
        self._squared = 0.0

    @property
    def total(self) -> int:
        """Batches there are; `done` of them were judged."""
        return len(self._batches)

    async def advance_async(self) -> None:
        """Judge a batch more: as it is, through the autoencoder, and with zeros."""
        place, out, batch = self._place, self._out, self._batches[self.done]
        there = await Run(self.model, batch).read([place, out])
        x = there[place.address].astype(np.float32)
        acts = await self._engine.encode(x)
        again = await self._engine.decode(acts)
        found = [_loss_nats(there["logits"], batch)]
        for instead in (again, 0.0):
            run = Run(self.model, batch)
            await run.change(place.address, instead)
            found.append(_loss_nats((await run.read([out]))["logits"], batch))
        self._losses += np.array(found) * len(batch)
        self._windows += len(batch)
        self._fired += (acts > 0).sum((0, 1))
        self._squared += float(((again - x).astype(np.float64) ** 2).sum())
        self._seen.append(x.reshape(-1, x.shape[-1]))
        self.done += 1

    def verdict(self) -> Recovered:
        """Of the batches that were judged, one at least."""
        x = np.concatenate(self._seen).astype(np.float64)
        total = float(((x - x.mean(0)) ** 2).sum())
        losses = self._losses / self._windows
        l0, dead = float(self._fired.sum()) / len(x), 1 - float((self._fired > 0).mean())
        return Recovered(*map(float, losses), l0, 1 - self._squared / total, dead, len(x))


async def recovered_async(model, tokens, autoencoder: SparseAutoencoder, count: int = JUDGED_TOKENS, seed: int = 1) -> Recovered:
    """`recovered`, for code that awaits."""
    judge = Judge(model, tokens, autoencoder, count, seed)
    while judge.done < judge.total:
        await judge.advance_async()
    return judge.verdict()


def recovered(model, tokens, autoencoder: SparseAutoencoder, count: int = JUDGED_TOKENS, seed: int = 1) -> Recovered:
    """Put the autoencoder in the place of what it reads and measure the loss on about `count` of a text's tokens. Raises ConfigError, DataError."""
    return now(recovered_async(model, tokens, autoencoder, count, seed))
