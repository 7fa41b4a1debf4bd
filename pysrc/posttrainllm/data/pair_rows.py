"""Rows of tokens with the part that counts, and batches of them in an order that a seed and a position give."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from ..ops.lazy import np
from ..ops.normal import GOLDEN, mix
from .batches import IGNORED, permute, tokens_to_i32


@dataclass(frozen=True)
class Sequence:
    """Tokens of a prompt and an answer; those from `first` on are the answer's."""

    tokens: array
    first: int

    def padded(self, context: int) -> tuple[bytes, bytes]:
        """(tokens, targets), each [T] i32: targets are the next tokens where those are the answer's, else -100."""
        inputs, nexts = self.tokens[:-1], self.tokens[1:]
        counted = max(0, self.first - 1)
        padding = context - len(inputs)
        return (
            tokens_to_i32(inputs) + bytes(4 * padding),
            IGNORED * counted + tokens_to_i32(nexts[counted:]) + IGNORED * padding,
        )

    @property
    def counted(self) -> int:
        """How many targets count."""
        return len(self.tokens) - max(1, self.first)


@dataclass
class Part:
    """Rows, each of one sequence (a pair) or two (chosen, rejected), with their numbers in the file and whole lengths in tokens."""

    rows: list[tuple[Sequence, ...]] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    cut_prompts: int = 0
    cut_answers: int = 0

    @property
    def counted(self) -> int:
        """Targets that count, in all rows."""
        return sum(sequence.counted for row in self.rows for sequence in row)


def encode(texts: list[tuple[str, ...]], indices: list[int], tokenizer, context: int, alike: bool = False) -> Part:
    """Rows of (prompt, answer, …) as tokens that fit a context: its T inputs and the token after them.

    What is too long loses the beginning of its prompt, down to the last token; then the answer its end. The answers of a row
    keep one prompt. A row whose answers are then alike prefers nothing and is left out unless `alike`: a part's indices tell which
    rows it has.
    """
    part = Part()
    for index, (prompt_text, *answer_texts) in zip(indices, texts, strict=True):
        prompt, answers = list(tokenizer.encode(prompt_text)), [list(tokenizer.encode(text)) for text in answer_texts]
        longest = max(map(len, answers))
        whole = len(prompt) + longest
        room = max(1, context + 1 - longest)
        cut_prompt, prompt = len(prompt) > room, prompt[-room:]
        row = tuple(Sequence(array("i", (prompt + answer)[: context + 1]), len(prompt)) for answer in answers)
        if not alike and len(row) > 1 and row[0] == row[1]:
            continue
        part.indices.append(index)
        part.lengths.append(whole)
        part.cut_prompts += cut_prompt
        part.cut_answers += sum(len(prompt) + len(answer) > context + 1 for answer in answers)
        part.rows.append(row)
    return part


class RowBatches:
    """An endless sequence of batches of rows. Each is seen once an epoch; cursor as in data/batches.py.

    A batch is [B,T]: the first sequences of its rows, then the second ones where they have two.
    """

    def __init__(self, part: Part, context: int, rows: int, seed: int, cursor: dict | None = None) -> None:
        self.part, self.context, self.rows, self.seed = part, context, rows, seed
        self.epoch, self.window = (int(cursor["epoch"]), int(cursor["window"])) if cursor else (0, 0)

    @property
    def cursor(self) -> dict[str, int]:
        """Where the next batch begins."""
        return {"epoch": self.epoch, "window": self.window}

    def take(self) -> list[int]:
        """Places in the part of the next batch's rows; crosses into the next epoch in mid-batch where it must."""
        found, size = [], len(self.part.rows)
        for _ in range(self.rows):
            if self.window >= size:
                self.epoch, self.window = self.epoch + 1, 0
            found.append(permute(self.window, size, mix(self.seed * GOLDEN + self.epoch + 1)))
            self.window += 1
        return found

    def next(self) -> tuple[bytes, bytes]:
        """(tokens, targets) of the next batch, i32 bytes."""
        return join(self.part, self.take(), self.context)

    def block(self, count: int):
        """`count` batches: (tokens, targets), int32 arrays [count, B, T]."""
        both = [self.next() for _ in range(count)]
        return tuple(
            np.frombuffer(b"".join(each), "<i4").astype(np.int32).reshape(count, -1, self.context) for each in zip(*both)
        )


def join(part: Part, places: list[int], context: int) -> tuple[bytes, bytes]:
    """(tokens, targets) of some rows of a part: all first sequences, then all second ones."""
    rows = [part.rows[place] for place in places]
    padded = [sequence.padded(context) for column in zip(*rows) for sequence in column]
    return b"".join(tokens for tokens, _ in padded), b"".join(targets for _, targets in padded)


def evaluation_places(part: Part, context: int, count: int) -> list[int]:
    """Rows of a part, evenly spread, for an evaluation of about `count` tokens with their padding."""
    size = len(part.rows)
    wanted = min(size, max(1, count // context))
    return [size * i // wanted for i in range(wanted)]


def in_batches(part: Part, places: list[int], context: int, batch: int) -> list[tuple[bytes, bytes]]:
    """Batches [B,T] of (tokens, targets) of all sequences of some rows, row by row. Sequences that the last batch lacks are zeros
    whose targets do not count."""
    sequences = [sequence for place in places for sequence in part.rows[place]]
    made = []
    for first in range(0, len(sequences), batch):
        padded = [sequence.padded(context) for sequence in sequences[first : first + batch]]
        missing = context * (batch - len(padded))
        made.append((b"".join(t for t, _ in padded) + bytes(4 * missing), b"".join(t for _, t in padded) + IGNORED * missing))
    return made
