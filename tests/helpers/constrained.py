"""Models that know nothing, for constrained decoding: every token is as likely as any other, which is the hardest case."""

import codecs
import random
import sys

from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.decode.constrain import Vocabulary, vocabulary_of
from posttrainllm.decode.generate import write
from posttrainllm.model.config import GPTConfig

MANY = 100 if sys.platform == "emscripten" else 1000
"""Texts of each rule that the judges see: issue 4's thousand natively. In Pyodide, whose Python is several times slower and runs the
same Python, they would take minutes to find nothing new: the engine below it is tested to give the same bits."""


class WordTokenizer:
    """A vocabulary like BPE's: all bytes, longer tokens made up of `alphabet`, and a mark that is no text."""

    def __init__(self, alphabet: str, size: int = 600, seed: int = 1, every_byte: bool = True) -> None:
        noise, letters = random.Random(seed), alphabet.encode()
        tokens = [bytes((byte,)) for byte in range(256)] if every_byte else []
        while len(tokens) < size - 1:
            tokens.append(bytes(noise.choice(letters) for _ in range(noise.randrange(1, 6))))
        self.tokens, self.specials, self.vocabulary = (*tokens, b"<|end|>"), {"<|end|>": size - 1}, size

    def encode(self, text):
        return list(text.encode())

    def stream(self):
        decoder, tokens = codecs.getincrementaldecoder("utf-8")("strict"), self.tokens

        class Stream:
            def push(self, token):
                return decoder.decode(tokens[token])

            def finish(self):
                return decoder.decode(b"", True)

        return Stream()


class Noise:
    """Logits out of a few rows of random numbers, in random order."""

    def __init__(self, tokenizer=None, seed: int = 1, spread: float = 1.0) -> None:
        self.tokenizer = tokenizer or ByteTokenizer()
        self.config = GPTConfig(layers=1, channels=4, heads=1, context=64, vocabulary=self.tokenizer.vocabulary + 3)
        self._noise = random.Random(seed)
        self._rows = [[self._noise.gauss(0, spread) for _ in range(self.config.vocabulary)] for _ in range(50)]

    async def logits_async(self, window):
        return self._noise.choice(self._rows)


BYTES = vocabulary_of(ByteTokenizer())
WORDS = WordTokenizer('abcdefghij"{}[]:,-. 0123456789é€🙂\\n+*()truenls')
WORD_VOCABULARY = vocabulary_of(WORDS)
SEVERAL = Vocabulary([b"ab", b"c", b"", b"(", b")(", b"b", b"aa", b")", b"bc"])
"""A vocabulary that cannot spell everything."""


def written(model, constraint, tokens=60, **how):
    """(text, last piece) of one constrained text."""
    how = {"temperature": 1.0, "top_k": 0, "seed": 0, **how}
    pieces = list(write(model, "x", tokens, constraint=constraint, **how))
    assert pieces[-1].tokens <= tokens
    assert all(piece.reason is None for piece in pieces[:-1])
    return "".join(piece.text for piece in pieces), pieces[-1]


def samples(make, count, tokens=60, **how):
    """`count` texts, half over bytes and half over words; make(vocabulary) gives the constraint. Each must be complete."""
    for model, vocabulary in ((Noise(), BYTES), (Noise(WORDS), WORD_VOCABULARY)):
        constraint = make(vocabulary)
        for seed in range(count // 2):
            end = ("model", "first", "longest")[seed % 3]
            text, last = written(model, constraint, tokens, **{"seed": seed, "end": end, **how})
            assert last.reason == "complete"
            yield text
