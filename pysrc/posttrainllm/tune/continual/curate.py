"""What is learnt of the corrections, what is held out to judge by, and what is dropped, each with the reason.

In this order: records that say nothing go; then all but the newest answer to the same prompt; then answers that do not fit the model's
context. Prompts that are nearly alike stay together on one side of the split, so that what a version is judged by is nothing it has
seen, nor anything close to it. Which side a prompt falls on is drawn by its own text and the seed: it does not
change as others come, and what the version in use has learnt is never held out later, nor what judged it learnt.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
import zlib
from collections import Counter
from dataclasses import asdict, dataclass, field

from ...data.pairs import Pairs, Preferences, Template
from ...data.tokenizers import ByteTokenizer
from ...errors import DataError
from ...train.reports import Report
from .history import Version
from .records import Correction, Corrections, as_corrections
from .settings import part_settings

MASK_BITS = 1024


@dataclass(frozen=True)
class Dropped:
    """A record that is not learnt from, and why."""

    id: str
    why: str


@dataclass(frozen=True)
class Curated:
    """sft: pairs to learn. dpo: preferences to learn, None where they are too few. held_out: pairs, and held_out_dpo preferences, to judge by.

    learned and held_out_ids: the ids behind them, each with 8 digits of the sha256 of its prompt and 8 of that of all its texts. notes: sentences for a person.
    """

    sft: Pairs
    dpo: Preferences | None
    held_out: Pairs
    held_out_dpo: Preferences | None
    dropped: tuple[Dropped, ...]
    learned: dict[str, str]
    held_out_ids: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def texts_sha256(self) -> str:
        """One hash of all that is learnt, template and order included."""
        return hashlib.sha256(f"{self.sft.sha256} {self.dpo and self.dpo.sha256}".encode()).hexdigest()


@dataclass(frozen=True)
class CuratedReport(Report):
    """The first report of an improvement: how many rows and preferences are learnt and held out, what was dropped, and notes."""

    learned: int
    preferences: int
    held_out: int
    held_out_preferences: int
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, curated: Curated) -> CuratedReport:
        """What a curation came to."""
        sizes = [0 if each is None else len(each) for each in (curated.sft, curated.dpo, curated.held_out, curated.held_out_dpo)]
        return cls(0, *sizes, curated.dropped, curated.notes)

    def to_dict(self) -> dict:
        """JSON."""
        return super().to_dict() | {"dropped": [asdict(each) for each in self.dropped], "notes": list(self.notes)}


@dataclass
class _Row:
    """An answer to learn: the record that it comes from, and those whose offer it is preferred to."""

    record: Correction
    refused: list[Correction] = field(default_factory=list)

    @property
    def kept(self) -> str:
        return self.record.kept.strip("\n")

    @property
    def rejected(self) -> list[str]:
        """The refused offers, each once."""
        return list(dict.fromkeys(each.offered.strip("\n") for each in self.refused))

    @property
    def records(self) -> dict[str, Correction]:
        return {each.id: each for each in (self.record, *self.refused)}


def curate(
    corrections: Corrections | list, *, tokenizer=None, context: int | None = None, template: Template | None = None,
    in_use: Version | None = None, settings: dict | None = None,
) -> Curated:  # fmt: skip
    """Sort the records; tokenizer and context are the model's (without a context none is too long). in_use: the version whose learnt and
    held-out prompts keep their side. settings: changes to configs/continual.json's "curate".

    Raises DataError where too few are left, with the reasons counted: nothing is changed by a curation.
    """
    bounds = part_settings("curate", settings)
    template, tokenizer, records = template or Template(), tokenizer or ByteTokenizer(), list(as_corrections(corrections))
    dropped: dict[str, str] = {}
    rows = _fitting(_answers(records, dropped), dropped, tokenizer, context, template)
    groups = grouped([row.record.prompt for row in rows], bounds["near_duplicate"])
    held = _held_out(rows, groups, in_use, bounds)
    learn = [row for row, group in zip(rows, groups) if group not in held]
    judge = [row for row, group in zip(rows, groups) if group in held]
    _require_enough(len(learn), len(held), dropped, len(records), bounds)
    sft, dpo = _both(learn, "corrections", template)
    held_out, held_out_dpo = _both(judge, "held-out corrections", template)
    notes = _notes(sft, dpo, context, tokenizer, bounds)
    if dpo is not None and len(dpo) < bounds["least_preferences"]:
        dpo = None
    said = tuple(Dropped(record.id, dropped[record.id]) for record in records if record.id in dropped)
    return Curated(sft, dpo, held_out, held_out_dpo, said, _hashes(learn), _hashes(judge), notes)


def _answers(records: list[Correction], dropped: dict[str, str]) -> list[_Row]:
    """The newest answer to each prompt, with the offers that it is preferred to. `records` are oldest first."""
    chosen: dict[str, _Row] = {}
    waiting: dict[str, list[Correction]] = {}
    for record in records:
        key = same(record.prompt)
        before = chosen.get(key)
        if not key:
            dropped[record.id] = "Its prompt is empty."
        elif record.what == "retry":
            if before is not None and before.kept == record.offered.strip("\n"):
                _drop(chosen.pop(key), dropped, f"The same answer was refused later ({record.id}).")
            waiting.setdefault(key, []).append(record)
        elif not record.kept.strip():
            dropped[record.id] = "Its answer is empty."
        else:
            row = _Row(record)
            carried = [each for each in before.refused if each.what == "retry"] if before is not None and before.kept != row.kept else []
            for each in (*carried, *waiting.pop(key, [])):
                if each.offered.strip("\n") == row.kept:
                    dropped[each.id] = f"The answer that it refused was accepted later ({record.id})."
                else:
                    row.refused.append(each)
            if record.what == "edit" and record.offered.strip() and record.offered.strip("\n") != row.kept:
                row.refused.append(record)
            if before is not None and before.kept == row.kept:
                before.refused += row.refused
                if record not in row.refused:
                    dropped[record.id] = f"The same answer to the same prompt was kept before ({before.record.id})."
                continue
            if before is not None:
                dropped[before.record.id] = f"A newer record answers the same prompt otherwise ({record.id})."
                for each in before.refused:
                    if each not in row.refused:
                        dropped.setdefault(each.id, f"A newer record answers the same prompt otherwise ({record.id}).")
            chosen[key] = row
    for left in waiting.values():
        dropped.update({each.id: "No answer to its prompt was accepted after it." for each in left})
    return list(chosen.values())


def _drop(row: _Row, dropped: dict[str, str], why: str) -> None:
    dropped.update(dict.fromkeys(row.records, why))


def _fitting(rows: list[_Row], dropped: dict[str, str], tokenizer, context: int | None, template: Template) -> list[_Row]:
    """Those whose answer and its end fit the context: a cut answer would teach never to stop."""
    if context is None:
        return rows
    kept = []
    for row in rows:
        count = len(tokenizer.encode_bytes(template.answer(row.kept).encode("utf-8")))
        if count > context:
            _drop(row, dropped, f"Its answer takes {count:,} tokens with its end: more than the model's context of {context:,}.")
        else:
            kept.append(row)
    return kept


def same(prompt: str) -> str:
    """What two spellings of one prompt have in common: one form of each character, one space where there is any."""
    return " ".join(unicodedata.normalize("NFC", prompt).split())


def alike(prompt: str) -> str:
    """The same for prompts that are nearly alike: letters and digits alone, small ones."""
    plain = unicodedata.normalize("NFKC", prompt).casefold()
    return " ".join("".join(letter if letter.isalnum() else " " for letter in plain).split()) or same(prompt)


def grouped(prompts: list[str], least: float) -> list[int]:
    """The group of each prompt: prompts that share at least the share `least` of their three-letter pieces (Jaccard's measure) are in one,
    and so are those that a third one joins. A group's number is the place of its first prompt."""
    pieces = []
    for prompt in map(alike, prompts):
        wide = f"  {prompt} "
        pieces.append({wide[at : at + 3] for at in range(len(wide) - 2)})
    masks = [sum({1 << (zlib.crc32(piece.encode("utf-8")) % MASK_BITS) for piece in each}) for each in pieces]  # a set: each bit once
    group = list(range(len(prompts)))

    def root(number: int) -> int:
        while group[number] != number:
            group[number] = number = group[group[number]]
        return number

    for one, mask in enumerate(masks):
        for other in range(one):
            both = (mask & masks[other]).bit_count()
            if both < (least - 0.1) * (mask | masks[other]).bit_count():  # far below: bits that pieces share change little
                continue
            a, b = pieces[one], pieces[other]
            shared = len(a & b)
            if shared >= least * (len(a) + len(b) - shared):
                first, second = sorted((root(one), root(other)))
                group[second] = first
    return [root(number) for number in range(len(prompts))]


def _held_out(rows: list[_Row], groups: list[int], in_use: Version | None, bounds: dict) -> set[int]:
    """The groups to judge by."""
    learned, judged = ({value[:8] for value in ids.values()} for ids in ((in_use.learned, in_use.held_out) if in_use else ({}, {})))
    marks: dict[int, set[str]] = {}
    for row, group in zip(rows, groups):
        marks.setdefault(group, set()).add(_digits(row.record.prompt))
    never = {group for group, found in marks.items() if found & learned}
    held = {group for group, found in marks.items() if found & judged} - never
    want = max(bounds["least_held_out"], round(bounds["held_out_fraction"] * len(marks)))
    free = [group for group in marks if group not in never and group not in held]
    free.sort(key=lambda group: hashlib.sha256(f"{bounds['seed']} {same(rows[group].record.prompt)}".encode()).digest())
    return held | set(free[: max(0, want - len(held))])


def _require_enough(learned: int, held: int, dropped: dict[str, str], records: int, bounds: dict) -> None:
    least, judging = bounds["least_learned"], bounds["least_held_out"]
    if learned >= least and held >= judging:
        return
    whys = Counter(why.split(" (")[0].rstrip(".") for why in dropped.values())
    reasons = "; ".join(f"{count:,}: {why[0].lower()}{why[1:]}" for why, count in whys.most_common())
    came = f"{learned} and {held} are left of {records:,} records" + (f" ({len(dropped):,} dropped: {reasons})" if dropped else "")
    raise DataError(
        "improve", f"there are at least {least} answers to learn and {judging} prompts unlike them to judge by", came,
        "correct more answers, to other prompts; nothing was changed", code="E-DATA-SHORT",
    )  # fmt: skip


def _both(rows: list[_Row], name: str, template: Template) -> tuple[Pairs, Preferences | None]:
    pairs = Pairs(name, [(row.record.prompt, row.kept) for row in rows], template).split_at(0.0)
    liked = [(row.record.prompt, row.kept, each) for row in rows for each in row.rejected]
    return pairs, (Preferences(f"{name}, preferred", liked, template).split_at(0.0) if liked else None)


def _digits(prompt: str) -> str:
    return hashlib.sha256(same(prompt).encode()).hexdigest()[:8]


def _hashes(rows: list[_Row]) -> dict[str, str]:
    """Of each record: 8 digits of its prompt's hash, 8 of all its texts'."""
    found = {}
    for row in rows:
        for key, record in row.records.items():
            texts = json.dumps([record.what, record.prompt, record.offered, record.kept])
            found[key] = _digits(record.prompt) + hashlib.sha256(texts.encode()).hexdigest()[:8]
    return found


def _notes(sft: Pairs, dpo: Preferences | None, context: int | None, tokenizer, bounds: dict) -> tuple[str, ...]:
    said, end = [], sft.template.end
    if dpo is not None and len(dpo) < bounds["least_preferences"]:
        said.append(f"Preferences to learn: {len(dpo)}, fewer than the {bounds['least_preferences']} that dpo asks for; they count as answers only.")
    ends = sum(end in answer for _, answer in sft.rows)
    if ends:
        said.append(f"Answers that hold {end!r}, which ends an answer: {ends}. Writing stops there.")
    if context is not None:
        cut = sft.tokens(tokenizer).facts(context)["cut_prompts"]
        if cut:
            said.append(f"Prompts that lose their beginning, since they are longer than the model's context of {context:,} tokens with the answer: {cut}.")
    return tuple(said)
