"""Byte-level BPE, as GPT-2 has it: tokens are byte strings, built from the 256 bytes by merges in a fixed order.

A text is cut into pre-tokens (data/pretokens.py); in each, of all neighbours that a merge joins, those of the earliest merge
are joined first, the leftmost first, until none is left. Source: Sennrich et al. 2016, arXiv:1508.07909; Radford et al. 2019.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

from ..backends.bpe import BpeEngine, open_bpe, open_bpe_async
from ..errors import DataError
from . import tokenizer_json
from .bpe_reference import ReferenceBpe
from .pretokens import pieces, runs
from .stream import ByteStream, to_utf8
from .symbols import BYTE_ORDER, from_symbols, shown

MAX_VOCABULARY = 1 << 20
MINIMUM = 2
"""A pair must come so often to be merged."""


class BPETokenizer:
    """`tokens[id]` is the token's bytes, `merges` are (left id, right id) in order, `specials` texts that are one token each.

    Specials are found in a text before anything else; they are no part of training. Raises DataError where the parts do not
    belong together.
    """

    name = "bpe"

    def __init__(
        self,
        tokens: Sequence[bytes],
        merges: Iterable[tuple[int, int]],
        specials: dict[str, int] | None = None,
        engine: BpeEngine | None = None,
    ) -> None:
        self.tokens, self.merges, self.specials = tuple(tokens), tuple(merges), dict(specials or {})
        self.vocabulary = len(self.tokens)
        self._table = _table(self.tokens, self.merges, set(self.specials.values()))
        texts = sorted(
            (text.encode("utf-8") for text in self.specials), key=len, reverse=True
        )  # of two that begin here, the longer
        self._special = re.compile(b"|".join(map(re.escape, texts))) if texts else None
        self._special_ids = {text.encode("utf-8"): token for text, token in self.specials.items()}
        self._engine, self._json = engine, ""
        if engine is not None:
            engine.load(self._table)

    @property
    def engine(self) -> BpeEngine:
        """What splits and encodes: the C++ engine, or plain Python where that is not there. Opened at first use."""
        if self._engine is None:
            self._engine = open_bpe(runs()) or ReferenceBpe()
            self._engine.load(self._table)
        return self._engine

    def encode(self, text: str) -> array:
        """Text to tokens, array("i"). Half a surrogate pair becomes U+FFFD."""
        return self.encode_bytes(to_utf8(text))

    def encode_bytes(self, data: bytes) -> array:
        """Any bytes to tokens, array("i"); `decode_bytes` gives them back, UTF-8 or not."""
        if self._special is None:
            return self._plain(data)
        ids, begin = array("i"), 0
        for found in self._special.finditer(data):
            ids.extend(self._plain(data[begin : found.start()]))
            ids.append(self._special_ids[found.group()])
            begin = found.end()
        ids.extend(self._plain(data[begin:]))
        return ids

    def _plain(self, data: bytes) -> array:
        ids = array("i")
        for piece in pieces(data):
            ids.extend(self.engine.encode(piece))
        return ids

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """Tokens to bytes. Raises DataError for a token outside the vocabulary."""
        return b"".join(map(self._bytes_of, tokens))

    def _bytes_of(self, token: int) -> bytes:
        if not 0 <= token < self.vocabulary:
            raise DataError(
                "tokenizer", f"tokens lie between 0 and {self.vocabulary - 1}", f"{token} came",
                "use the tokenizer that the model was trained with", code="E-DATA-TOKEN",
            )  # fmt: skip
        return self.tokens[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """Tokens to text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(tokens).decode("utf-8", "replace")

    def stream(self) -> ByteStream:
        """A decoder for one token at a time that never shows half a character."""
        return ByteStream(self._bytes_of)

    def pieces(self, text: str) -> list[dict]:
        """A text split into tokens, for a page: {id, text, begin, end, special}. begin and end count bytes of UTF-8; text shows
        bytes that are no whole character as \\xNN."""
        found, begin, specials = [], 0, set(self.specials.values())
        for token in self.encode(text):
            end = begin + len(self.tokens[token])
            found.append(
                {
                    "id": token,
                    "text": shown(self.tokens[token]),
                    "begin": begin,
                    "end": end,
                    "special": token in specials,
                }
            )
            begin = end
        return found

    def merge_list(self) -> list[dict]:
        """The merges in order, for a page: {rank, left, right, id, text}; left and right are shown as text is."""
        rows = []
        for rank, at in enumerate(range(256, len(self._table), 3)):
            left, right, token = self._table[at : at + 3]
            sides = {"left": shown(self.tokens[left]), "right": shown(self.tokens[right])}
            rows.append({"rank": rank, **sides, "id": token, "text": shown(self.tokens[token])})
        return rows

    def merge_stages(self, word: str) -> list[list[str]]:
        """How one word comes about, for a page: its parts before the first merge and after each. A word is one pre-token."""
        judge = ReferenceBpe()
        judge.load(self._table)
        data = to_utf8(word)
        if not data or len(data) > 1000 or len(judge.split(data)) > 1:
            raise DataError(
                "tokenizer", "merges are shown for one word without a cut", f"{word[:40]!r} came", "give one word"
            )
        return [[shown(self.tokens[token]) for token in ids] for ids in judge.stages(data)]

    def to_json(self, indent: int | None = None) -> str:
        """The text of a Hugging Face tokenizer.json."""
        return tokenizer_json.write(self.tokens, self.merges, self.specials, indent)

    @classmethod
    def from_json(cls, data: bytes | str) -> BPETokenizer:
        """From the bytes of a tokenizer.json. Raises FormatError for what this tokenizer does not do."""
        tokens, merges, specials = tokenizer_json.read(
            data.encode("utf-8", "replace") if isinstance(data, str) else data
        )
        try:
            return cls(tokens, merges, specials)
        except DataError as error:
            _, rule, came, _ = error.parts
            raise tokenizer_json.refusal(rule, came) from None

    def to_dict(self) -> dict:
        """What a checkpoint keeps."""
        self._json = self._json or self.to_json()
        return {"name": self.name, "vocabulary": self.vocabulary, "json": self._json}

    @classmethod
    def train(cls, data: bytes, vocabulary: int, specials: Sequence[str] = (), minimum: int = MINIMUM) -> BPETokenizer:
        """Learn merges from a text until there are `vocabulary` tokens, specials included, or no pair comes `minimum` times.

        ids: the 256 bytes in GPT-2's order, then merges as they were learned, then specials. Equal to Hugging Face's
        BpeTrainer with ByteLevel.alphabet(); see ext/bpe_train.h for ties. Raises DataError.
        """
        _check_training(data, vocabulary, specials, minimum)
        return cls._trained(open_bpe(runs(), len(data)) or ReferenceBpe(), data, vocabulary, specials, minimum)

    @classmethod
    async def train_async(
        cls, data: bytes, vocabulary: int, specials: Sequence[str] = (), minimum: int = MINIMUM, progress=None
    ) -> BPETokenizer:
        """`train`, where the engine must be waited for (a tab). `progress(bytes counted, bytes in all)` is awaited now and then."""
        _check_training(data, vocabulary, specials, minimum)
        engine, done = await open_bpe_async(runs(), len(data)) or ReferenceBpe(), 0
        for piece in cls._counting(engine, data):
            done += len(piece)
            if progress is not None:
                await progress(done, len(data))
        return cls._merging(engine, vocabulary, specials, minimum)

    @classmethod
    def _trained(
        cls, engine: BpeEngine, data: bytes, vocabulary: int, specials: Sequence[str], minimum: int
    ) -> BPETokenizer:
        for _ in cls._counting(engine, data):
            pass
        return cls._merging(engine, vocabulary, specials, minimum)

    @staticmethod
    def _counting(engine: BpeEngine, data: bytes) -> Iterator[bytes]:
        """Count the words of a text, piece after piece: each is given when it was counted. Closes the engine where that fails."""
        try:
            engine.load(array("i", sorted(range(256), key=BYTE_ORDER.__getitem__)))
            for piece in pieces(data):
                engine.count(piece)
                yield piece
        except BaseException:
            engine.close()
            raise

    @classmethod
    def _merging(cls, engine: BpeEngine, vocabulary: int, specials: Sequence[str], minimum: int) -> BPETokenizer:
        try:
            learned = engine.train(vocabulary - 256 - len(specials), minimum)
        finally:
            engine.close()
        tokens = [bytes((byte,)) for byte in BYTE_ORDER]
        for left, right, token in zip(learned[0::3], learned[1::3], learned[2::3], strict=True):
            if token == len(tokens):
                tokens.append(tokens[left] + tokens[right])
        first = len(tokens)
        tokens += [text.encode("utf-8") for text in specials]
        merges = zip(learned[0::3], learned[1::3], strict=True)
        return cls(tokens, merges, {text: first + at for at, text in enumerate(specials)})


def _table(tokens: tuple[bytes, ...], merges: tuple[tuple[int, int], ...], specials: set[int]) -> array:
    """The engine's table: the ids of the 256 bytes, then (left, right, token) for each merge."""
    ids = {word: token for token, word in reversed(list(enumerate(tokens))) if token not in specials}
    missing = next((byte for byte in range(256) if bytes((byte,)) not in ids), None)
    if missing is not None:
        raise _unsound("each of the 256 bytes is a token", f"0x{missing:02x} is none")
    table = array("i", (ids[bytes((byte,))] for byte in range(256)))
    if len(set(tokens)) < len(tokens) or any(
        from_symbols(tokens[token].decode("utf-8", "replace")) in ids for token in specials
    ):
        raise _unsound("no two tokens are spelt alike, specials included", "two are")
    seen = set()
    for rank, pair in enumerate(merges):
        left, right = pair
        if not (0 <= left < len(tokens) and 0 <= right < len(tokens)) or {left, right} & specials:
            raise _unsound("merges join tokens of the vocabulary", f"merge {rank:,} joins {left} and {right}")
        if pair in seen:
            raise _unsound("each pair is merged once", f"merge {rank:,} joins {left} and {right} again")
        seen.add(pair)
        token = ids.get(tokens[left] + tokens[right])
        if token is None:
            raise _unsound(
                "what a merge makes is a token", f"merge {rank:,} makes {shown(tokens[left] + tokens[right])!r}"
            )
        table.extend((left, right, token))
    return table


def _unsound(rule: str, came: str) -> DataError:
    return DataError("tokenizer", rule, came, "use the tokenizer.json as it was written")


def _check_training(data: bytes, vocabulary: int, specials: Sequence[str], minimum: int) -> None:
    least = 256 + len(specials)
    if not least <= vocabulary <= MAX_VOCABULARY:
        raise DataError(
            "tokenizer",
            f"a vocabulary holds {least} to {MAX_VOCABULARY:,} tokens",
            f"{vocabulary:,} came",
            "choose another size",
        )
    if minimum < 1:
        raise DataError("tokenizer", "a pair comes at least once to be merged", f"{minimum} came", "use 2")
    if (
        len(set(specials)) != len(specials)
        or not all(specials)
        or any(to_utf8(text).decode() != text for text in specials)
    ):
        raise DataError(
            "tokenizer",
            "special tokens are texts that differ and are not empty",
            f"{ascii(specials)} came",
            "name each once",
        )
    if not data:
        raise DataError(
            "tokenizer", "there is a text to learn from", "it is empty", "choose a text", code="E-DATA-EMPTY"
        )
