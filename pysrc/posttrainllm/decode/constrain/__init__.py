"""Constrained decoding: a regular expression, a JSON Schema or a grammar as masks over a vocabulary.

    constraint = regex("[a-z]+@[a-z]+", vocabulary_of(model.tokenizer))
    model.generate("To: ", constraint=constraint)

From text to masks: from_regex.py, from_json_schema.py and from_grammar.py make trees (nodes.py); definitions.py flattens them;
nfa.py and machine.py make the smallest automata; network.py lays them side by side; states.py follows a text; constraint.py tells
which tokens may come, and guide.py where the text ends.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...errors import ConfigError, DataError
from . import from_grammar, from_json_schema, from_regex
from .constraint import Constraint
from .guide import ENDS, Guide
from .states import State
from .vocabulary import BYTES, Vocabulary, vocabulary_of

__all__ = ["BYTES", "ENDS", "Constraint", "Guide", "State", "Vocabulary", "grammar", "json_schema", "read", "read_file", "regex", "vocabulary_of"]


def regex(pattern: str, vocabulary: Vocabulary) -> Constraint:
    """Texts that re.fullmatch(pattern, text) accepts. Raises ConfigError for what is no regex, not regular, or has no text."""
    return Constraint({"regex": from_regex.regex(pattern)}, "regex", vocabulary, "regex")


def json_schema(schema, vocabulary: Vocabulary, whitespace: str = "compact") -> Constraint:
    """JSON that is valid for a schema (a dict, or True for any JSON); whitespace "compact", "spaced" or "free". Raises ConfigError."""
    return Constraint(*from_json_schema.json_schema(schema, whitespace), vocabulary, "json_schema")


def grammar(text: str, vocabulary: Vocabulary, start: str = "start") -> Constraint:
    """Texts of a grammar in lark's notation. Raises ConfigError, also where lark is not installed."""
    return Constraint(*from_grammar.grammar(text, start), vocabulary, "grammar")


def read(kind: str, text: str, vocabulary: Vocabulary, whitespace: str = "compact") -> Constraint:
    """From text, as a page or a file gives it: kind "regex", "json_schema" or "grammar". Raises ConfigError or DataError."""
    if kind == "regex":
        return regex(text, vocabulary)
    if kind == "grammar":
        return grammar(text, vocabulary)
    if kind != "json_schema":
        raise ConfigError("constraint", "its kind is regex, json_schema or grammar", f"{kind!r} came", "choose one of those")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError("json_schema", "the schema is JSON", str(error), "correct it") from None
    return json_schema(schema, vocabulary, whitespace)


def read_file(kind: str, rule: str | Path, vocabulary: Vocabulary, whitespace: str = "compact") -> Constraint:
    """`read` from a UTF-8 file if `rule` is a path, else from the text that it is. Raises DataError where the file cannot be read."""
    try:
        text = rule.read_text("utf-8") if isinstance(rule, Path) else rule
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(kind, "a UTF-8 file", str(error), "pass the path of one") from None
    return read(kind, text, vocabulary, whitespace)
