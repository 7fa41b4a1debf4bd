"""A text to train on: checked, hashed, split into a training and a validation part."""

from __future__ import annotations

import codecs
import hashlib
from copy import copy
from importlib import resources
from pathlib import Path

from ..configs import load
from ..errors import DataError
from ..model.config import GPTConfig
from .batches import Batches, evaluation_batches
from .bits import bits_per_byte
from .tokenizers import ByteTokenizer

LIMIT_BYTES = 512 * 1024 * 1024
LARGE_BYTES = 20_000_000
PIECE_BYTES = 1 << 20
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


class Corpus:
    """name, data (UTF-8 bytes, newlines as \\n), sha256 of data, and the split into `train` and `validation` tokens.

    The validation part is the last `validation_fraction` of the tokens (default as in configs/training.json), so no
    window of it is ever trained on. The constructor takes data as it is; `from_text`, `from_bytes` and `from_file` check it.
    """

    def __init__(self, name: str, data: bytes, validation_fraction: float | None = None) -> None:
        self.name, self.data = name, data
        self.sha256 = hashlib.sha256(data).hexdigest()
        self.tokenizer = ByteTokenizer()
        self._split(load("training")["validation_fraction"] if validation_fraction is None else validation_fraction)

    def _split(self, validation_fraction: float) -> None:
        self.validation_fraction = validation_fraction
        self.split = len(self.data) - int(len(self.data) * validation_fraction)

    def split_at(self, validation_fraction: float) -> Corpus:
        """The same text with another validation fraction; itself where it has that one."""
        if validation_fraction == self.validation_fraction:
            return self
        other = copy(self)
        other._split(validation_fraction)
        return other

    @property
    def train(self) -> memoryview:
        """Training tokens."""
        return memoryview(self.data)[: self.split]

    @property
    def validation(self) -> memoryview:
        """Validation tokens."""
        return memoryview(self.data)[self.split :]

    def tokens(self, tokenizer) -> Corpus:
        """The same text and split as the tokens of `tokenizer`: itself for bytes, else a TokenizedCorpus."""
        if tokenizer.name == "bytes":
            return self
        from .tokenized import TokenizedCorpus

        return TokenizedCorpus(self, tokenizer)

    def batches(self, context: int, batch: int, seed: int, cursor: dict | None = None) -> Batches:
        """Batches of windows of the training part, from a cursor on."""
        return Batches(self.train, context, batch, seed, cursor)

    def evaluation(self, context: int, batch: int, count: int) -> list[tuple[bytes, bytes]]:
        """The batches of an evaluation of about `count` validation tokens."""
        return evaluation_batches(self.validation, context, batch, count)

    def bits_per_byte(self, loss_nats: float, part: str = "validation") -> float:
        """A mean loss a token of a part ("train" or "validation") as bits a byte of text, which compares over tokenizers."""
        return bits_per_byte(loss_nats, self.bytes_per_token(part))

    def bytes_per_token(self, part: str = "train") -> float:
        """Bytes that a token of a part ("train" or "validation") stands for on average."""
        nbytes, tokens = (self.split, len(self.train)) if part == "train" else (len(self.data) - self.split, len(self.validation))
        return nbytes / tokens if nbytes else 1.0

    def evaluated_bytes_per_token(self, context: int, count: int) -> float:
        """The same over the very tokens whose loss an evaluation of about `count` tokens takes (GPT.evaluate), not an average of the part."""
        return 1.0

    @classmethod
    def from_text(cls, text: str, name: str = "pasted text") -> Corpus:
        """From a string. Raises DataError when it is empty or holds half a surrogate pair."""
        return cls.from_bytes(text.encode("utf-8", "surrogatepass"), name)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Corpus:
        """From a file's bytes: UTF-8 text. Raises DataError (empty, binary, other encodings, too large)."""
        return cls(name, _clean(bytes(data), name))

    @classmethod
    def from_file(cls, path: str | Path) -> Corpus:
        """From a text file. Raises DataError when it cannot be read or is not text."""
        path = Path(path)
        try:
            if path.stat().st_size > LIMIT_BYTES:
                raise _huge(path.name, path.stat().st_size)
            return cls.from_bytes(path.read_bytes(), path.name)
        except OSError as error:
            raise DataError(
                "corpus", "a text file that can be read", f"{path}: {error.strerror or error}", "check the path"
            ) from error

    @classmethod
    def shakespeare(cls) -> Corpus:
        """The bundled plays. Raises DataError when the package was installed without them."""
        found = resources.files(__package__) / "shakespeare.txt"
        if not found.is_file():
            raise DataError(
                "corpus",
                "the bundled Shakespeare is made when the project is built",
                "no shakespeare.txt came",
                "run ./build.sh build once, or train on a file of yours",
            )
        return cls("Shakespeare", found.read_bytes())

    @classmethod
    def named(cls, name: str) -> Corpus:
        """ "shakespeare", or the path of a text file."""
        return cls.shakespeare() if name == "shakespeare" else cls.from_file(name)

    def check(self, config: GPTConfig) -> None:
        """Raise DataError when a part is shorter than one window of the model."""
        need = config.context + 1
        for part, tokens in (("training", self.train), ("validation", self.validation)):
            if len(tokens) < need:
                raise DataError(
                    "corpus",
                    f"the {part} part holds at least one window of context + 1 = {need:,} tokens",
                    f"{self.name} has {len(tokens):,} there of {len(self.train) + len(self.validation):,} in all",
                    "use a longer text or a model with a shorter context",
                    code="E-DATA-SHORT",
                )

    def advice(self, config: GPTConfig) -> list[str]:
        """Sentences about text and model that a person should read before training; none when all is well."""
        said = []
        parameters = config.parameter_count()
        if len(self.train) * 4 < parameters:
            said.append(
                f"This text is small for the model: {len(self.train):,} training tokens against {parameters:,} parameters. "
                "It will learn the text by heart rather than its style; a smaller model or a longer text is better."
            )
        if len(self.data) > LARGE_BYTES:
            steps = len(self.train) // (config.batch * config.context)
            said.append(f"This text is long: reading it once takes {steps:,} steps at this model's batch.")
        return said

    def facts(self) -> dict:
        """Size and character facts, as the page shows them. Read in pieces: a text of 50 MB would fill 200 MB as one str."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        characters, distinct, distinct_bytes = 0, set(), set()
        for begin in range(0, len(self.data), PIECE_BYTES):
            piece = self.data[begin : begin + PIECE_BYTES]
            text = decoder.decode(piece)
            characters += len(text)
            distinct.update(text)
            distinct_bytes.update(piece)
        return {
            "name": self.name,
            "bytes": len(self.data),
            "characters": characters,
            "lines": self.data.count(b"\n") + (not self.data.endswith(b"\n")),
            "sha256": self.sha256,
            "train_tokens": len(self.train),
            "validation_tokens": len(self.validation),
            "distinct_bytes": len(distinct_bytes),
            "distinct_characters": len(distinct),
            "preview": self.data[:2400].decode("utf-8", "ignore")[:600],
        }


def _huge(name: str, nbytes: int) -> DataError:
    return DataError(
        "corpus",
        f"a text of at most {LIMIT_BYTES:,} bytes",
        f"{name} has {nbytes:,}",
        "cut it into parts",
        code="E-DATA-HUGE",
    )


def _clean(data: bytes, name: str) -> bytes:
    if len(data) > LIMIT_BYTES:
        raise _huge(name, len(data))
    for bom, encoding in _BOMS.items():
        if data.startswith(bom):
            raise _encoding(name, f"it is {encoding}")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise DataError(
            "corpus",
            "a text with at least one letter",
            f"{name} is empty",
            "choose or paste a text",
            code="E-DATA-EMPTY",
        )
    nul = data.find(b"\0")
    if nul >= 0:
        raise _encoding(name, f"it is a binary file (a zero byte at {nul:,})")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _encoding(name, f"byte {error.start:,} (0x{data[error.start]:02x}) is not UTF-8") from error
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _encoding(name: str, came: str) -> DataError:
    return DataError(
        "corpus",
        "a plain text file in UTF-8",
        f"{name}: {came}",
        "save it as plain text, UTF-8, and choose it again",
        code="E-DATA-ENCODING",
    )
