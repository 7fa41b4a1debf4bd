"""The check for reciting as a Session does it: some probes a turn, of the base, the base with examples, and the adapter.

Events: memorise.progress, memorised (where it is `stopped` without a result its `reason` is "stopped" as asked, "interrupted" where the
model was needed for something else, "failed").
"""

from __future__ import annotations

import time

from ..data.corpus import Corpus
from ..errors import ConfigError, DataError, DeviceError
from ..study.memorise import memorise_async
from ..study.report import Memorisation, SubjectReport

TURN_SECONDS = 0.05
MOST_SPANS = 12
"""Copied spans that are told of each subject."""
CONTEXT_CHARACTERS = 160
WHICH = {"training": "seen", "held_out": "unseen"}


class Memorising:
    """The check in progress, if any."""

    def __init__(self, session) -> None:
        self._session = session
        self._steps = None
        self._request: int | None = None
        self._told = 0.0

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"memorise.start": self._start, "memorise.stop": self._stop}

    async def _start(self, identity, of: str = "", prefixes: int = 20, prefix_tokens: int | None = None, tokens: int | None = None) -> None:
        """memorise.start: of "adapter", the text that the adapter on was tuned with, or "base", the text the base was trained on; without
        one, the adapter's where one is on and its text is here."""
        session = self._session
        session.adapters.require_rest("memorise")
        model, chosen = session.model, session.adapters.chosen
        corpus = await self._text(of)
        if corpus is None:
            raise DataError("memorise", "the text that it learned from", "it is not here any more", "check it on another text, or tune again")
        session.stop_writing()
        off = {} if model.lora is None else {"strength": 0.0}
        subjects = {"Base": (model, off), "Base, shown examples": (model, {"shots": True} | off)}
        if chosen is not None:
            name = next((row["name"] for row in await session.adapters.rows() if row["adapter_id"] == chosen), "adapter")
            subjects[f"With “{name}”"] = (model, {"strength": session.adapters.strength})
        self._steps = memorise_async(subjects, corpus, prefixes=prefixes, prefix_tokens=prefix_tokens, continuation_tokens=tokens)
        self._request, self._told = identity, 0.0

    async def _text(self, of: str) -> Corpus | None:
        if of not in ("", "adapter", "base"):
            raise ConfigError("memorise", "of is adapter or base", f"{of!r} came", "choose one of them")
        session = self._session
        if of != "base" and session.adapters.chosen is not None:
            found = await session.adapters.text(session.adapters.chosen)
            if found is not None or of == "adapter":
                return found
        return await session.tuning.base_text()

    async def _stop(self, identity) -> None:
        """memorise.stop."""
        self.cancel("stopped")

    def cancel(self, reason: str = "interrupted") -> None:
        """End it without a result; nothing where none goes on."""
        if self._steps is not None:
            self._steps = None
            self._session.emit("memorised", reply_to=self._request, stopped=True, reason=reason)

    async def turn(self) -> bool:
        """Ask for a short while; False when there is nothing to check."""
        if self._steps is None:
            return False
        began = time.perf_counter()
        try:
            while self._steps is not None and time.perf_counter() - began < TURN_SECONDS:
                item = await anext(self._steps)
                if isinstance(item, Memorisation):
                    found, self._steps = facts(item), None
                    self._session.emit("memorised", reply_to=self._request, **found)
        except DeviceError:
            self.cancel("failed")
            raise  # the session looks for another engine
        except Exception as error:  # noqa: BLE001 - told to the person
            self.cancel("failed")
            self._session.fail(error, self._request)
            return True
        if self._steps is not None and time.perf_counter() - self._told > 0.1:
            self._told = time.perf_counter()
            self._session.emit("memorise.progress", done=item.done, total=item.total, what=item.what)
        return True


def facts(report: Memorisation) -> dict:
    """A check as the page shows it."""
    buckets = [f"{low}" if low == high else f"{low}–{high}" for low, high in report.buckets]
    return {
        "unit": "bytes" if report.tokenizer == "bytes" else "tokens",
        "text": report.corpus,
        "verdict": report.subjects[-1].verdict.sentence,
        "prefix_tokens": report.prefix_tokens,
        "continuation_tokens": report.continuation_tokens,
        "buckets": buckets,
        "models": [_model(subject, report) for subject in report.subjects],
        "spans": [span for subject in report.subjects for span in _spans(subject, report)],
    }


def _model(subject: SubjectReport, report: Memorisation) -> dict:
    groups = []
    for part, which in WHICH.items():
        group = getattr(subject, "training" if part == "training" else "held_out")
        groups.append({
            "which": which, "count": group.count, "longest": max(group.runs), "mean": group.mean_run, "exact_rate": group.exact_rate,
            "bits_per_byte": group.bits_per_byte, "histogram": group.histogram(report.buckets),
        })  # fmt: skip
    return {"name": subject.name, "verdict": subject.verdict.sentence, "kind": subject.verdict.kind, "groups": groups}


def _spans(subject: SubjectReport, report: Memorisation) -> list[dict]:
    """The longest copies of a subject, each once, with what stood around it."""
    found = []
    for probe in subject.copied()[:MOST_SPANS]:
        pieces = probe.pieces()
        number = max((n for n, (_, span) in enumerate(pieces) if span is not None), key=lambda n: pieces[n][1].end - pieces[n][1].begin)
        text, span = pieces[number]
        found.append({
            "model": subject.name, "at": span.at, "line": span.line, "places": span.occurrences, "length_bytes": span.end - span.begin,
            "text": report.corpus, "seen": probe.group == "training", "prefix": probe.prefix[-CONTEXT_CHARACTERS:],
            "before": "".join(piece for piece, _ in pieces[:number]), "copied": text, "after": "".join(piece for piece, _ in pieces[number + 1 :]),
        })  # fmt: skip
    return found
