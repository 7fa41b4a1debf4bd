"""JSON out of a file that anybody may have written: strict, and bounded before it is parsed.

Python's json takes NaN, keeps the last of two equal keys, recurses as deep as the text nests, and builds objects up to
fifty times the size of the text. So the text is weighed first.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

MAX_BRACKETS = 1_000_000  # 300,000 tensors; each pair costs about 100 bytes once parsed
MAX_COMMAS = 8_000_000
MAX_QUOTES = 4_000_000
# Possessive: matching a long string must not remember where it could go back to.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Refused(ValueError):
    """Not acceptable JSON: `.case` is HEADER, CROWDED or DUPLICATE; `.rule` and `.came` are parts of a sentence."""

    def __init__(self, case: str, rule: str, came: str):
        super().__init__(rule, came)
        self.case, self.rule, self.came = case, rule, came


def parse(data: bytes, levels: int, subject: str) -> Any:
    """The value, nested at most `levels` deep, without NaN, infinities or keys given twice; else Refused.

    `subject` is what the text is, for the sentence: "its header".
    """
    if data.count(b'"') > MAX_QUOTES:
        raise Refused("CROWDED", f"{subject} has at most {MAX_QUOTES:,} quotation marks", "it has more")
    bare = _STRING.sub(b"", data)
    brackets = bare.translate(None, _NOT_BRACKETS)
    if len(brackets) > 2 * MAX_BRACKETS or bare.count(b",") > MAX_COMMAS:
        raise Refused(
            "CROWDED",
            f"{subject} has at most {MAX_BRACKETS:,} lists and objects and {MAX_COMMAS:,} commas",
            f"this one, of {len(data):,} bytes, has more",
        )
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
