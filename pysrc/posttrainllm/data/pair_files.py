"""Pairs and preferences out of JSONL, CSV or typed-in rows: which fields they are in, and what is wrong with a line.

A pair's prompt is in `prompt`, `instruction` or `question` (Alpaca's `input` follows it on a line of its own), its response in
`response`, `completion`, `output` or `answer`; the first of these that a row has counts. A preference has `chosen` and `rejected` in
place of the response. Where a conversation stands in the place of a text (a list of {"role", "content"}; `messages` for a whole
pair), what the assistant says last is the response, and all before it, a line each, the prompt.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..errors import DataError
from .corpus import Corpus

PROMPTS = ("prompt", "instruction", "question")
LEVELS = 16  # a conversation nests three deep
RESPONSES = ("response", "completion", "output", "answer")


@dataclass(frozen=True)
class Row:
    """What stands at a line (or in a place of a list, from 1): fields by name, or texts in order."""

    place: str
    line: int
    fields: dict | tuple
    named_at: str = ""  # where the fields have their names, when that is another line: a header

    def refuse(self, rule: str, came: str, remedy: str) -> NoReturn:
        """A DataError that names the line."""
        raise DataError(self.place, rule, came, remedy)


def read_rows(path: str | Path) -> Iterator[Row]:
    """The rows of a .jsonl, .json or .csv file. Raises DataError where it cannot be read, or is neither."""
    path = Path(path)
    return rows_of(Corpus.from_file(path).data.decode("utf-8"), path.name)


def rows_of(text: str, name: str) -> Iterator[Row]:
    """The rows of a file's text, by the ending of its name; where that says nothing, JSON begins with { or [."""
    ending = Path(name).suffix.lower()
    if ending in (".jsonl", ".json", ".ndjson") or (ending not in (".csv", ".tsv") and text.lstrip()[:1] in ("{", "[")):
        return jsonl_rows(text, name)
    return csv_rows(text, name)


def jsonl_rows(text: str, name: str) -> Iterator[Row]:
    """An object a line; or one list of objects."""
    if text.lstrip().startswith("["):
        for number, item in enumerate(_json(text, name), 1):
            yield _object(item, f"{name}, item {number:,}", number)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{name}, line {number:,}"
            yield _object(_json(line, place), place, number)


def _json(text: str, place: str):
    """Bounded before it is parsed: a tab has little stack, and what nests deeply would end its worker."""
    from ..store import strict_json  # at a call: reading files is the store's, one layer up

    try:
        return strict_json.parse(text.encode("utf-8", "surrogatepass"), LEVELS, "it")
    except strict_json.Refused as error:
        raise DataError(place, error.rule, error.came, "correct it: a line is one JSON object with a prompt and what follows it") from error


def _object(item, place: str, number: int) -> Row:
    if not isinstance(item, dict):
        raise DataError(place, "a pair is a JSON object", f"a {type(item).__name__} came", 'write {"prompt": …, "response": …}')
    return Row(place, number, item)


def csv_rows(text: str, name: str) -> Iterator[Row]:
    """Rows under a header, between commas, semicolons or tabs: what the header has first."""
    header_text = text[: text.find("\n")] if "\n" in text else text
    marks = [mark for mark in header_text if mark in ",;\t"]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=marks[0] if marks else ",", strict=True)
    try:
        header = [field.strip() for field in next(reader, [])]
        twice = sorted({field for field in header if field and header.count(field) > 1})
        if twice:
            raise DataError(f"{name}, line 1", "a header names each field once", f"{twice[0]!r} is there twice", "rename one of them")
        line = reader.line_num + 1
        for fields in reader:
            place, here, line = f"{name}, line {line:,}", line, reader.line_num + 1
            if not any(field.strip() for field in fields):
                continue
            if len(fields) != len(header):
                raise DataError(
                    place,
                    f"a row has the header's {len(header)} fields ({', '.join(header)})",
                    f"{len(fields)} came",
                    'put a text with commas or line breaks between quotation marks, and write " twice in it',
                )
            yield Row(place, here, dict(zip(header, fields)), f"{name}, line 1")
    except csv.Error as error:
        place = f"{name}, line {reader.line_num:,}"
        raise DataError(place, "it is CSV with a header", f"it is not ({error})", "save it as CSV again, or as JSONL") from error


def list_rows(items, name: str) -> Iterator[Row]:
    """Typed in: tuples of texts, or dicts with the fields of a file."""
    for number, item in enumerate(items, 1):
        fields = item if isinstance(item, dict) else tuple(item) if isinstance(item, (tuple, list)) else (item,)
        yield Row(f"{name}, item {number:,}", number, fields)


def pair_of(row: Row) -> tuple[str, str]:
    """(prompt, response) of a row. Raises DataError."""
    fields = row.fields
    if isinstance(fields, tuple):
        return _texts(row, ("a prompt", "a response"))
    if "messages" in fields:
        return _conversation(row, fields["messages"], "messages")
    response = _named(row, RESPONSES, f"a response ({', '.join(RESPONSES)})")
    return _prompt(row), _text(row, fields[response], response)


def preference_of(row: Row) -> tuple[str, str, str]:
    """(prompt, chosen, rejected) of a row. Raises DataError."""
    fields = row.fields
    if isinstance(fields, tuple):
        return _texts(row, ("a prompt", "a chosen answer", "a rejected answer"))
    found: list[tuple[str | None, str]] = []
    for name in ("chosen", "rejected"):
        answer = fields[_named(row, (name,), f"a field {name}")]
        found.append(_conversation(row, answer, name) if isinstance(answer, list) else (None, _text(row, answer, name)))
    (before, chosen), (_, rejected) = found
    return (before if before is not None and not any(name in fields for name in PROMPTS) else _prompt(row)), chosen, rejected


def _texts(row: Row, wanted: tuple[str, ...]) -> tuple[str, ...]:
    if len(row.fields) != len(wanted):
        row.refuse(f"it holds {', '.join(wanted)}", f"{len(row.fields)} came", "give each of them")
    return tuple(_text(row, text, name) for text, name in zip(row.fields, wanted))


def _named(row: Row, names: tuple[str, ...], what: str) -> str:
    for name in names:
        if name in row.fields:
            return name
    held = ", ".join(map(str, row.fields)) or "nothing"
    raise DataError(row.named_at or row.place, f"it has {what}", f"it has {held}", "rename the field")


def _prompt(row: Row) -> str:
    name = _named(row, PROMPTS, f"a prompt ({', '.join(PROMPTS)})")
    value = row.fields[name]
    if isinstance(value, list):
        prompt = "\n".join(content for _, content in _messages(row, value, name))
    else:
        prompt = _text(row, value, name)
    more = row.fields.get("input")
    return f"{prompt}\n{_text(row, more, 'input')}" if more else prompt


def _text(row: Row, value, name: str) -> str:
    if not isinstance(value, str):
        row.refuse(f"{name} is a text", f"a {type(value).__name__} came", "put it between quotation marks")
    if not value.strip():
        row.refuse(f"{name} holds at least one letter", "an empty text came", "write it, or leave the pair out")
    return value


def _messages(row: Row, value, name: str) -> list[tuple[str, str]]:
    found = []
    for message in value if isinstance(value, list) else [value]:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            row.refuse(f"{name} is a list of messages with role and content", f"a {type(message).__name__} came", "correct it")
        found.append((message["role"], _text(row, message.get("content"), f"the {message['role']}'s content")))
    return found


def _conversation(row: Row, value, name: str) -> tuple[str, str]:
    messages = _messages(row, value, name)
    roles = [role for role, _ in messages]
    if len(roles) < 2 or roles[-1] != "assistant":
        came = ", ".join(roles) or "no message"
        row.refuse(f"{name} ends with the assistant's answer to what came before", f"{came} came", "leave the pair out")
    return "\n".join(content for _, content in messages[:-1]), messages[-1][1]
