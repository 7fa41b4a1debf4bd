"""Supervised tuning: a model learns to answer prompts as the pairs do. The loss is that of the responses (and their end) alone."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.corpus import Corpus
from ..data.pairs import Pairs
from ..train.reports import Report
from ..train.trainer import Live, Trainer
from .running import blocks, each
from .settings import require, tuning_settings


def sft_trainer(model, pairs: Pairs, settings: dict | None = None) -> Trainer:
    """A Trainer of these pairs with configs/tuning.json's settings and changes. With an adapter (pt.lora) it changes that alone, else
    all weights. Raises ConfigError, DataError."""
    require("sft", pairs, Pairs, "a prompt and its response in each row")
    return Trainer(model, pairs, tuning_settings("sft", model, settings))


def sft(model, pairs: Pairs, *, base: Corpus | None = None, live: Live | None = None, **settings) -> Iterator[Report]:
    """Tune `model` on prompt/response pairs; settings as in configs/tuning.json (steps=200, learning_rate=…). Yields reports.

    They are those of training: StepReport (loss of the responses in nats), EvalReport (of the pairs held out), and last a
    StoppedReport. With `base`, the text the model was trained on, a ForgettingReport comes first and again at the end. To go on with a
    saved run, give its trainer to tune.running.blocks. Raises ConfigError, DataError.
    """
    return each(blocks(sft_trainer(model, pairs, settings), base, live))
