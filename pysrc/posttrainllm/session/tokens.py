"""The tokenizer of coming runs as a Session keeps it: bytes, BPE learned from the text, or a tokenizer.json; and what one does to a text.

Events: tokens (the tokenizer in use, and the text in its tokens), learning (how far that is), split, merges, exported.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from ..backends.bpe import prepare
from ..data.bpe import BPETokenizer
from ..data.corpus import Corpus
from ..data.stream import to_utf8
from ..data.symbols import shown
from ..data.tokenizers import ByteTokenizer, facts
from ..errors import ConfigError, DataError

DEFAULT_VOCABULARY = 1024
MOST_SHOWN = 2000
"""Tokens of a text that one `split` names."""
LONGEST_TEXT_BYTES = 1 << 20
MERGES_SHOWN = 100
MOST_COUNTED = 20_000_000
"""Tokens of a text that are counted one by one: more would hold up the rest."""


def facts_of(tokenizer) -> dict:
    """A tokenizer as the page and the list of runs name it: see data.tokenizers.facts."""
    return facts(tokenizer.to_dict())


class Tokens:
    """`tokenizer` is what coming runs use. What was learned from a text is learned anew when the text is another one."""

    def __init__(self, session) -> None:
        self._session = session
        self.tokenizer = ByteTokenizer()
        self._vocabulary: int | None = None  # to learn from whatever the text is; None where nothing is learned
        self._learned: tuple = ()  # (sha256 of the text, vocabulary) of the tokenizer there is
        self._source, self._seconds, self._request = "", 0.0, None
        self._text: tuple = (None, None, None)  # corpus, tokenizer, the one in tokens of the other
        self._counts: tuple = (None, None)

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {
            "tokens.use": self._use,
            "tokens.load": self._load,
            "tokens.save": self._save,
            "tokens.split": self._split,
            "tokens.merges": self._merges,
        }

    # The choice

    async def _use(self, identity, name: str, vocabulary: int = DEFAULT_VOCABULARY) -> None:
        if name not in ("bytes", "bpe"):
            raise ConfigError("tokens", "bytes or bpe", f"{name!r} came", "choose one of those")
        self._refuse_when_training()
        self._request = identity
        if name == "bytes":
            self.tokenizer, self._vocabulary, self._learned = ByteTokenizer(), None, ()
            self._tell(identity)
            return
        await self._learn(vocabulary, identity)
        self._vocabulary = vocabulary

    async def _load(self, identity, buffer, name: str = "tokenizer.json") -> None:
        self._refuse_when_training()
        await prepare()
        self.tokenizer = BPETokenizer.from_json(self._session.host.to_bytes(buffer))
        self._vocabulary, self._learned, self._source, self._seconds = None, (), name, 0.0
        self._request = identity
        self._tell(identity)

    async def follow(self) -> None:
        """The text is another one: learn from it, where that was asked for. What goes wrong is an answer to that request."""
        try:
            if self._vocabulary is not None:
                await self._learn(self._vocabulary, None)
            elif self.tokenizer.name != "bytes":
                self._tell(None)
        except Exception as error:  # noqa: BLE001 - the text itself is fine
            self._session.fail(error, self._request)

    async def ready(self) -> None:
        """Before a run begins: learn from the present text, where that is due."""
        corpus = self._session.corpus
        if self._vocabulary is not None and corpus is not None and self._learned != (corpus.sha256, self._vocabulary):
            await self._learn(self._vocabulary, None)

    async def _learn(self, vocabulary: int, identity) -> None:
        session = self._session
        if session.corpus is None:
            session.corpus = await session.host.bundled_corpus()
        corpus = session.corpus
        if self._learned != (corpus.sha256, vocabulary):
            began = time.perf_counter()
            self._learned = ()
            await prepare()
            part = corpus.data[: corpus.split]  # what is kept aside stays unseen
            self.tokenizer = await BPETokenizer.train_async(part, vocabulary, progress=self._learning)
            self._learned, self._source, self._seconds = (corpus.sha256, vocabulary), corpus.name, time.perf_counter() - began
        self._tell(identity)

    async def _learning(self, done_bytes: int, total_bytes: int) -> None:
        self._session.emit("learning", done_bytes=done_bytes, total_bytes=total_bytes)
        await asyncio.sleep(0)  # the message leaves before the next piece

    def _refuse_when_training(self) -> None:
        if self._session.training.active:
            raise ConfigError("tokens", "another tokenizer between two runs", "a run is going", "stop it first; it is saved when it stops")

    def _tell(self, identity) -> None:
        """What is in use, and the text in its tokens where there is one."""
        tokenizer, corpus = self.tokenizer, self.text()
        event = facts_of(tokenizer) | {"source": self._source, "seconds": self._seconds, "learned": self._vocabulary is not None or bool(self._learned)}
        if tokenizer.name == "bpe":
            event |= {"merges": len(tokenizer.merges), "specials": sorted(tokenizer.specials)[:20]}
        if corpus is not None:
            train, validation = len(corpus.train), len(corpus.validation)
            each = len(corpus.data) / max(1, train + validation)
            event |= {"tokens": train + validation, "train_tokens": train, "validation_tokens": validation, "bytes_per_token": each}
        self._session.emit("tokens", reply_to=identity, **event)

    def text(self) -> Corpus | None:
        """The session's corpus in tokens of the tokenizer in use; None without one."""
        corpus = self._session.corpus
        if corpus is None:
            return None
        if self._text[0] is not corpus or self._text[1] is not self.tokenizer:
            self._text = (corpus, self.tokenizer, corpus.tokens(self.tokenizer))
        return self._text[2]

    # Looking at it

    def _named(self, of: str):
        """The tokenizer that a request means: that of coming runs ("choice") or of the live model ("model")."""
        if of not in ("choice", "model"):
            raise ConfigError("tokens", "of is choice or model", f"{of!r} came", "name one of those")
        if of == "choice":
            return self.tokenizer
        if self._session.model is None:
            raise ConfigError("tokens", "a model whose tokenizer is shown", "there is none yet", "train one, or open a saved run")
        return self._session.model.tokenizer

    async def _save(self, identity, of: str = "choice") -> None:
        tokenizer = self._named(of)
        if tokenizer.name != "bpe":
            raise DataError("tokens", "a tokenizer that is learned or loaded has a file", "bytes have none", "choose BPE first")
        data = (tokenizer.to_json(indent=2) + "\n").encode()
        self._session.emit("exported", self._session.host.join([data], len(data)), reply_to=identity, name="tokenizer.json", bytes=len(data))

    async def _split(self, identity, text: str, of: str = "choice") -> None:
        tokenizer, data = self._named(of), to_utf8(text)
        if len(data) > LONGEST_TEXT_BYTES:
            raise DataError("tokens", f"a text of at most {LONGEST_TEXT_BYTES:,} bytes is shown", f"{len(data):,} came", "show a part of it")
        found = tokenizer.pieces(text) if hasattr(tokenizer, "pieces") else _bytes_of(data)
        self._session.emit(
            "split", reply_to=identity, of=of, tokens=found[:MOST_SHOWN], count=len(found), bytes=len(data),
            bytes_per_token=len(data) / max(1, len(found)), distinct=len({token["id"] for token in found}),
        )

    async def _merges(self, identity, of: str = "choice", search: str = "", first: int = 0) -> None:
        """merges: `MERGES_SHOWN` of them from `first` on, in order; with `search`, of those that make or use a token with that in it."""
        tokenizer = self._named(of)
        rows = tokenizer.merge_list() if tokenizer.name == "bpe" else []
        total = len(rows)
        if search:
            rows = [row for row in rows if search in row["text"] or search == str(row["id"])]
        counts = self._counted(tokenizer)
        page = [row | ({"count": counts.get(row["id"], 0)} if counts is not None else {}) for row in rows[max(0, first) :][:MERGES_SHOWN]]
        self._session.emit("merges", reply_to=identity, of=of, rows=page, first=max(0, first), found=len(rows), total=total, search=search)

    def _counted(self, tokenizer) -> Counter | None:
        """How often each token stands in the session's text; None where that is in other tokens, or too long."""
        corpus = self.text()
        if corpus is None or tokenizer is not self.tokenizer or len(corpus.train) + len(corpus.validation) > MOST_COUNTED:
            return None
        if self._counts[0] is not corpus:
            counts = Counter(corpus.train)
            counts.update(corpus.validation)
            self._counts = (corpus, counts)
        return self._counts[1]


def _bytes_of(data: bytes) -> list[dict]:
    """A text's bytes as BPETokenizer.pieces gives tokens."""
    return [{"id": byte, "text": shown(data[at : at + 1]), "begin": at, "end": at + 1, "special": False} for at, byte in enumerate(data)]
