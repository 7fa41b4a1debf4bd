"""A sparse autoencoder and the model it reads: activations to train on, and what its features say."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..errors import DataError
from ..ops.lazy import np
from ..waiting import now
from .checks import place_read, require_rows, text_tokens, whole
from .origin import sizes_of
from .picture import label, shade
from .running import Run, labels_of
from .sae import SparseAutoencoder
from .sae_engine import Coder, Products
from .sae_train import SAESettings, SAETrainer
from .weights import weight_async

ROWS, BROWSED_TOKENS = 65_536, 32_768
RARE = (0.0003, 0.02)
"""Shares of tokens between which a feature is taken to mean something of its own; features outside come last."""


def windows(tokens, context: int, count: int, seed: int):
    """`count` tokens or a few more as windows [N,T] int32, drawn without overlap while the text has enough of them."""
    found, count, seed = text_tokens("sae", tokens), whole("sae", "a number of tokens", count, 1), whole("sae", "seed", seed, 0)
    if len(found) < context:
        raise DataError("sae", f"a text of at least {context} tokens (the context)", f"{len(found)} came", "use a longer text")
    there, wanted = len(found) // context, -(-count // context)
    order = np.random.default_rng(seed).permutation(there)[:wanted]
    return np.stack([found[at * context : (at + 1) * context] for at in order]).astype(np.int32)


def batches(model, rows) -> list:
    """Rows [N,T] in the model's batches."""
    size = max(1, model.config.batch)
    return [rows[first : first + size] for first in range(0, len(rows), size)]


async def activations_async(model, tokens, address: str, count: int = ROWS, seed: int = 0):
    """Rows [N,C] float32 of an address over windows of a text's tokens, about `count` of them. Raises ConfigError, DataError."""
    rows = windows(tokens, model.config.context, count, seed)
    return np.concatenate([each async for each in reading_async(model, rows, address)]).reshape(rows.size, -1)


async def reading_async(model, rows, address: str):
    """An address over windows [N,T], batch by batch: arrays [B,T,C] float32, for who has other work in between. Raises ConfigError."""
    place = require_rows(model, address)
    for each in batches(model, rows):
        yield (await Run(model, each).read([place]))[address].astype(np.float32)


async def sae_trainer_async(model, tokens, address: str, rows: int = ROWS, **settings) -> SAETrainer:
    """`sae_trainer`, for code that awaits."""
    made = SAESettings.of(**settings)
    return trainer_on(model, await activations_async(model, tokens, address, rows, made.seed), address, made)


def trainer_on(model, found, address: str, made: SAESettings, machine=None) -> SAETrainer:
    """A trainer on rows [N,C] read from the model, its products on `machine` or the model's."""
    return SAETrainer(found, made, address, Products(model, found.shape[1], made.features, min(made.batch, len(found)), machine), sizes_of(model.config))


def sae_trainer(model, tokens, address: str, rows: int = ROWS, **settings) -> SAETrainer:
    """Read activations at `address` over a text's tokens and get ready to train a sparse autoencoder on them.

        trainer = sae_trainer(model, corpus.train, "blocks.2.resid_post", k=16)
        for report in trainer.run(): print(report)        # the products on the model's engine
        print(study.recovered(model, corpus.validation, trainer.autoencoder))

    Raises ConfigError, DataError.
    """
    return now(sae_trainer_async(model, tokens, address, rows, **settings))


@dataclass(frozen=True)
class Context:
    """Where a feature fired: the tokens around, as a person reads them, its activation at each, and which of them it is about."""

    labels: list[str]
    activations: list[float]
    at: int


@dataclass(frozen=True)
class Feature:
    """One feature: the share of tokens it fires at, the most it fires, where it does so most, and the tokens its direction promotes
    (and holds back), with what a direction of length 1 adds to their logits through ln_f, which takes its mean away, at a scale of 1."""

    index: int
    density: float
    most: float
    contexts: list[Context]
    promotes: list[tuple[str, float]]
    suppresses: list[tuple[str, float]]

    def __str__(self) -> str:
        lines = [f"feature {self.index}: at {100 * self.density:.2f} % of tokens, {self.most:.2f} at most"]
        lines.append("promotes " + " ".join(label(name) for name, _ in self.promotes) + "; holds back " + " ".join(label(name) for name, _ in self.suppresses))
        for context in self.contexts:
            lines.append("  " + "".join(label(each) for each in context.labels))
            lines.append("  " + "".join(shade(each, 0.0, self.most) * len(label(name)) for name, each in zip(context.labels, context.activations)).rstrip())
        return "\n".join(lines)

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)


async def features_async(
    model, tokens, autoencoder: SparseAutoencoder, indices=None, *, count: int = BROWSED_TOKENS, contexts: int = 5, around: int = 12, top: int = 8, seed: int = 2
) -> list[Feature]:
    """`features`, for code that awaits."""
    place, contexts, top = place_read(model, autoencoder), whole("sae", "contexts", contexts, 1), whole("sae", "top", top, 1)
    around = whole("sae", "around", around, 0)
    rows = windows(tokens, model.config.context, count, seed)
    engine = Coder(model, autoencoder)
    acts = np.concatenate([await engine.encode((await Run(model, each).read([place]))[place.address]) for each in batches(model, rows)])
    density, most = (acts > 0).mean((0, 1)), acts.max((0, 1))
    if indices is None:
        rare = (density >= RARE[0]) & (density <= RARE[1])
        indices = np.argsort(-np.where(rare, most, most - most.max() - 1), kind="stable")[:20]
    promoted = None
    if place.dims == "TC":
        decoder = autoencoder.decoder - autoencoder.decoder.mean(1, keepdims=True)  # ln_f takes the mean away
        promoted = decoder @ ((await weight_async(model, model.config.head)) * await weight_async(model, "ln_f.weight")).T
    known = model.tokenizer.vocabulary
    found = []
    for index in (whole("sae", "a feature", each, 0, autoencoder.features - 1) for each in indices):
        own = acts[..., index]
        where = []
        for row in np.argsort(-own.max(1), kind="stable")[:contexts]:
            at = int(own[row].argmax())
            if own[row, at] <= 0:
                break
            first, last = max(0, at - around), min(rows.shape[1], at + around // 2)
            where.append(Context(labels_of(model, rows[row, first:last]), [float(each) for each in own[row, first:last]], at - first))
        ends = ([], [])
        if promoted is not None:
            order = np.argsort(-promoted[index, :known], kind="stable")
            ends = tuple(list(zip(labels_of(model, part), (float(each) for each in promoted[index, part]))) for part in (order[:top], order[::-1][:top]))
        found.append(Feature(index, float(density[index]), float(most[index]), where, *ends))
    return found


def features(model, tokens, autoencoder: SparseAutoencoder, indices=None, **how) -> list[Feature]:
    """What features respond to, over about `count` of a text's tokens: `contexts` windows each, from `around` tokens before where it
    fires most, and the `top` tokens it promotes. `indices` default to the twenty that fire most strongly
    among those that fire seldom. Raises ConfigError, DataError.
    """
    return now(features_async(model, tokens, autoencoder, indices, **how))
