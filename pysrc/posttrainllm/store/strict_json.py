"""JSON out of a file that anybody may have written: strict, and bounded before it is parsed.

Python's json takes NaN, keeps the last of two equal keys, recurses as deep as the text nests, and builds objects up to
fifty times the size of the text. So the text is weighed first.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, NoReturn

MAX_BRACKETS = 1_000_000  # 300,000 tensors; each pair costs about 100 bytes once parsed
MAX_COMMAS = 8_000_000
MAX_QUOTES = 4_000_000
_PIECE_BYTES = 1 << 16
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Refused(ValueError):
    """Not acceptable JSON: `.case` is HEADER, CROWDED or DUPLICATE; `.rule` and `.came` are parts of a sentence."""

    def __init__(self, case: str, rule: str, came: str):
        super().__init__(rule, came)
        self.case, self.rule, self.came = case, rule, came


class Crowd(NamedTuple):
    """The most that a text may hold: lists and objects, commas, quotation marks, objects. Who knows what is coming asks for less."""

    brackets: int = MAX_BRACKETS
    commas: int = MAX_COMMAS
    quotes: int = MAX_QUOTES
    objects: int = MAX_BRACKETS


def parse(data: bytes, levels: int, subject: str, most: Crowd = Crowd()) -> Any:
    """The value, nested at most `levels` deep, without NaN, infinities or keys given twice; else Refused.

    `subject` is what the text is, for the sentence: "its header".
    """
    if data.count(b'"') > most.quotes:
        raise Refused("CROWDED", f"{subject} has at most {most.quotes:,} quotation marks", "it has more")
    bare = _without_strings(data)
    brackets = bare.translate(None, _NOT_BRACKETS)
    if len(brackets) > 2 * most.brackets or bare.count(b",") > most.commas:
        raise Refused(
            "CROWDED",
            f"{subject} has at most {most.brackets:,} lists and objects and {most.commas:,} commas",
            f"this one, of {len(data):,} bytes, has more",
        )
    if brackets.count(b"{") > most.objects:
        raise Refused("CROWDED", f"{subject} has at most {most.objects:,} objects", f"this one, of {len(data):,} bytes, has more")
    del bare  # as large as the text: gone before the value is made
    for _ in range(levels):  # each round removes the innermost pairs, whose inside the round before emptied
        brackets = _innermost(brackets)
    if brackets:
        raise Refused("HEADER", f"{subject} nests at most {levels} deep and closes what it opens", "this one does not")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("HEADER", f"{subject} is UTF-8", f"byte {error.start} of it is not") from None
    try:
        return json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except _Unwanted as error:
        raise Refused(error.case, f"{subject} {error.rule}", error.came) from None
    except json.JSONDecodeError as error:
        raise Refused("HEADER", f"{subject} is JSON", f"this is not: {error}") from None
    except ValueError:
        raise Refused("HEADER", f"{subject} holds numbers of at most 4300 digits", "one has more") from None


def quote(value: Any) -> str:
    """A value out of a file for a sentence: quoted, printable ASCII, and never longer than a line."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def kind(value: Any) -> str:
    """What a JSON value is, for a sentence."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), f"of type {type(value).__name__}")


def _without_strings(data: bytes) -> bytearray:
    """What stands outside of strings, a piece at a time: joining takes 80 bytes for each part, far more than a short string has."""
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")  # of a run of backslashes one stays where it is odd
    bare, inside = bytearray(), 0
    for begin in range(0, len(data), _PIECE_BYTES):
        parts = data[begin : begin + _PIECE_BYTES].split(b'"')
        bare += b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1
    return bare


def _innermost(brackets: bytes) -> bytes:
    return re.sub(rb"(?:\[\]|\{\})++", b"", brackets)


class _Unwanted(Refused):
    """Found inside json, which does not know the subject yet."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise _Unwanted("DUPLICATE", "names each thing once", f"{quote(twice)} is there twice")
    return found


def _constant(word: str) -> NoReturn:
    raise _Unwanted("HEADER", "is JSON", f"{word} is not a JSON number")
