"""A vocabulary as the bytes of its tokens, arranged by what they begin with."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ...errors import ConfigError


class Branch:
    """A beginning that tokens share: the tokens that are exactly this, and the longer ones by their next byte."""

    __slots__ = ("after", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.after: dict[int, Branch] = {}


class Vocabulary:
    """tokens[i] are token i's bytes. A token without bytes (a mark for the end, padding) is never allowed.

    Raises ConfigError when no token has any.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tuple(bytes(token) for token in tokens)
        self.root = Branch()
        for number, data in enumerate(self.tokens):
            branch = self.root
            for byte in data:
                if byte not in branch.after:
                    branch.after[byte] = Branch()
                branch = branch.after[byte]
            if data:
                branch.tokens.append(number)
        if not self.root.after:
            raise ConfigError(
                "constraint",
                "a vocabulary with bytes in its tokens",
                f"{len(self.tokens)} empty ones came",
                "pass their bytes",
            )
        self.bytes_only = all(not branch.after for branch in self.root.after.values())

    def __len__(self) -> int:
        return len(self.tokens)


BYTES = tuple(bytes((byte,)) for byte in range(256))
_KNOWN: WeakKeyDictionary = WeakKeyDictionary()  # a text would look at every token of its tokenizer before its first


def token_bytes(tokenizer) -> tuple[bytes, ...]:
    """The bytes of each token of a model's tokenizer; none for special tokens, which are marks and not text."""
    if not hasattr(tokenizer, "tokens"):
        return BYTES
    if tokenizer not in _KNOWN:
        marks = set(tokenizer.specials.values())
        _KNOWN[tokenizer] = tuple(b"" if number in marks else data for number, data in enumerate(tokenizer.tokens))
    return _KNOWN[tokenizer]


def vocabulary_of(tokenizer) -> Vocabulary:
    """The vocabulary of a model's tokenizer."""
    return Vocabulary(token_bytes(tokenizer))
