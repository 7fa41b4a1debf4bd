"""How byte strings are written down: GPT-2's printable stand-ins for bytes in files, and escapes for people."""

from __future__ import annotations

BYTE_ORDER = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(0x21), *range(0x7F, 0xA1), 0xAD)
"""The bytes as GPT-2 numbers them: those that are printable in Latin-1 first."""

_PRINTABLE = len(BYTE_ORDER) - 68
SYMBOLS = {byte: chr(byte) if at < _PRINTABLE else chr(256 + at - _PRINTABLE) for at, byte in enumerate(BYTE_ORDER)}
"""The character that stands for each byte in vocab and merges: itself where printable, else one from U+0100 on."""
BYTES = {ord(symbol): byte for byte, symbol in SYMBOLS.items()}
_TO_SYMBOLS = [SYMBOLS[byte] for byte in range(256)]


def to_symbols(data: bytes) -> str:
    """Bytes as a file names them: b" the" is "Ġthe"."""
    return "".join([_TO_SYMBOLS[byte] for byte in data])


def from_symbols(text: str) -> bytes | None:
    """The bytes that a file's name stands for; None where a character stands for none."""
    try:
        return bytes([BYTES[ord(character)] for character in text])
    except KeyError:
        return None


def shown(data: bytes) -> str:
    """Bytes for a person: text, with \\xNN for bytes that are no whole character."""
    return data.decode("utf-8", "backslashreplace")
