"""Passages of a corpus to ask a model about: where they stand, spread over a part, and what the model writes after their beginnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from ..data.corpus import Corpus
from ..errors import NonFiniteError
from ..ops.lazy import np
from ..ops.normal import GOLDEN, mix
from .matches import Span

TRIES = 16
"""Places tried in a stretch before it is left out."""


@dataclass(frozen=True)
class Probe:
    """One prefix and what a model made of it. Places count bytes of the corpus from its start.

    group: "training" or "held out". at, continues_at: where the prefix and its true continuation begin. run_tokens: the longest run of
    tokens that equal the truth's at the same places; exact: all do. longest_bytes: the longest run of the output that stands anywhere in the
    training text, at longest_at. spans: all that are long enough to be shown. nats: of the true continuation under the model.
    """

    group: str
    at: int
    continues_at: int
    prefix: str
    truth: str
    output: str
    run_tokens: int
    exact: bool
    longest_bytes: int
    longest_at: int
    spans: tuple[Span, ...]
    nats: float
    truth_bytes: int
    output_bytes: bytes = field(repr=False)

    def pieces(self) -> list[tuple[str, Span | None]]:
        """The output cut for highlighting: (text, the span that it is or None), in order."""
        data, found, begin = self.output_bytes, [], 0
        for span in (*self.spans, None):
            end = len(data) if span is None else span.begin
            if end > begin:
                found.append((data[begin:end].decode("utf-8", "replace"), None))
            if span is not None:
                found.append((data[span.begin : span.end].decode("utf-8", "replace"), span))
                begin = span.end
        return found

    def to_dict(self) -> dict:
        """JSON. Spans count bytes of the output; `pieces` is the output cut at them, each with its span's number or null."""
        facts = {name: value for name, value in vars(self).items() if name != "output_bytes"}
        facts["spans"] = [asdict(span) for span in self.spans]
        facts["pieces"] = [[text, None if span is None else self.spans.index(span)] for text, span in self.pieces()]
        return facts


class Part:
    """The training or the validation part as token ids, with the byte of the corpus that each begins at."""

    def __init__(self, corpus: Corpus, group: str) -> None:
        self.group, self.tokenizer = group, corpus.tokenizer
        self.ids = corpus.train if group == "training" else corpus.validation
        self._first = 0 if group == "training" else corpus.split
        self._begins = None
        if corpus.tokenizer.name != "bytes":
            lengths = np.array([len(token) for token in corpus.tokenizer.tokens], np.int64)
            self._begins = np.concatenate([[0], np.cumsum(lengths[np.asarray(self.ids)])])

    def byte(self, index: int) -> int:
        """Where the token of that number begins in the corpus."""
        return self._first + (index if self._begins is None else int(self._begins[index]))

    def places(self, wanted: int, window: int, seed: int, refused: Callable[[int], bool]) -> Iterator[int]:
        """Starts of at most `wanted` windows: the part is cut into as many stretches, and one place drawn in each, so that no two overlap.
        A stretch in which every place tried is refused gives none."""
        count = min(wanted, len(self.ids) // window)
        key = mix(seed * GOLDEN + (1 if self.group == "training" else 2))
        for number in range(count):
            low, high = len(self.ids) * number // count, len(self.ids) * (number + 1) // count - window
            for attempt in range(TRIES):
                start = low + mix(key + GOLDEN * (number * TRIES + attempt + 1)) % (high - low + 1)
                if not refused(start):
                    yield start
                    break


def to_bytes(tokenizer, ids) -> bytes:
    """The bytes that tokens stand for."""
    return bytes(ids) if tokenizer.name == "bytes" else tokenizer.decode_bytes(ids)


def longest_run(written: list[int], truth: list[int]) -> int:
    """Tokens of the longest stretch in which two texts are alike at the same places."""
    best = run = 0
    for one, other in zip(written, truth, strict=True):
        run = run + 1 if one == other else 0
        best = max(best, run)
    return best


async def continued(model, text: list[int], truth: list[int]) -> tuple[list[int], float]:
    """(the model's greedy continuation of `text`, as long as `truth`; the nats that it gives `truth`).

    The truth serves as a draft: one pass tells what the model would write after each beginning of it, and that holds up to the first
    token that differs. A model that knows the truth needs no other pass.
    """
    rows = [_scores(row, model) for row in await model.logits_of_async([*text, *truth[:-1]], len(truth))]
    nats = math.fsum(_nats(row, token) for row, token in zip(rows, truth, strict=True))
    written: list[int] = []
    for row, token in zip(rows, truth, strict=True):
        written.append(int(row.argmax()))
        if written[-1] != token:
            break
    while len(written) < len(truth):
        written.append(int(_scores(await model.logits_async([*text, *written]), model).argmax()))
    return written, nats


def _scores(logits, model):
    scores = np.asarray(logits)[: model.tokenizer.vocabulary].astype(np.float64)
    if not np.isfinite(scores).all():
        raise NonFiniteError("memorise", "logits are numbers", "NaN or infinity came", "the weights are broken; open an earlier save")
    return scores


def _nats(scores, token: int) -> float:
    top = scores.max()
    return float(np.log(np.exp(scores - top).sum()) + top - scores[token])
