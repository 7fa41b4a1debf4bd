"""A sparse autoencoder's features over a text, batch by batch: what a browser of features needs, without all activations in memory.

After `advance_async` has gone through the windows, `order` lists features and `feature_async` runs one's strongest windows again.
"""

from __future__ import annotations

from ..ops.lazy import np
from .checks import place_read, whole
from .running import Run, labels_of
from .sae import SparseAutoencoder
from .sae_engine import Coder
from .sparse import RARE, Context, Feature, windows
from .weights import weight_async

ORDERS = ("telling", "strength", "frequency", "number")


class Survey:
    """Features over about `count` of a text's tokens [N]: `density` [F] (shares of the tokens that were looked through) and `most` [F].

    Raises ConfigError, DataError.
    """

    def __init__(self, model, tokens, autoencoder: SparseAutoencoder, count: int, seed: int = 2, machine=None) -> None:
        self.model, self.autoencoder = model, autoencoder
        self.rows = windows(tokens, model.config.context, count, seed)
        self._place = place_read(model, autoencoder)
        self._engine = Coder(model, autoencoder, machine)
        self._most = np.zeros((len(self.rows), autoencoder.features), np.float32)  # by window
        self._fired = np.zeros(autoencoder.features, np.int64)
        self.done = 0

    @property
    def total(self) -> int:
        """Windows there are; `done` of them were looked through."""
        return len(self.rows)

    async def advance_async(self, count: int = 4) -> None:
        """Look through `count` windows more, fewer where the end is nearer."""
        rows = self.rows[self.done : self.done + count]
        acts = await self._acts(rows)
        self._most[self.done : self.done + len(rows)] = acts.max(1)
        self._fired += (acts > 0).sum((0, 1))
        self.done += len(rows)

    async def _acts(self, rows):
        """Feature activations [N,T,F] of windows."""
        return await self._engine.encode((await Run(self.model, rows).read([self._place]))[self._place.address])

    @property
    def density(self):
        """Shares [F] of tokens that each feature fires at."""
        return self._fired / max(1, self.done * self.rows.shape[1])

    @property
    def most(self):
        """The most [F] that each fires."""
        return self._most.max(0)

    def order(self, by: str = "telling"):
        """Features that fired: by strength with those that fire seldom first ("telling", as `features` does), by strength alone, by how
        often they fire, or by number."""
        density, most = self.density, self.most
        key = {
            "telling": -np.where((density >= RARE[0]) & (density <= RARE[1]), most, most - most.max() - 1),
            "strength": -most, "frequency": -density, "number": np.arange(len(most)),
        }[by]  # fmt: skip
        found = np.argsort(key, kind="stable")
        return found[most[found] > 0]

    async def feature_async(self, index: int, contexts: int = 5, around: int = 12, top: int = 8) -> Feature:
        """As `features` tells of one: where it fires most, and what it promotes."""
        index = whole("sae", "a feature", index, 0, self.autoencoder.features - 1)
        best = [int(row) for row in np.argsort(-self._most[:, index], kind="stable")[:contexts] if self._most[row, index] > 0]
        where = []
        for row in best:
            own = (await self._acts(self.rows[row : row + 1]))[0, :, index]
            at = int(own.argmax())
            first, last = max(0, at - around), min(len(own), at + around // 2)
            where.append(Context(labels_of(self.model, self.rows[row, first:last]), [float(each) for each in own[first:last]], at - first))
        return Feature(index, float(self.density[index]), float(self.most[index]), where, *await self._ends(index, top))

    async def _ends(self, index: int, top: int) -> tuple[list, list]:
        if self._place.dims != "TC":
            return [], []
        known = self.model.tokenizer.vocabulary
        direction = self.autoencoder.decoder[index] - self.autoencoder.decoder[index].mean()  # ln_f takes the mean away
        through = direction * await weight_async(self.model, "ln_f.weight")
        promoted = ((await weight_async(self.model, self.model.config.head)) @ through)[:known]
        order = np.argsort(-promoted, kind="stable")
        return tuple(list(zip(labels_of(self.model, part), (float(each) for each in promoted[part]))) for part in (order[:top], order[::-1][:top]))
