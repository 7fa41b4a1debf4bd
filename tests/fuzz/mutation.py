"""Inputs that are nearly right: what seeds become when bytes, numbers, or values inside JSON are changed. All from one random.Random."""

from __future__ import annotations

import json
import random

NUMBERS = (0, 1, 2, 7, 8, 127, 255, 256, 4095, 4096, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
VALUES = (None, True, False, 0, -1, 1, 2, 256, 1 << 31, 1 << 70, 0.5, -0.0, 1e308, 1e400, "", "a", "\ud800", "é" * 9, "9" * 5000, [], {}, [[]], [None], {"a": 1}, [1, 2, 3],
          "x" * 300, {"$ref": "#"}, {"type": "object"}, [0] * 50)  # fmt: skip
PIECES = (b"\0", b"\xff", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\n", b"\r", b"null", b"1e999", b"-1", b"\\ud800", b"{}" * 30, b"[" * 60, b"(" * 60, b"a{0,9999}",
          b"(?=a)", b"\\u0000", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b'"a":1,', b"$ref", b"*", b"+", b"|", b"?", b"{9}", b"  ")  # fmt: skip


def mutated(seeds: list[bytes], chance: random.Random) -> bytes:
    """One of them, changed once to eight times."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        data = chance.choice((_bytes, _bytes, _number, _splice, _json, _json))(data, seeds, chance)
    return data


def _place(data: bytes, chance: random.Random) -> int:
    """Anywhere, and often near the start, where headers are."""
    return chance.randrange(min(len(data), 64) + 1) if chance.random() < 0.3 else chance.randrange(len(data) + 1)


def _bytes(data: bytes, seeds, chance: random.Random) -> bytes:
    at, end = sorted((_place(data, chance), _place(data, chance)))
    kind = chance.randrange(5)
    if kind == 0:
        return data[:at] + data[at + chance.choice((1, 2, 4, 16)) :]
    if kind == 1:
        return data[:at] + chance.choice(PIECES) + data[at:]
    if kind == 2 and at < len(data):
        return data[:at] + bytes((data[at] ^ (1 << chance.randrange(8)),)) + data[at + 1 :]
    return data[:at] if kind == 3 else data[:at] + data[end:] if chance.random() < 0.3 else data[:at] + data[at : at + 40] * 3 + data[at + 40 :]


def _number(data: bytes, seeds, chance: random.Random) -> bytes:
    at, width = _place(data, chance), chance.choice((1, 2, 4, 8))
    return data[:at] + (chance.choice(NUMBERS) % (1 << (8 * width))).to_bytes(width, "little") + data[at + width :]


def _splice(data: bytes, seeds, chance: random.Random) -> bytes:
    other = chance.choice(seeds)
    return data[: _place(data, chance)] + other[_place(other, chance) :]


def _json(data: bytes, seeds, chance: random.Random) -> bytes:
    """A JSON object or list in it, the largest from some bracket on, with a value in it changed; a safetensors' length is put right."""
    starts = [at for at in (data.find(b"{"), data.find(b"["), data.find(b"{", _place(data, chance))) if at >= 0]
    if not starts:
        return data
    begin = chance.choice(starts)
    try:
        value, length = json.JSONDecoder().raw_decode(data[begin:].decode("latin-1"))
    except (ValueError, RecursionError):
        return data
    text = json.dumps(_changed(value, chance, 0), separators=chance.choice(((",", ":"), (", ", ": ")))).encode("latin-1", "replace")
    head = data[:begin]
    if begin == 8 and int.from_bytes(head, "little") >= length:
        text += b" " * (-len(text) % 8)
        head = len(text).to_bytes(8, "little")
        length = int.from_bytes(data[:8], "little")
    return head + text + data[begin + length :]


def _changed(value, chance: random.Random, depth: int):
    if isinstance(value, str) and chance.random() < 0.3 and value[:1] in ("{", "["):  # JSON in a text, as metadata is
        try:
            return json.dumps(_changed(json.loads(value), chance, depth + 1))
        except (ValueError, RecursionError):
            pass
    if depth > 6 or not isinstance(value, (dict, list)) or not value or chance.random() < 0.15:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        kind = chance.randrange(6)
        if kind == 0:
            return {name: each for name, each in value.items() if name != key}
        if kind == 1:
            return value | {chance.choice(("extra", "", "__metadata__", key + "2", "\u0000")): chance.choice(VALUES)}
        return value | {key: _changed(value[key], chance, depth + 1)}
    at = chance.randrange(len(value))
    return value[:at] + ([] if chance.random() < 0.2 else [_changed(value[at], chance, depth + 1)]) + value[at + 1 :]
