"""Corrections: what a user made of an answer. Kept in the journal of the run that they were made on, or in memory where there is none."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import NoReturn, Self

from ...configs import load
from ...errors import ConfigError, DataError, StoreCorruptError
from ...store.journal import Journal, Record
from ...store.memory import MemoryFile, MemoryVolume
from ...store.strict_json import Refused, parse

KINDS = ("accept", "edit", "retry", "correct")
LEVELS = 8


@dataclass(frozen=True)
class Correction:
    """One record. what: "accept" (kept is offered), "edit" (kept is the offered text as the user changed it), "correct" (kept is the
    user's own answer), "retry" (the offer was refused; kept is "" and what is accepted later for the same prompt is the better one).

    created is ISO 8601 in UTC; adapter_id and version say what was on the model when it was offered ("" and None: nothing), sampler how
    it was written, base_sha256 on which weights.
    """

    id: str
    created: str
    what: str
    prompt: str
    offered: str
    kept: str
    adapter_id: str = ""
    version: int | None = None
    sampler: dict = field(default_factory=dict)
    base_sha256: str = ""
    note: str = ""

    def to_dict(self) -> dict:
        """JSON, as a line of the JSONL."""
        return asdict(self)


_TEXTS = ("id", "created", "what", "prompt", "offered", "kept", "adapter_id", "base_sha256", "note")
_NAMES = tuple(each.name for each in fields(Correction))
EDITABLE = ("what", "prompt", "offered", "kept", "note")


class Corrections:
    """The corrections of a run, oldest first, and the history of what was learnt from them (`history`).

    Over a Journal (a run's: `run.journal`), or in memory without one: `saved` says which. Everything that changes them is on the disk
    when it returns, or an error says why not and nothing has changed.
    """

    def __init__(self, journal: Journal | None = None, clock: Callable[[], str] | None = None):
        volume = MemoryVolume()
        self.saved = journal is not None
        self.journal = journal or Journal([MemoryFile(volume), MemoryFile(volume)], "memory")
        self._clock, self._run = clock or _utc, None
        self._limits = load("continual")["records"]
        self._rows: dict[str, Correction] | None = None

    @classmethod
    def open(cls, folder: str | Path) -> Corrections:
        """Those of a run's folder, which is held until `close`. Raises ConfigError, StoreMissingError, StoreBusyError."""
        from ...train.files import hold_run

        run = hold_run(folder)
        try:
            found = cls(run.journal)
            found.history  # noqa: B018 - a journal that cannot be read is found out here
        except BaseException:
            run.close()
            raise
        found._run = run
        return found

    def close(self) -> None:
        """Let the run go that `open` holds."""
        if self._run is not None:
            self._run.close()
            self._run = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def history(self):
        """The versions learnt from them (history.History), on the same journal."""
        from .history import History

        return History(self.journal, self._clock)

    # Reading

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self):
        return iter(list(self._all().values()))

    def __getitem__(self, correction_id: str) -> Correction:
        """The one of an id. Raises DataError."""
        found = self._all().get(correction_id)
        if found is None:
            raise DataError("corrections", "an id of the list", f"{correction_id!r} came", "choose one of the list")
        return found

    def list(self, first: int = 0, count: int | None = None) -> list[Correction]:
        """`count` of them from the `first` on, oldest first."""
        rows = list(self._all().values())
        return rows[first:] if count is None else rows[first : first + count]

    # Changing

    def record(self, what: str, prompt: str, offered: str = "", kept: str = "", **more) -> Correction:
        """Keep one; `more` is any of Correction's other fields. An accept's kept is what was offered, a retry's is "". Raises DataError, StoreError."""
        kept = offered if what == "accept" else "" if what == "retry" else kept
        return self._add([self._made({"what": what, "prompt": prompt, "offered": offered, "kept": kept} | more, "corrections")])[0]

    def edit(self, correction_id: str, **changes) -> Correction:
        """Change what, prompt, offered, kept or note of one. What it was before is gone from the disk. Raises DataError, StoreError."""
        if unknown := changes.keys() - set(EDITABLE):
            raise DataError("corrections", f"what can be edited is {', '.join(EDITABLE)}", f"{', '.join(sorted(unknown))} came", "leave it out")
        old = self[correction_id]
        new = self._made(old.to_dict() | changes, f"correction {correction_id}")
        self._replace({key: new if key == correction_id else row for key, row in self._all().items()})
        return new

    def delete(self, *ids: str) -> int:
        """Delete those of these ids, from the disk too; how many. A version that learnt from one still does: improve again for one that does not."""
        for each in ids:
            self[each]  # raises where there is none
        self._replace({key: row for key, row in self._all().items() if key not in ids})
        return len(set(ids))

    def clear(self) -> int:
        """Delete all; how many there were. Versions stay."""
        count = len(self)
        self._replace({})
        return count

    # In and out

    def to_jsonl(self) -> str:
        """One JSON object a line, with Correction's names."""
        return "".join(json.dumps(row.to_dict(), ensure_ascii=False) + "\n" for row in self)

    def add_jsonl(self, text: str, name: str = "pasted JSONL") -> list[Correction]:
        """Add the lines of such a text, all or none; those whose id is here already are left as they are. what, prompt and kept (or offered)
        must be there, the rest may be. Raises DataError, which names the line."""
        made, known = [], set(self._all())
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            place = f"{name}, line {number:,}"
            try:
                item = parse(line.encode("utf-8", "surrogatepass"), LEVELS, "it")
            except Refused as error:
                raise DataError(place, error.rule, error.came, "correct it: a line is one JSON object") from error
            if not isinstance(item, dict):
                raise DataError(place, "a correction is a JSON object", f"a {type(item).__name__} came", 'write {"what": …, "prompt": …, "kept": …}')
            row = self._made(item, place)
            if row.id not in known:
                known.add(row.id)
                made.append(row)
        return self._add(made)

    # Inside

    def _made(self, values: dict, place: str) -> Correction:
        """A Correction from fields, seen to be sound."""

        def refuse(rule: str, came: str, remedy: str = "correct it") -> NoReturn:
            raise DataError(place, rule, came, remedy)

        if unknown := [name for name in values if name not in _NAMES]:
            refuse(f"its fields are {', '.join(_NAMES)}", f"{str(unknown[0])[:60]!r} came", "rename or remove it")
        values = {"id": os.urandom(5).hex(), "created": self._clock(), "offered": "", "kept": ""} | values
        if values.get("what") not in KINDS:
            refuse(f"what is one of {', '.join(KINDS)}", f"{values.get('what')!r} came")
        if values["what"] == "accept":
            values["offered"] = values["kept"] = values["offered"] or values["kept"]
        longest = self._limits["longest_characters"]
        for name in _TEXTS:
            value = values.get(name, "")
            if not isinstance(value, str):
                refuse(f"{name} is a text", f"a {type(value).__name__} came", "put it between quotation marks")
            if len(value) > longest:
                refuse(f"{name} is at most {longest:,} characters", f"{len(value):,} came", "keep the part that matters")
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                refuse(f"{name} is a whole text", "half of a surrogate pair came")
        if not values.get("prompt", "").strip():
            refuse("a prompt of at least one letter", "an empty one came", "write what was asked")
        if values["what"] in ("edit", "correct") and not values["kept"].strip():
            refuse(f"what is kept of {'an edit' if values['what'] == 'edit' else 'a correction'} holds at least one letter", "an empty text came",
                   'write it, or record a "retry"')  # fmt: skip
        if values["what"] in ("accept", "retry") and not values["offered"].strip():
            refuse("what was offered holds at least one letter", "an empty text came", "leave it out")
        version = values.get("version")
        if version is not None and (type(version) is not int or version < 0):
            refuse("version is a number, or null", f"{version!r} came")
        if not isinstance(values.get("sampler", {}), dict):
            refuse("sampler is an object", f"{values['sampler']!r} came")
        return Correction(**values)

    def _add(self, rows: list[Correction]) -> list[Correction]:
        most = self._limits["most_records"]
        if len(self) + len(rows) > most:
            raise ConfigError(
                "corrections", f"a run keeps at most {most:,}", f"{len(self) + len(rows):,} would be there", "export and delete old ones first"
            )
        if len(rows) == 1:
            self.journal.append({"kind": "correction"} | rows[0].to_dict())
        elif rows:
            added = [Record({"kind": "correction"} | row.to_dict()) for row in rows]
            self.journal.rewrite([*self.journal.records(), *added])  # all or none of them
        self._all().update({row.id: row for row in rows})
        return rows

    def _replace(self, rows: dict[str, Correction]) -> None:
        others = [record for record in self.journal.records() if record.facts.get("kind") != "correction"]
        self.journal.rewrite([*(Record({"kind": "correction"} | row.to_dict()) for row in rows.values()), *others])
        self._rows = rows

    def _all(self) -> dict[str, Correction]:
        if self._rows is None:
            found = {}
            for record in self.journal.records():
                if record.facts.get("kind") == "correction":
                    row = _kept(record.facts)
                    found[row.id] = row
            self._rows = found
        return self._rows


def _kept(facts: dict) -> Correction:
    """The row of a sound record, whose fields may be another version's all the same."""
    values = {name: facts[name] for name in _NAMES if name in facts}
    whole = set(_TEXTS[:6]) <= values.keys() and all(isinstance(values.get(name, ""), str) for name in _TEXTS)
    if not whole or not isinstance(values.get("sampler", {}), dict) or type(values.get("version")) not in (int, type(None)):
        raise StoreCorruptError(
            "corrections", f"each record has the fields {', '.join(_NAMES)}", f"{repr(values)[:120]} came", "update the package; nothing was changed"
        )
    return Correction(**values)


def as_corrections(given: Corrections | Iterable[Correction | dict]) -> Corrections:
    """Corrections as they are, or in memory from Correction objects or dicts of their fields."""
    if isinstance(given, Corrections):
        return given
    made = Corrections()
    rows = [made._made(dict(each) if isinstance(each, dict) else each.to_dict(), f"corrections, item {number:,}") for number, each in enumerate(given, 1)]
    made._add(rows)
    return made




def _utc() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
