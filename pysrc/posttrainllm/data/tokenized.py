"""A corpus as the tokens of another tokenizer, split at the same byte, so that losses compare in bits per byte."""

from __future__ import annotations

import hashlib
import sys
from array import array

from .batches import evaluation_starts
from .corpus import Corpus


class TokenizedCorpus(Corpus):
    """The same text, sha256 and split in bytes; `train` and `validation` are memoryviews of token ids: uint16 ("H") where the
    vocabulary allows it, else int32 ("i").

    Each part is encoded by itself, so that it stands for exactly its bytes. Made by Corpus.tokens.
    """

    def __init__(self, corpus: Corpus, tokenizer) -> None:
        self.name, self.data, self.sha256 = corpus.name, corpus.data, corpus.sha256
        self.tokenizer = tokenizer
        self._split(corpus.validation_fraction)

    def _split(self, validation_fraction: float) -> None:
        super()._split(validation_fraction)
        kind = "H" if self.tokenizer.vocabulary <= 1 << 16 else "i"
        parts = (self.data[: self.split], self.data[self.split :])
        self._train, self._validation = (array(kind, self.tokenizer.encode_bytes(part)) for part in parts)

    @property
    def train(self) -> memoryview:
        """Training tokens."""
        return memoryview(self._train)

    @property
    def validation(self) -> memoryview:
        """Validation tokens."""
        return memoryview(self._validation)

    @property
    def tokens_sha256(self) -> str:
        """Of the training tokens and then the validation tokens, little-endian, as wide as they are held."""
        total = hashlib.sha256()
        for part in (self._train, self._validation):
            if sys.byteorder == "big":
                part = array(part.typecode, part)
                part.byteswap()
            total.update(part)
        return total.hexdigest()

    def tokens(self, tokenizer) -> Corpus:
        """The same text as another tokenizer's tokens."""
        return Corpus(self.name, self.data, self.validation_fraction).tokens(tokenizer)

    def evaluated_bytes_per_token(self, context: int, count: int) -> float:
        """Bytes over tokens of an evaluation's targets; see Corpus."""
        tokens, lengths = self._validation, [len(token) for token in self.tokenizer.tokens]
        starts = evaluation_starts(len(tokens), context, count)
        nbytes = sum(lengths[token] for start in starts for token in tokens[start + 1 : start + context + 1])
        return nbytes / max(1, len(starts) * context)

    def facts(self) -> dict:
        """Those of the text, and how it is tokenized."""
        count = len(self._train) + len(self._validation)
        return super().facts() | {
            "tokenizer": self.tokenizer.name,
            "vocabulary": self.tokenizer.vocabulary,
            "tokens": count,
            "bytes_per_token": len(self.data) / max(1, count),
            "tokens_sha256": self.tokens_sha256,
        }
