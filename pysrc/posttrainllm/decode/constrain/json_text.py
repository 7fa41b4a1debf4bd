"""JSON's strings and numbers as trees, with the limits that a schema may put on them."""

from __future__ import annotations

import json
import math
from decimal import Decimal

from ...errors import ConfigError
from .charset import ANY
from .machine import Machine, difference, intersection
from .nfa import machine_of
from .nodes import EMPTY, NOTHING, Alt, Chars, Fixed, Node, Repeat, Text, alt, seq
from .from_regex import regex

PLACE = "json_schema"
QUOTE = Text(b'"')
CHARACTER = Chars(ANY, True)
STRING = seq(QUOTE, Repeat(CHARACTER), QUOTE)
DIGIT, NONZERO = Chars(((48, 57),)), Chars(((49, 57),))
DIGITS = 15  # before the point, and after it: any such whole number is exact as a double
LARGEST = 10**DIGITS - 1
DECIMALS = 6  # where a number has bounds

_DAY = r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
_DATE = rf"(?a:(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d\d\d)-{_DAY})"
_TIME = r"(?a:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))"
_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LABEL = "[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?"
FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "ipv4": rf"(?a:{_BYTE}(?:\.{_BYTE}){{3}})",
    "email": rf"[a-z0-9_+-]{{1,30}}(?:\.[a-z0-9_+-]{{1,30}}){{0,3}}@{_LABEL}(?:\.{_LABEL}){{0,3}}\.[a-z]{{2,10}}",
}


def written(value, separators: tuple[str, str] = (",", ":")) -> Text:
    """A value as it is always written: UTF-8, escaped only where it must be. Raises ConfigError for half a surrogate pair."""
    try:
        return Text(json.dumps(value, ensure_ascii=False, separators=separators).encode())
    except UnicodeEncodeError:
        raise ConfigError(PLACE, "text of whole characters", f"{value!r} came", "correct it") from None


def string(schema: dict) -> Node:
    """A string with pattern (searched for, as the standard says), format, minLength and maxLength (in characters)."""
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    parts: list[Node] = []
    if low or high is not None or not {"pattern", "format"} & set(schema):
        if high is not None and high < low:
            return NOTHING
        parts.append(Repeat(CHARACTER, low, high))
    if "pattern" in schema:
        parts.append(regex(schema["pattern"], search=True, in_json=True))
    if "format" in schema:
        if schema["format"] not in FORMATS:
            known = ", ".join(FORMATS)
            raise ConfigError(PLACE, f"format is one of {known}", f"{schema['format']!r} came", "use one of those, or a pattern")
        parts.append(regex(FORMATS[schema["format"]], in_json=True))
    if len(parts) > 1:
        machine = machine_of(parts[0])
        for part in parts[1:]:
            machine = intersection(machine, machine_of(part))
        parts = [Fixed(machine)]
    return seq(QUOTE, parts[0], QUOTE)


def key_but(names: list[str]) -> Node:
    """A key that is none of these."""
    if not names:
        return STRING
    machine: Machine = difference(machine_of(STRING), machine_of(alt(*map(written, names))))
    return Fixed(machine)


def _bounds(schema: dict) -> tuple[Decimal | None, bool, Decimal | None, bool]:
    """(low, is it excluded, high, is it excluded)."""

    def tightest(with_it: str, without: str, sign: int):
        both = [(sign * Decimal(repr(schema[name])), excluded) for name, excluded in ((with_it, False), (without, True)) if name in schema]
        value, excluded = max(both, default=(None, False))
        return (None if value is None else sign * value), excluded

    return (*tightest("minimum", "exclusiveMinimum", 1), *tightest("maximum", "exclusiveMaximum", -1))


def _scaled(schema: dict, decimals: int) -> tuple[int, int]:
    """The bounds as whole numbers of the last decimal, both included."""
    low, above, high, below = _bounds(schema)
    unit, largest = 10**decimals, LARGEST * 10**decimals
    first, last = -largest, largest
    if low is not None:
        first = max(first, math.floor(low * unit) + 1 if above else math.ceil(low * unit))
    if high is not None:
        last = min(last, math.ceil(high * unit) - 1 if below else math.floor(high * unit))
    return first, last


def integer(schema: dict) -> Node:
    """A whole number of at most 15 digits, without fraction or exponent, within the schema's bounds."""
    return _decimal(*_scaled(schema, 0), 0)


def number(schema: dict) -> Node:
    """A number of at most 15 digits before the point and 15 after, and an exponent of two; with bounds 6 decimals and no exponent."""
    if not {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} & set(schema):
        whole = alt(Text(b"0"), seq(NONZERO, Repeat(DIGIT, 0, DIGITS - 1)))
        sign = Repeat(Text(b"-"), 0, 1)
        fraction = Repeat(seq(Text(b"."), Repeat(DIGIT, 1, DIGITS)), 0, 1)
        exponent = seq(Chars(((69, 69), (101, 101))), Repeat(Chars(((43, 43), (45, 45))), 0, 1), Repeat(DIGIT, 1, 2))
        return seq(sign, whole, fraction, Repeat(exponent, 0, 1))
    low, _, high, _ = _bounds(schema)
    decimals = max([DECIMALS, *(max(0, -bound.as_tuple().exponent) for bound in (low, high) if bound is not None)])
    if decimals > DIGITS:
        raise ConfigError(PLACE, f"bounds have at most {DIGITS} decimals", f"{low} … {high} came", "round them")
    return alt(*(_decimal(*_scaled(schema, count), count) for count in range(decimals + 1)))


def _decimal(low: int, high: int, decimals: int) -> Node:
    """Whole numbers low … high with a point before so many last digits."""
    options = []
    if low <= high and low < 0:
        options.append(seq(Text(b"-"), _digits(max(1, -high), -low, decimals)))
    if low <= high and high >= 0:
        options.append(_digits(max(0, low), high, decimals))
    return alt(*options)


def _digits(low: int, high: int, decimals: int) -> Node:
    options = []
    for length in range(decimals + 1, len(str(high)) + 1 if len(str(high)) > decimals else decimals + 2):
        first = max(low, 10 ** (length - 1) if length > decimals + 1 else 0)
        last = min(high, 10**length - 1)
        if first <= last:
            options.append(_between(str(first).zfill(length), str(last).zfill(length), length - decimals if decimals else -1))
    return alt(*options)


def _between(low: str, high: str, point: int) -> Node:
    """Digits of one length from low to high, with a point before digit number `point`."""
    if not low:
        return EMPTY
    if not low.strip("0") and not high.strip("9"):  # all of that length
        before = len(low) if point < 0 else point
        free = Repeat(DIGIT, before, before)
        return free if point < 0 else seq(free, Text(b"."), Repeat(DIGIT, len(low) - point, len(low) - point))
    dot = Text(b".") if point == 0 else EMPTY
    if low[0] == high[0]:
        return seq(dot, Text(low[0].encode()), _between(low[1:], high[1:], point - 1))
    rest = len(low) - 1
    options = [
        seq(Text(low[0].encode()), _between(low[1:], "9" * rest, point - 1)),
        seq(Text(high[0].encode()), _between("0" * rest, high[1:], point - 1)),
    ]
    if int(high[0]) - int(low[0]) > 1:
        middle = Chars(((ord(low[0]) + 1, ord(high[0]) - 1),))
        options.append(seq(middle, _between("0" * rest, "9" * rest, point - 1)))
    return seq(dot, Alt(tuple(options)))
