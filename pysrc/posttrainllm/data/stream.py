"""Text to UTF-8 and back, one token at a time."""

from __future__ import annotations

import codecs
from collections.abc import Callable


def to_utf8(text: str) -> bytes:
    """UTF-8 bytes. Half a surrogate pair, which a page can send and UTF-8 cannot hold, becomes U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def _byte(token: int) -> bytes:
    return bytes((token,))


class ByteStream:
    """Incremental UTF-8: push tokens, get only complete characters; finish gives what is left as U+FFFD.

    `bytes_of` gives a token's bytes; by default a token is a byte.
    """

    def __init__(self, bytes_of: Callable[[int], bytes] = _byte) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes_of = bytes_of

    def push(self, token: int) -> str:
        """Text that this token completes ("" while a character is unfinished)."""
        return self._decoder.decode(self._bytes_of(token))

    def finish(self) -> str:
        """The rest, incomplete characters replaced."""
        return self._decoder.decode(b"", True)
