"""What a memorisation check found: runs of each group and subject, their distribution, the verdict, as JSON."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field

from .passages import Probe
from .verdict import Verdict

GROUPS = ("training", "held out")


@dataclass(frozen=True)
class Group:
    """The probes of one group. runs: tokens of each probe's longest run; exact: how many continuations came back whole; longest_bytes: each
    output's longest run that stands anywhere in the training text; bits_per_byte: what the model needs for the true continuations."""

    name: str
    runs: tuple[int, ...]
    exact: int
    longest_bytes: tuple[int, ...]
    bits_per_byte: float

    @property
    def count(self) -> int:
        """Prefixes asked."""
        return len(self.runs)

    @property
    def exact_rate(self) -> float:
        """Share of continuations that came back whole, 0 to 1."""
        return self.exact / len(self.runs)

    @property
    def mean_run(self) -> float:
        """Tokens."""
        return statistics.fmean(self.runs)

    def histogram(self, buckets: list[tuple[int, int]]) -> list[int]:
        """Runs in each bucket (from, to; both belong to it)."""
        return [sum(low <= run <= high for run in self.runs) for low, high in buckets]

    def to_dict(self, buckets: list[tuple[int, int]]) -> dict:
        """JSON."""
        facts = {"count": self.count, "exact_rate": self.exact_rate, "mean_run_tokens": self.mean_run, "longest_run_tokens": max(self.runs)}
        facts |= {"median_longest_bytes": statistics.median(self.longest_bytes), "histogram": self.histogram(buckets)}
        return asdict(self) | facts


@dataclass(frozen=True)
class SubjectReport:
    """One subject's two groups, verdict and probes. shots: tokens of training text that stood before each prefix."""

    name: str
    shots: int
    strength: float | None
    training: Group
    held_out: Group
    verdict: Verdict
    probes: tuple[Probe, ...] = field(repr=False)

    def copied(self) -> list[Probe]:
        """Probes with spans, those with the longest first."""
        found = [probe for probe in self.probes if probe.spans]
        return sorted(found, key=lambda probe: -max(span.end - span.begin for span in probe.spans))


@dataclass(frozen=True)
class Memorisation:
    """A whole check. span_bytes: from how many bytes on copied runs are listed. chance_bytes: how long a run each held-out continuation itself
    shares with the training text, sorted: what any text of this kind does."""

    subjects: tuple[SubjectReport, ...]
    corpus: str
    corpus_sha256: str
    training_bytes: int
    tokenizer: str
    prefix_tokens: int
    continuation_tokens: int
    span_bytes: int
    chance_bytes: tuple[int, ...]
    seed: int

    def __getitem__(self, name: str) -> SubjectReport:
        return next(subject for subject in self.subjects if subject.name == name)

    @property
    def buckets(self) -> list[tuple[int, int]]:
        """Lengths of runs for a histogram, in tokens: 0, 1, 2 to 3, 4 to 7 …, and the whole continuation by itself."""
        length, found, low = self.continuation_tokens, [(0, 0)], 1
        while low < length:
            found.append((low, min(2 * low, length) - 1))
            low *= 2
        return [*found, (length, length)]

    def to_dict(self, probes: bool = True) -> dict:
        """JSON; without `probes` only the numbers."""
        facts = {name: value for name, value in vars(self).items() if name != "subjects"}
        facts["chance_bytes"] = list(self.chance_bytes)
        return facts | {"buckets": [list(bucket) for bucket in self.buckets], "subjects": [self._subject(each, probes) for each in self.subjects]}

    def _subject(self, subject: SubjectReport, probes: bool) -> dict:
        groups = {"training": subject.training.to_dict(self.buckets), "held_out": subject.held_out.to_dict(self.buckets)}
        facts = {"name": subject.name, "shots": subject.shots, "strength": subject.strength, **groups, "verdict": asdict(subject.verdict)}
        return facts | ({"probes": [probe.to_dict() for probe in subject.probes]} if probes else {})
