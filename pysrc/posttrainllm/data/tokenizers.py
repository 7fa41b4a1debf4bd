"""bytes: the tokenizer whose vocabulary is the 256 byte values. Every text is already its tokens."""

from __future__ import annotations

import codecs

from ..errors import DataError


class ByteTokenizer:
    """UTF-8 bytes as tokens 0 … 255."""

    name = "bytes"
    vocabulary = 256

    def encode(self, text: str) -> bytes:
        """Text to tokens: its UTF-8 bytes (a bytes object is a sequence of token ids).

        Half a surrogate pair, which a page can send and UTF-8 cannot hold, becomes U+FFFD.
        """
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")

    def decode(self, tokens) -> str:
        """Tokens to text; bytes that are not UTF-8 become U+FFFD."""
        return bytes(tokens).decode("utf-8", "replace")

    def stream(self) -> ByteStream:
        """A decoder for one token at a time that never shows half a character."""
        return ByteStream()

    def to_dict(self) -> dict:
        """What a checkpoint keeps."""
        return {"name": self.name, "vocabulary": self.vocabulary}


class ByteStream:
    """Incremental UTF-8: push tokens, get only complete characters; finish gives what is left as U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Text that this token completes ("" while a character is unfinished)."""
        return self._decoder.decode(bytes((token,)))

    def finish(self) -> str:
        """The rest, incomplete characters replaced."""
        return self._decoder.decode(b"", True)


def from_dict(settings: dict) -> ByteTokenizer:
    """The tokenizer that a checkpoint names. Raises DataError for one this version does not have."""
    name = settings.get("name")
    if name != "bytes":
        raise DataError(
            "tokenizer", "a known tokenizer (bytes)", f"{name!r} came", "open this run with a newer version"
        )
    return ByteTokenizer()
