"""Does a model recite its training text? Its greedy continuations of training and of held-out prefixes, beside the true ones.

As in Carlini et al. 2021 (arXiv 2012.07805), with held-out prefixes as the measure of chance. Several subjects may be asked the same
prefixes: a base, the same with some training text before each prefix (prompt only), the same with an adapter.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from ..data.bits import bits_per_byte
from ..data.corpus import Corpus
from ..errors import ConfigError, DataError
from ..ops.normal import GOLDEN, mix
from ..waiting import each_now
from .matches import REACH, Matches
from .passages import Part, Probe, continued, longest_run, to_bytes
from .report import GROUPS, Group, Memorisation, SubjectReport
from .verdict import LEAST_PREFIXES, judge

MOST_PREFIXES = 1000
LONGEST_PREFIX, LONGEST_CONTINUATION = 128, 64
"""Defaults in tokens: half and a quarter of the context, up to these."""
LEAST_SPAN_BYTES, MOST_SPAN_BYTES = 8, 64
SPAN_SHARE = 0.95


@dataclass(frozen=True)
class Subject:
    """A model to ask. shots: tokens of training text before each prefix; strength: of its adapter while it is asked, None leaves it."""

    name: str
    model: object
    shots: int = 0
    strength: float | None = None


@dataclass(frozen=True)
class Progress:
    """How far a check is: `what` is done now, `done` of `total` steps in all; the probe that was just made, if one was, of `subject`."""

    what: str
    done: int
    total: int
    subject: str = ""
    probe: Probe | None = None


def memorise(subjects, corpus: Corpus, *, progress: Callable[[Progress], None] | None = None, **how) -> Memorisation:
    """Check whether models recite `corpus`, split as they were trained on it. See memorise_async."""
    for item in each_now(memorise_async(subjects, corpus, **how)):
        if isinstance(item, Memorisation):
            return item
        if progress is not None:
            progress(item)
    raise AssertionError("a check ends with its report")


def memorise_async(
    subjects, corpus: Corpus, *, prefixes: int = 64, prefix_tokens: int | None = None, continuation_tokens: int | None = None,
    seed: int = 42, span_bytes: int | None = None, matches: Matches | None = None,
) -> AsyncIterator[Progress | Memorisation]:  # fmt: skip
    """The check for code that awaits: Progress after each step, and the Memorisation at the end.

    subjects: a GPT, or a mapping from names to a GPT or (GPT, options): {"shots": tokens of training text before each prefix, True for as
    many as fit, "strength": the adapter's}. `prefixes` of each part, at places that `seed` gives; half of the context long, and continued by
    a quarter of it, up to 128 and 64 tokens. span_bytes: from how many bytes on a copied run is listed; by default those longer than 95 % of the runs
    that the held-out text itself shares with the training text (8 to 64). `matches` are of this training part, where they are at hand.
    Raises ConfigError, and DataError where a part has fewer than 8 passages, while it runs also NonFiniteError.
    """
    asked = _subjects(subjects)
    _whole("prefixes", prefixes, LEAST_PREFIXES, MOST_PREFIXES)
    _whole("seed", seed, 0, (1 << 63) - 1)
    context = min(subject.model.config.context for subject in asked)
    prefix = min(context // 2, LONGEST_PREFIX) if prefix_tokens is None else prefix_tokens
    length = max(1, min(context // 4, LONGEST_CONTINUATION)) if continuation_tokens is None else continuation_tokens
    _whole("prefix_tokens", prefix, 1, context)
    _whole("continuation_tokens", length, 1, context)
    if span_bytes is not None:
        _whole("span_bytes", span_bytes, 1, REACH)
    asked = [_fitting(subject, prefix + length) for subject in asked]
    return _run(asked, _tokens(asked, corpus), prefixes, prefix, length, seed, span_bytes, matches)


async def _run(
    asked: list[Subject], corpus: Corpus, prefixes: int, prefix: int, length: int, seed: int, span_bytes: int | None, matches: Matches | None
) -> AsyncIterator[Progress | Memorisation]:  # fmt: skip
    matches = matches or Matches(corpus.data[: corpus.split])
    total = blocks = 0
    for done, blocks in matches.build():
        yield Progress("Indexing the training text", done, blocks + 2 * prefixes * len(asked))
    parts = {group: Part(corpus, group) for group in GROUPS}
    shots = max(subject.shots for subject in asked)
    train = parts["training"].ids
    if len(train) <= shots:
        raise _short("training", 0, prefix + length)
    first = mix(seed * GOLDEN + 3) % (len(train) - shots)  # the training text that is shown before prefixes
    passages = _passages(parts, corpus, matches, prefixes, prefix + length, seed, range(first, first + shots))
    truths = [_truth(parts["held out"], start + prefix, length) for start in passages["held out"]]
    chance = sorted(max(matches.lengths(truth)) for truth in truths)
    least = span_bytes or max(LEAST_SPAN_BYTES, min(MOST_SPAN_BYTES, 1 + chance[math.ceil(SPAN_SHARE * len(chance)) - 1]))
    done, total, reports = blocks, blocks + len(asked) * sum(map(len, passages.values())), []
    for subject in asked:
        probes = []
        head = list(train[first : first + subject.shots])
        for group, starts in passages.items():
            for start in starts:
                probes.append(await _probe(subject, head, parts[group], start, prefix, length, matches, least))
                done += 1
                yield Progress(f"{subject.name}, {group}", done, total, subject.name, probes[-1])
        groups = [_group(group, [probe for probe in probes if probe.group == group]) for group in GROUPS]
        verdict = judge(groups[0].runs, groups[1].runs, length, seed)
        reports.append(SubjectReport(subject.name, subject.shots, subject.strength, *groups, verdict, tuple(probes)))
    yield Memorisation(
        tuple(reports), corpus.name, corpus.sha256, len(matches.data), corpus.tokenizer.name, prefix, length, least, tuple(chance), seed
    )


def _passages(
    parts: dict[str, Part], corpus: Corpus, matches: Matches, prefixes: int, window: int, seed: int, shown: range
) -> dict[str, list[int]]:
    """Starts of passages in each part. Both are picked alike: none stands anywhere else in the training part (what repeats itself is known
    by its first half, and would be left out of one part only). A training passage is none that is shown to the model."""

    def elsewhere(group: str, start: int) -> bool:
        part = parts[group]
        passage = corpus.data[part.byte(start) : part.byte(start + window)][:REACH]
        if group == "held out":
            return matches.longest(passage)[0] == len(passage)
        return len(matches.places(passage)) > 1

    def refused(group: str) -> Callable[[int], bool]:
        def refuses(start: int) -> bool:
            overlaps = group == "training" and start < shown.stop and start + window > shown.start
            return overlaps or elsewhere(group, start)

        return refuses

    found = {}
    for group in GROUPS:
        found[group] = list(parts[group].places(prefixes, window, seed, refused(group)))
        if len(found[group]) < LEAST_PREFIXES:
            raise _short(group, len(found[group]), window)
    return found


def _truth(part: Part, start: int, length: int) -> bytes:
    return to_bytes(part.tokenizer, part.ids[start : start + length])


async def _probe(
    subject: Subject, head: list[int], part: Part, start: int, prefix: int, length: int, matches: Matches, least: int
) -> Probe:
    before, truth = list(part.ids[start : start + prefix]), list(part.ids[start + prefix : start + prefix + length])
    model, tokenizer = subject.model, part.tokenizer
    kept = None if subject.strength is None else model.strength
    try:
        if kept is not None and kept != subject.strength:
            model.strength = subject.strength
        written, nats = await continued(model, head + before, truth)
    finally:  # between two probes the model may be asked for other things
        if kept is not None and kept != subject.strength:
            model.strength = kept
    output, continues_at = to_bytes(tokenizer, written), part.byte(start + prefix)
    lengths = matches.lengths(output)
    longest = max(lengths)
    expected = continues_at if part.group == "training" else None
    return Probe(
        part.group, part.byte(start), continues_at, *(to_bytes(tokenizer, ids).decode("utf-8", "replace") for ids in (before, truth, written)),
        run_tokens=longest_run(written, truth), exact=written == truth, longest_bytes=longest,
        longest_at=matches.longest(output[lengths.index(longest) :])[1], spans=tuple(matches.spans(output, least, lengths, expected)),
        nats=nats, truth_bytes=len(to_bytes(tokenizer, truth)), output_bytes=output,
    )  # fmt: skip


def _group(name: str, probes: list[Probe]) -> Group:
    nbytes = sum(probe.truth_bytes for probe in probes)
    return Group(
        name, tuple(probe.run_tokens for probe in probes), sum(probe.exact for probe in probes), tuple(probe.longest_bytes for probe in probes),
        bits_per_byte(math.fsum(probe.nats for probe in probes), max(1, nbytes)),
    )  # fmt: skip


def _subjects(given) -> list[Subject]:
    if not isinstance(given, Mapping):
        given = {"model": given}
    found = []
    for name, entry in given.items():
        model, options = entry if isinstance(entry, tuple) else (entry, {})
        unknown = options.keys() - {"shots", "strength"}
        if unknown:
            raise ConfigError("memorise", "a subject's options are shots and strength", f"{', '.join(sorted(unknown))} came", "correct the name")
        found.append(Subject(str(name), model, **options))
    if not found:
        raise ConfigError("memorise", "there is a model to check", "none came", "name one")
    return found


def _fitting(subject: Subject, window: int) -> Subject:
    """The subject with its shots as a number, seen to fit its context."""
    context = subject.model.config.context
    shots = context - window if subject.shots is True else int(subject.shots)
    if shots < 0 or window + shots > context or (subject.shots is True and shots < 1):
        raise ConfigError(
            "memorise", f"training text, prefix and continuation fit the {context} tokens of the context of {subject.name}",
            f"{max(shots, 0)} + {window} tokens came", "shorten them",
        )  # fmt: skip
    if subject.strength is not None and getattr(subject.model, "lora", None) is None:
        raise ConfigError("memorise", "strength is an adapter's", f"{subject.name} has no adapter", "leave strength out")
    return Subject(subject.name, subject.model, shots, subject.strength)


def _tokens(asked: list[Subject], corpus: Corpus) -> Corpus:
    """The corpus in the subjects' tokens."""
    tokenizer = asked[0].model.tokenizer
    for subject in asked[1:]:
        if subject.model.tokenizer is not tokenizer and subject.model.tokenizer.to_dict() != tokenizer.to_dict():
            raise DataError(
                "memorise", "all models that are checked together have one tokenizer", f"that of {subject.name} is another than that of {asked[0].name}",
                "check them one by one",
            )  # fmt: skip
    return corpus if corpus.tokenizer is tokenizer else corpus.tokens(tokenizer)


def _whole(name: str, value, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError("memorise", f"{name} is a whole number from {low:,} to {high:,}", f"{value!r} came", "change it")


def _short(group: str, found: int, window: int) -> DataError:
    only = " that does not stand in the training part too" if group == "held out" else " that stands there once"
    return DataError(
        "memorise", f"there are at least {LEAST_PREFIXES} passages of {window} tokens of {group} text{only}", f"{found} came",
        "use a longer text, another validation fraction, or shorter passages", code="E-DATA-SHORT",
    )  # fmt: skip
