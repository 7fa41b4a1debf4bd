"""What the gate measures of a model: held-out corrections, the base's own text, fixed passages of it, and whether it recites."""

from __future__ import annotations

import hashlib
import math
import statistics
from dataclasses import dataclass

from ...data.batches import tokens_to_i32
from ...data.corpus import Corpus
from ...data.pair_rows import IGNORED, in_batches
from ...data.pairs import Pairs, Preferences
from ...errors import DataError
from ...ops.normal import GOLDEN, mix
from ...study.matches import Matches
from ...study.memorise import LONGEST_CONTINUATION, LONGEST_PREFIX, memorise_async
from ...study.report import Memorisation
from ..forgetting import text_loss_async


@dataclass(frozen=True)
class Known:
    """A model beside the base's text: its loss there (nats a token, and a byte), that of each fixed passage, and what it recites
    (None where the text is too short to tell): the share of beginnings from its training text that come back word for word, less that of
    beginnings it never saw; and the mean length in bytes of the longest run in what it writes that stands in the training text, and in the answers."""

    base_nats: float
    base_nats_per_byte: float
    passages_nats: tuple[float, ...]
    recital: float | None
    copied_bytes: float | None
    answers_bytes: float | None


class Yardstick:
    """The base's text as the gate measures it: the same tokens, passages and beginnings for every version.

    answers: what the candidate learns; reciting them where nobody asked counts as reciting the training text does. Raises DataError where
    the text is too short for the model.
    """

    def __init__(self, corpus: Corpus, config, tokenizer, answers: list[str], settings: dict) -> None:
        self.settings, self.config = settings, config
        self.corpus = corpus if getattr(corpus, "tokenizer", None) is tokenizer else corpus.tokens(tokenizer)
        self.corpus.check(config)
        self.passages = self._passages()
        self.sha256 = hashlib.sha256(b"".join(tokens for tokens, _ in self.passages)).hexdigest()
        self._excerpt = _excerpt(corpus, settings["memorise_bytes"]).tokens(tokenizer)
        self._matches, self._answers = Matches(self._excerpt.data[: self._excerpt.split]), Matches("\n\n".join(answers).encode("utf-8"))
        self.note = ""

    def _passages(self) -> list[tuple[bytes, bytes]]:
        """(tokens, targets), each [T] i32, of windows of the held-out text at places that its hash draws: the same for the same text."""
        held, context = self.corpus.validation, self.config.context
        key, found = int(self.corpus.sha256[:15], 16), {}
        for number in range(8 * self.settings["probe_passages"]):
            start = mix(key + GOLDEN * (number + 1)) % (len(held) - context)
            found.setdefault(start // context, start)  # at most one begins in each stretch of a window's length
            if len(found) == self.settings["probe_passages"]:
                break
        return [(tokens_to_i32(held[at : at + context]), tokens_to_i32(held[at + 1 : at + context + 1])) for at in found.values()]

    async def known(self, model) -> Known:
        """Measure a model as it is."""
        base = await text_loss_async(model, self.corpus, self.settings["base_tokens"])
        recital = copied = learnt = None
        try:
            check = await self._memorised(model)
        except DataError as error:
            self.note = f"Whether it recites was not measured. {error.message}"
        else:
            subject = check.subjects[0]
            recital = max(0.0, subject.training.exact_rate - subject.held_out.exact_rate)
            copied = statistics.fmean([*subject.training.longest_bytes, *subject.held_out.longest_bytes])
            list(self._answers.build())
            learnt = statistics.fmean(max(self._answers.lengths(probe.output_bytes)) for probe in subject.probes)
        return Known(base.loss_nats, base.bits_per_byte * math.log(2), tuple(await self._losses(model)), recital, copied, learnt)

    async def _losses(self, model) -> list[float]:
        context, batch, found = self.config.context, self.config.batch, []
        for first in range(0, len(self.passages), batch):
            part = self.passages[first : first + batch]
            missing = batch - len(part)
            tokens = b"".join(tokens for tokens, _ in part) + bytes(4 * context * missing)
            targets = b"".join(targets for _, targets in part) + IGNORED * (context * missing)
            losses = await model.losses_async(tokens, targets)
            found += [math.fsum(losses[at * context : (at + 1) * context]) / context for at in range(len(part))]
        return found

    async def _memorised(self, model) -> Memorisation:
        context = self.config.context  # continued further than the check does by itself: what is recited shows in long runs
        how = {"prefix_tokens": max(1, min(context // 4, LONGEST_PREFIX)), "continuation_tokens": max(1, min(context // 2, LONGEST_CONTINUATION))}
        how |= {"prefixes": self.settings["memorise_prefixes"], "matches": self._matches}
        async for item in memorise_async(model, self._excerpt, **how):
            if isinstance(item, Memorisation):
                return item
        raise AssertionError("a check ends with its report")


def _excerpt(corpus: Corpus, nbytes: int) -> Corpus:
    """The first bytes of the training and of the held-out part, at most so many of both, cut at line breaks where there are any."""
    train, held = bytes(corpus.data[: corpus.split]), bytes(corpus.data[corpus.split :])
    if len(train) + len(held) <= nbytes:
        return _plain(corpus.name, train, held)
    share = max(1, nbytes // 2)
    return _plain(corpus.name, _cut(train, max(share, nbytes - len(held))), _cut(held, max(share, nbytes - len(train))))


def _plain(name: str, train: bytes, held: bytes) -> Corpus:
    made = Corpus(name, train + held)
    made.split = len(train)
    return made


def _cut(data: bytes, nbytes: int) -> bytes:
    if len(data) <= nbytes:
        return data
    end = data.rfind(b"\n", nbytes // 2, nbytes) + 1 or nbytes
    while end < len(data) and data[end] & 0xC0 == 0x80:  # not inside a character
        end -= 1
    return data[:end]


@dataclass(frozen=True)
class RowLoss:
    """An answer's loss: nats of all its tokens with the end, their number, and the bytes they stand for."""

    nats: float
    tokens: int
    nbytes: int


async def row_losses(model, pairs: Pairs) -> list[RowLoss]:
    """The loss of each answer under a model as it is."""
    context = model.config.context
    part = pairs.tokens(model.tokenizer).parts(context)[0]
    losses, found = [], []
    for tokens, targets in in_batches(part, list(range(len(part.rows))), context, model.config.batch):
        losses += list(await model.losses_async(tokens, targets))
    for place, (index, (row,)) in enumerate(zip(part.indices, part.rows)):
        nbytes = len(pairs.template.answer(pairs.rows[index][1]).encode("utf-8"))
        found.append(RowLoss(math.fsum(losses[place * context : (place + 1) * context]), row.counted, nbytes))
    return found


async def preference_nats(model, preferences: Preferences) -> list[tuple[float, float]]:
    """(log p of the chosen, of the rejected answer) in nats under a model as it is."""
    context = model.config.context
    part, sums = preferences.tokens(model.tokenizer).parts(context)[0], []
    for tokens, targets in in_batches(part, list(range(len(part.rows))), context, model.config.batch):
        losses = await model.losses_async(tokens, targets)
        sums += [-math.fsum(losses[at : at + context]) for at in range(0, len(losses), context)]
    return list(zip(sums[0 : 2 * len(part.rows) : 2], sums[1 : 2 * len(part.rows) : 2]))


def mean_nats(rows: list[RowLoss]) -> float:
    """Nats a token."""
    return math.fsum(row.nats for row in rows) / sum(row.tokens for row in rows)


def nats_per_byte(rows: list[RowLoss]) -> float:
    """Nats a byte, which compares over tokenizers."""
    return math.fsum(row.nats for row in rows) / sum(row.nbytes for row in rows)


def gains(before: list[tuple[float, float]], after: list[tuple[float, float]]) -> float:
    """The share of preferences whose chosen answer gained more than the rejected one."""
    return statistics.fmean((a[0] - b[0]) - (a[1] - b[1]) > 0 for b, a in zip(before, after, strict=True))
