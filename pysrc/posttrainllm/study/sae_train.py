"""Training a sparse autoencoder on rows of activations: a generator of reports, as the model's own training is.

The products run on the model's engine (sae_engine.py) where one is given, else in NumPy; the rest is NumPy.

Rows are scaled so that their mean length is sqrt(C), which makes one set of settings fit every model and layer; the scale is
folded into the weights at the end. Decoder rows keep length 1. A feature that has not fired for a while is made anew where the
autoencoder errs most (Bricken et al. 2023, "resampling").
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass

from ..configs import load
from ..errors import ConfigError, DataError, NonFiniteError
from ..ops.lazy import np
from ..waiting import each_now
from .picture import bars
from .sae import KINDS, SparseAutoencoder, sparse

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
WARMUP, DECAY, LAST_RESAMPLE = 0.02, 0.3, 0.7
"""Shares of the steps: the rate rises over the first, falls over the last; nothing is made anew after that one."""
REPORT_STEPS, PICTURED = 50, 12


@dataclass(frozen=True)
class SAESettings:
    """features F; kind "topk" (k a row) or "l1" (penalty l1 on the sum of a row's features); steps of `batch` rows.

    Defaults are in configs/sae.json. Raises ConfigError.
    """

    features: int
    kind: str
    k: int
    l1: float
    steps: int
    batch: int
    learning_rate: float
    resample_every_steps: int
    seed: int

    def __post_init__(self) -> None:
        for name in ("features", "k", "steps", "batch", "resample_every_steps"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 1 << 20:
                raise ConfigError("sae", f"{name} is a whole number from 1 to {1 << 20:,}", f"{value!r} came", "change it")
        if self.kind not in KINDS:
            raise ConfigError("sae", f"kind is one of {', '.join(KINDS)}", f"{self.kind!r} came", "choose one")
        for name in ("l1", "learning_rate"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < 1e6:
                raise ConfigError("sae", f"{name} is a number from 0 to a million", f"{value!r} came", "change it")
        if not self.learning_rate:
            raise ConfigError("sae", "learning_rate is above 0", "0 came: nothing would be learned", "leave it out for the default")
        if self.kind == "topk" and self.k > self.features:
            raise ConfigError("sae", f"k is at most the number of features, {self.features:,}", f"{self.k:,} came", "lower it, or take more features")
        if type(self.seed) is not int or self.seed < 0:
            raise ConfigError("sae", "seed is a whole number from 0", f"{self.seed!r:.60} came", "change it")

    @classmethod
    def of(cls, **changes) -> SAESettings:
        """The defaults with changes; unknown names are a ConfigError."""
        settings = load("sae") | {name: value for name, value in changes.items() if value is not None}
        unknown = set(settings) - set(cls.__dataclass_fields__)
        if unknown:
            raise ConfigError("sae", f"settings are {', '.join(cls.__dataclass_fields__)}", f"{', '.join(sorted(unknown))} came", "correct the names")
        return cls(**settings)

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SAEReport:
    """Where training stands: of the last batch L0 (features a row), explained variance (1 is all of it) and mean squared error a
    number; the share of features dead (not fired since the last look at that), how many were made anew so far, seconds."""

    step: int
    steps: int
    l0: float
    explained: float
    squared_error: float
    dead: float
    resampled: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"step {self.step:,} of {self.steps:,}: L0 {self.l0:.1f}, explains {100 * self.explained:.1f} %, dead {100 * self.dead:.1f} %, "
            f"{self.seconds:.1f} s"
        )

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)


def gradients(w: dict, x, kind: str, k: int, l1: float):
    """(activations [R,F], error [R,C], gradients by weight) of the mean over rows of the squared length of the error, and for
    "l1" of the sum of activations times l1."""
    centred = x - w["bias"]
    acts = sparse(centred @ w["encoder"] + w["encoder_bias"], kind, k)
    error = acts @ w["decoder"] + w["bias"] - x
    dy = error * x.dtype.type(2 / len(x))
    dacts = dy @ w["decoder"].T
    if kind == "l1":
        dacts += x.dtype.type(l1 / len(x))
    dacts *= acts > 0
    bias = dacts.sum(0)
    found = {"encoder": centred.T @ dacts, "encoder_bias": bias, "decoder": acts.T @ dy, "bias": dy.sum(0) - w["encoder"] @ bias}
    return acts, error, found


class SAETrainer:
    """Training on rows x [N,C] (float32). `run` gives reports, and `reports` are some of those so far; `autoencoder` is what there is,
    fit for rows as they came.

    products: a sae_engine.Products for batches of min(settings.batch, N) rows, or None for NumPy. sizes: of the model (SparseAutoencoder).
    """

    def __init__(self, rows, settings: SAESettings, address: str = "", products=None, sizes: dict | None = None) -> None:
        rows = np.ascontiguousarray(rows, np.float32)
        if rows.ndim != 2 or len(rows) < 2:
            raise ConfigError("sae", "rows of activations [N,C], two at least", f"{list(rows.shape)} came", "read some more text")
        if not np.isfinite(rows).all():
            raise DataError("sae", "rows of activations are numbers", "NaN or infinity came", "leave those rows out; look for broken weights")
        self.settings, self.address, self.step, self.resampled = settings, address, 0, 0
        channels, features = rows.shape[1], settings.features
        self._rng = np.random.default_rng(settings.seed)
        self._scale = math.sqrt(channels) / float(np.sqrt((rows.astype(np.float64) ** 2).sum(1)).mean() or 1.0)
        self._rows, self._products, self._sizes = rows, products, dict(sizes or {})
        decoder = self._unit(self._rng.standard_normal((features, channels)).astype(np.float32))
        centre = (rows.mean(0) * self._scale).astype(np.float32)
        self._weights = {"encoder": decoder.T.copy(), "encoder_bias": np.zeros(features, np.float32), "decoder": decoder, "bias": centre}
        self._moments = {name: (np.zeros_like(each), np.zeros_like(each)) for name, each in self._weights.items()}
        self._fired = np.zeros(features, np.int64)
        self._order, self._at = self._rng.permutation(len(rows)), 0
        self._seconds, self.reports = 0.0, []

    @staticmethod
    def _unit(rows):
        return rows / np.maximum(np.sqrt((rows * rows).sum(1, keepdims=True)), 1e-12)

    @property
    def autoencoder(self) -> SparseAutoencoder:
        """With the scale folded in: encoder·s, decoder/s, bias/s, then the decoder's rows at length 1 again."""
        w, s = self._weights, self._scale
        # x' = decode(encode(s·x))/s; a feature's activation is in the rows' own unit: f/s.
        return SparseAutoencoder(
            w["encoder"].copy(), w["encoder_bias"] / np.float32(s), w["decoder"].copy(), w["bias"] / np.float32(s),
            self.settings.kind, self.settings.k, self.address, dict(self._sizes),
        )  # fmt: skip

    def __str__(self) -> str:
        """What the features explained so far: a bar for each of some reports, evenly chosen, the last among them."""
        seen = self.reports[:: -(-len(self.reports) // PICTURED)] if self.reports else []
        seen = seen if not seen or seen[-1] is self.reports[-1] else [*seen, self.reports[-1]]
        title = f"{self.settings.features:,} features of {self._rows.shape[1]} numbers at {self.address or 'no address'}, step {self.step:,} of {self.settings.steps:,}"
        notes = [f"explains {100 * each.explained:.1f} %, L0 {each.l0:.1f}, dead {100 * each.dead:.1f} %" for each in seen]
        return "\n".join([title, *bars([f"step {each.step:,}" for each in seen], [max(0.0, each.explained) for each in seen], notes)])

    def run(self) -> Iterator[SAEReport]:
        """Train to the end; a report every REPORT_STEPS steps and after the last."""
        return each_now(self.run_async())

    async def run_async(self) -> AsyncIterator[SAEReport]:
        """`run`, for code that awaits; between reports it may be left alone, and goes on from there when asked again."""
        while self.step < self.settings.steps:
            yield await self.some_async(REPORT_STEPS - self.step % REPORT_STEPS)

    async def some_async(self, steps: int = 1) -> SAEReport:
        """Take `steps` steps, fewer where the end is nearer, and tell of the last; for who has other work in between."""
        if self.step >= self.settings.steps:
            raise ConfigError("sae", "steps that are left to take", f"it is at its last, {self.step:,}", "train another with more steps")
        began = time.perf_counter()
        for _ in range(min(steps, self.settings.steps - self.step)):
            last = await self._one()
        self._seconds += time.perf_counter() - began
        report = self._report(*last, self._seconds)
        if not self.reports or report.step - self.reports[-1].step >= REPORT_STEPS or report.step == report.steps:
            self.reports.append(report)
        return report

    def _batch(self):
        size = min(self.settings.batch, len(self._rows))
        if self._at + size > len(self._order):
            self._order, self._at = self._rng.permutation(len(self._rows)), 0
        rows = self._rows[self._order[self._at : self._at + size]]
        self._at += size
        return rows * np.float32(self._scale)

    def _rate(self) -> float:
        done = self.step / self.settings.steps
        return self.settings.learning_rate * min(1.0, (self.step + 1) / (WARMUP * self.settings.steps + 1), max(0.0, (1 - done) / DECAY))

    async def _one(self):
        s, w, x = self.settings, self._weights, self._batch()
        if self._products is None:
            acts, error, found = gradients(w, x, s.kind, s.k, s.l1)
        else:
            acts, error, found = await self._products.gradients(w, x, s.kind, s.k, s.l1)
        if not np.isfinite(error).all():
            raise NonFiniteError("sae", "the error is a number", f"at step {self.step:,} NaN or infinity came", "lower learning_rate or l1")
        # Along a row of the decoder nothing is to be gained, since its length is put back to 1.
        found["decoder"] -= (found["decoder"] * w["decoder"]).sum(1, keepdims=True) * w["decoder"]
        rate = self._rate()
        self.step += 1
        self._adam(found, rate)
        w["decoder"][...] = self._unit(w["decoder"])
        self._fired[(acts > 0).any(0)] = self.step
        if self.step % s.resample_every_steps == 0 and self.step <= LAST_RESAMPLE * s.steps:
            self._resample(x, error)
        return x, acts, error

    def _adam(self, found: dict, rate: float) -> None:
        one, two = 1 / (1 - BETA1**self.step), 1 / (1 - BETA2**self.step)
        for name, gradient in found.items():
            m, v = self._moments[name]
            m += np.float32(1 - BETA1) * (gradient - m)
            v += np.float32(1 - BETA2) * (gradient * gradient - v)
            self._weights[name] -= np.float32(rate * one) * m / (np.sqrt(v * np.float32(two)) + np.float32(EPS))

    def dead(self):
        """Features that fired in none of the last resample_every_steps batches (or since the start), as a mask [F]."""
        return self._fired <= max(0, self.step - self.settings.resample_every_steps)

    def _resample(self, x, error) -> None:
        dead = np.flatnonzero(self.dead())
        if not dead.size:
            return
        power = (error.astype(np.float64) ** 2).sum(1) ** 2
        # Two made of one row would be the same for ever, so a row serves once while there are enough that err.
        again = dead.size > np.count_nonzero(power)
        chosen = self._rng.choice(len(x), dead.size, again, power / power.sum()) if power.sum() else self._rng.integers(0, len(x), dead.size)
        w, alive = self._weights, ~self.dead()
        length = float(np.sqrt((w["encoder"][:, alive] ** 2).sum(0)).mean()) if alive.any() else 1.0
        w["decoder"][dead] = self._unit(-error[chosen])
        w["encoder"][:, dead] = w["decoder"][dead].T * np.float32(length)
        w["encoder_bias"][dead] = 0
        for name, axis in (("encoder", np.s_[:, dead]), ("encoder_bias", dead), ("decoder", dead)):
            for moment in self._moments[name]:
                moment[axis] = 0
        self._fired[dead] = self.step
        self.resampled += dead.size

    def _report(self, x, acts, error, seconds: float) -> SAEReport:
        spread = float(((x - x.mean(0)) ** 2).sum()) or 1.0
        squared = float((error.astype(np.float64) ** 2).sum())
        return SAEReport(
            self.step, self.settings.steps, float((acts > 0).sum(1).mean()), 1 - squared / spread, squared / error.size,
            float(self.dead().mean()), self.resampled, seconds,
        )  # fmt: skip
