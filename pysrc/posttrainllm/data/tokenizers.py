"""Tokenizers by name: bytes, whose vocabulary is the 256 byte values and every text its own tokens; and bpe (data/bpe.py)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..errors import DataError, FormatError
from .stream import ByteStream, to_utf8

if TYPE_CHECKING:
    from .bpe import BPETokenizer


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 … 255."""

    name = "bytes"
    vocabulary = 256

    def encode(self, text: str) -> bytes:
        """Text to tokens: its UTF-8 bytes (a bytes object is a sequence of token ids).

        Half a surrogate pair, which a page can send and UTF-8 cannot hold, becomes U+FFFD.
        """
        return to_utf8(text)

    def encode_bytes(self, data: bytes) -> bytes:
        """Any bytes to tokens: themselves."""
        return bytes(data)

    def decode(self, tokens) -> str:
        """Tokens to text; bytes that are not UTF-8 become U+FFFD."""
        return bytes(tokens).decode("utf-8", "replace")

    def stream(self) -> ByteStream:
        """A decoder for one token at a time that never shows half a character."""
        return ByteStream()

    def to_dict(self) -> dict:
        """What a checkpoint keeps."""
        return {"name": self.name, "vocabulary": self.vocabulary}


def facts(settings: dict) -> dict:
    """What a list says of the tokenizer that a checkpoint keeps: name, vocabulary, and a short sha256 that is equal only for the same
    one ("" for bytes)."""
    name, vocabulary, text = settings.get("name"), settings.get("vocabulary"), settings.get("json")
    return {
        "name": name if isinstance(name, str) else "",
        "vocabulary": vocabulary if isinstance(vocabulary, int) else 0,
        "sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] if isinstance(text, str) else "",
    }


def plain(tokenizer: ByteTokenizer | BPETokenizer) -> ByteTokenizer | BPETokenizer:
    """The tokenizer itself, or ByteTokenizer where it is that one spelt as BPE: byte n is token n, and there are no merges."""
    if tokenizer.name == "bpe" and not tokenizer.merges and not tokenizer.specials and tokenizer.tokens == tuple(bytes((n,)) for n in range(256)):
        return ByteTokenizer()
    return tokenizer


def from_dict(settings: dict) -> ByteTokenizer | BPETokenizer:
    """The tokenizer that a checkpoint names. Raises DataError for one this version does not have, FormatError for an unsound one."""
    name = settings.get("name")
    if name == "bpe":
        from .bpe import BPETokenizer

        text = settings.get("json")
        if not isinstance(text, str):
            raise FormatError(
                "tokenizer", "a bpe tokenizer comes with its tokenizer.json", "none came", code="E-FORMAT-METADATA"
            )
        return BPETokenizer.from_json(text)
    if name != "bytes":
        raise DataError(
            "tokenizer", "a known tokenizer (bytes, bpe)", f"{name!r} came", "open this run with a newer version"
        )
    return ByteTokenizer()
