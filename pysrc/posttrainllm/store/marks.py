"""What a person marks a run with: tags to find it by, and a note of their own.

They lie among the run's own facts (slots.py, meta.bin: one page), so renaming or another save leaves them alone; a duplicate gets them, and
an exported file carries them as `posttrainllm.marks`. Whatever a file says of them is text: it is cut to what is allowed, never refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrainllm.errors import ConfigError
from posttrainllm.store.slots import page_room

MAX_TAGS, MAX_TAG, MAX_NOTE = 12, 40, 1000
"""Tags of a run, letters of a tag, letters of a note."""


@dataclass(frozen=True)
class Marks:
    """`tags` in the order they were given, none twice whatever their case; `note` may have several lines."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def to_dict(self) -> dict:
        """As JSON: only what there is."""
        return ({"tags": list(self.tags)} if self.tags else {}) | ({"note": self.note} if self.note else {})

    @classmethod
    def of(cls, facts: Any) -> Marks:
        """What facts of any origin say, cut to what is allowed; never raises."""
        if not isinstance(facts, Mapping):
            return cls()
        tags, note = facts.get("tags"), facts.get("note")
        found = [_one_line(tag)[:MAX_TAG].strip() for tag in tags[:1000] if isinstance(tag, str)] if isinstance(tags, (list, tuple)) else []
        return cls(_distinct(found)[:MAX_TAGS], _lines(note)[:MAX_NOTE] if isinstance(note, str) else "")

    @classmethod
    def checked(cls, tags: Any, note: Any) -> Marks:
        """What a person gives. ConfigError, in a sentence, where it is too much."""
        if not isinstance(tags, (list, tuple)) or not all(isinstance(tag, str) for tag in tags):
            raise ConfigError("tags", "they are a list of words", f"{tags!r:.60} came", "give texts")
        found = _distinct([_one_line(tag) for tag in tags])
        long = next((tag for tag in found if len(tag) > MAX_TAG), None)
        if long is not None:
            raise ConfigError("tags", f"a tag has at most {MAX_TAG} letters", f"{long[:MAX_TAG]}… has {len(long)}", "shorten it, or write it into the note")
        if len(found) > MAX_TAGS:
            raise ConfigError("tags", f"a run has at most {MAX_TAGS}", f"{len(found)} came", "leave some out")
        kept = _lines(note)
        if len(kept) > MAX_NOTE:
            raise ConfigError("note", f"it has at most {MAX_NOTE} letters", f"this one has {len(kept)}", "shorten it")
        return cls(found, kept)


def facts_with(name: str, created: str, marks: Marks, cut: bool = False) -> dict[str, Any]:
    """A run's own facts. They share one page: where they do not fit, ConfigError, or with `cut` a shorter note."""
    while page_room(facts := {"name": name, "created": created} | marks.to_dict()) < 0:
        if not cut:
            raise ConfigError("note", "name, tags and note share 4,000 bytes", f"these take {-page_room(facts)} too many", "shorten the note")
        marks = Marks(marks.tags, marks.note[:-50]) if marks.note else Marks(marks.tags[:-1])
    return facts


def _one_line(text: str) -> str:
    return " ".join("".join(" " if letter == "," else letter for letter in _lines(text)).split())


def _lines(text: str) -> str:
    """Text as it can be kept and shown: no control characters but line breaks, none that turn the writing around, no half characters."""
    whole = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return "".join(letter for letter in whole if letter == "\n" or not _hidden(letter)).strip()


def _hidden(letter: str) -> bool:
    return (letter < " " or "\x7f" <= letter <= "\x9f") and letter != "\t" or letter in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"


def _distinct(tags: list[str]) -> tuple[str, ...]:
    """Without empty ones, and of those that differ in their case alone the first."""
    return tuple({tag.casefold(): tag for tag in reversed(tags) if tag}.values())[::-1] if tags else ()
