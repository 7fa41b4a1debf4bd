"""What a model forgets of the text it knew: its loss on that text's validation part, before tuning and after."""

from __future__ import annotations

from dataclasses import dataclass

from ..configs import load
from ..data.bits import bits_per_byte
from ..data.corpus import Corpus
from ..train.reports import Report
from ..waiting import now


@dataclass(frozen=True)
class TextLoss:
    """The mean loss of a model on the validation part of a text: nats a token, and bits a byte, which compares over tokenizers."""

    name: str
    loss_nats: float
    bits_per_byte: float


@dataclass(frozen=True)
class ForgettingReport(Report):
    """The base's text before tuning and now. `after_…` are None in the first report, which comes before the first step.

    Loss in nats a token and bits a byte of the text's validation part; what rose was forgotten.
    """

    name: str
    before_nats: float
    before_bits_per_byte: float
    after_nats: float | None = None
    after_bits_per_byte: float | None = None

    @property
    def forgotten_nats(self) -> float | None:
        """How much the loss rose; None in the first report."""
        return None if self.after_nats is None else self.after_nats - self.before_nats

    def to_dict(self) -> dict:
        """JSON, with forgotten_nats."""
        return super().to_dict() | {"forgotten_nats": self.forgotten_nats}


def _as_read_by(model, corpus: Corpus) -> Corpus:
    return corpus if getattr(corpus, "tokenizer", None) is model.tokenizer else corpus.tokens(model.tokenizer)


async def text_loss_async(model, corpus: Corpus, tokens: int | None = None) -> TextLoss:
    """The model's loss on a text it may know, over about `tokens` (default as in configs/tuning.json) of its validation part.

    The same windows every time: two calls differ by the weights alone. Raises DataError where the part is shorter than a window.
    """
    count, config = tokens or load("tuning")["base_tokens"], model.config
    corpus = _as_read_by(model, corpus)
    corpus.check(config)
    loss = await model.evaluate_batches_async(corpus.evaluation(config.context, config.batch, count))
    return TextLoss(corpus.name, loss, bits_per_byte(loss, corpus.evaluated_bytes_per_token(config.context, count)))


def text_loss(model, corpus: Corpus, tokens: int | None = None) -> TextLoss:
    """`text_loss_async`, from plain code."""
    return now(text_loss_async(model, corpus, tokens))


class Forgetting:
    """Measures a text at the beginning of a tuning run and whenever it is asked again."""

    def __init__(self, model, corpus: Corpus, before: TextLoss) -> None:
        self.model, self.corpus, self.before = model, corpus, before

    @classmethod
    async def begin(cls, model, corpus: Corpus, before: TextLoss | None = None) -> Forgetting:
        """Measure now, before the first step; `before` is given where a run goes on that measured then."""
        corpus = _as_read_by(model, corpus)
        return cls(model, corpus, before or await text_loss_async(model, corpus))

    def first(self, step: int) -> ForgettingReport:
        """What was measured at the beginning."""
        return ForgettingReport(step, self.before.name, self.before.loss_nats, self.before.bits_per_byte)

    async def report(self, step: int) -> ForgettingReport:
        """Measure again."""
        after, before = await text_loss_async(self.model, self.corpus), self.before
        return ForgettingReport(step, before.name, before.loss_nats, before.bits_per_byte, after.loss_nats, after.bits_per_byte)
