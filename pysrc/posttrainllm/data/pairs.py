"""Prompts with their responses (supervised tuning), and with a chosen and a rejected one (preference tuning).

Both take a corpus's place in a Trainer: it asks them for batches, for what an evaluation measures, and for the facts that a saved
run keeps. A sequence is one row: the prompt's tokens, the answer's, then padding. Only the answer's tokens and the end string's
are targets; all others are -100, which no loss counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path

from ..configs import load
from ..errors import ConfigError, DataError
from . import pair_files
from .pair_rows import Part, RowBatches, encode, evaluation_places, in_batches
from .tokenizers import ByteTokenizer


@dataclass(frozen=True)
class Template:
    """How a pair becomes text: before + prompt + between + response + end.

    With the defaults, a line break and an empty line, a prompt is a line (ROMEO:) and its response the paragraph under it. A tuned
    model answers `write(model, template.ask(prompt), stop=template.end)`. Prompt and response are made tokens separately, so that
    a prompt's tokens are the same in training and in writing.
    """

    before: str = ""
    between: str = "\n"
    end: str = "\n\n"

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str):
                raise ConfigError("template", f"{name} is a text", f"{value!r} came", "change it")
        if not self.end:
            raise ConfigError("template", "end is a text that the model learns to stop at", "an empty one came", "leave the default")

    def ask(self, prompt: str) -> str:
        """What a model is given to answer."""
        return f"{self.before}{prompt}{self.between}"

    def answer(self, response: str) -> str:
        """What it learns to write then."""
        return f"{response}{self.end}"


class _Examples:
    """What Pairs and Preferences share. rows are tuples of texts, the prompt first; lines tell where each came from."""

    kind, fields = "pairs", ("prompt", "response")
    place_of = staticmethod(pair_files.pair_of)

    def __init__(self, name: str, rows: Iterable[tuple[str, ...]], template: Template | None = None, long: str = "cut", lines=None):
        self.name, self.template, self.long = name, template or Template(), long
        if long not in ("cut", "refuse"):
            raise ConfigError("pairs", "long is cut or refuse", f"{long!r} came", "choose one of them")
        self.rows = [(prompt, *(answer.strip("\n") for answer in answers)) for prompt, *answers in rows]
        self.lines = list(lines) if lines is not None else list(range(1, len(self.rows) + 1))
        self.left_out = 0
        if not self.rows:
            raise DataError(self.kind, "at least one row", f"{name} has none", "add one", code="E-DATA-EMPTY")
        head = {"kind": self.kind, "long": long} | asdict(self.template)
        self.data = "\n".join(json.dumps(each) for each in (head, *self.rows)).encode()
        self.sha256 = hashlib.sha256(self.data).hexdigest()
        self.tokenizer = ByteTokenizer()
        self._split(load("tuning")["sft"]["validation_fraction"])

    @classmethod
    def _read(cls, rows: Iterable[pair_files.Row], name: str, template: Template | None, long: str):
        found = [(row.line, cls.place_of(row)) for row in rows]
        return cls(name, [texts for _, texts in found], template, long, [line for line, _ in found])

    @classmethod
    def from_jsonl(cls, text: str, name: str = "pasted JSONL", template: Template | None = None, long: str = "cut"):
        """From text with a JSON object a line; for the fields see pair_files.py. Raises DataError, naming the line."""
        return cls._read(pair_files.jsonl_rows(text, name), name, template, long)

    @classmethod
    def from_csv(cls, text: str, name: str = "pasted CSV", template: Template | None = None, long: str = "cut"):
        """From CSV text with a header. Raises DataError, naming the line."""
        return cls._read(pair_files.csv_rows(text, name), name, template, long)

    @classmethod
    def from_list(cls, items: Iterable, name: str = "typed in", template: Template | None = None, long: str = "cut"):
        """From tuples of texts in order, or dicts with a file's fields. Raises DataError, naming the item."""
        return cls._read(pair_files.list_rows(items, name), name, template, long)

    @classmethod
    def from_file(cls, path: str | Path, template: Template | None = None, long: str = "cut"):
        """From a .jsonl, .json or .csv file. Raises DataError, naming the line."""
        return cls._read(pair_files.read_rows(path), Path(path).name, template, long)

    @classmethod
    def from_text(cls, text: str, name: str, template: Template | None = None, long: str = "cut"):
        """From a file's text (a page has no path): JSONL or CSV by the ending of its name, else by how it begins."""
        return cls._read(pair_files.rows_of(text, name), name, template, long)

    def __len__(self) -> int:
        return len(self.rows)

    # What a Trainer asks a corpus for

    def _split(self, validation_fraction: float) -> None:
        """Held-out rows stand evenly spread among the others; where the fraction is less than one row, there are none."""
        self.validation_fraction = validation_fraction
        count, held = len(self.rows), int(len(self.rows) * validation_fraction)
        held_out = {(2 * i + 1) * count // (2 * held) for i in range(held)}
        self.held_out = sorted(held_out)
        self.kept = [index for index in range(count) if index not in held_out]
        self._parts: dict[int, tuple[Part, Part]] = {}

    def split_at(self, validation_fraction: float):
        """The same rows with another share held out."""
        if validation_fraction == self.validation_fraction:
            return self
        other = copy(self)
        other._split(validation_fraction)
        return other

    def tokens(self, tokenizer):
        """The same rows, read by another tokenizer."""
        other = copy(self)
        other.tokenizer, other._parts = tokenizer, {}
        return other

    def parts(self, context: int) -> tuple[Part, Part]:
        """(training, held-out) rows as tokens that fit a context. Without held-out rows both are the training rows."""
        if context not in self._parts:
            ask, answer = self.template.ask, self.template.answer

            def part(indices: list[int]) -> Part:
                texts = [(ask(self.rows[i][0]), *map(answer, self.rows[i][1:])) for i in indices]
                return encode(texts, indices, self.tokenizer, context, alike=self.long == "refuse")  # check names them instead

            train, held = part(self.kept), part(self.held_out)
            if not train.rows:
                raise DataError(
                    self.name, f"the answers of some row differ within the context of {context:,} tokens",
                    f"none of {len(self.kept):,} to train on does", "shorten them, or use a model with a longer context",
                )  # fmt: skip
            self._parts[context] = train, (held if held.rows else train)
        return self._parts[context]

    def batches(self, context: int, batch: int, seed: int, cursor: dict | None = None) -> RowBatches:
        """Training rows in the order of a seed; `batch` sequences at a time (chosen and rejected are two)."""
        train, _ = self.parts(context)
        return RowBatches(train, context, max(1, batch // (len(self.fields) - 1)), seed, cursor)

    def evaluation(self, context: int, batch: int, count: int) -> list[tuple[bytes, bytes]]:
        """Batches [B,T] of (tokens, targets) of held-out rows, about `count` tokens of them with their padding."""
        part = self.parts(context)[1]
        return in_batches(part, evaluation_places(part, context, count), context, batch)

    def bytes_per_token(self, part: str = "train") -> float:
        """Bytes that a counted token of the training rows stands for on average, ends included."""
        chosen = self.kept if part == "train" or not self.held_out else self.held_out
        answers = [self.template.answer(answer).encode("utf-8", "replace") for i in chosen for answer in self.rows[i][1:]]
        tokens = sum(len(self.tokenizer.encode_bytes(answer)) for answer in answers)
        return sum(map(len, answers)) / max(1, tokens)

    def evaluated_bytes_per_token(self, context: int, count: int) -> float:
        """The same of the held-out rows."""
        return self.bytes_per_token("validation")

    def check(self, config) -> None:
        """Raise DataError where a row is longer than the model's context and long is "refuse"."""
        if self.long == "cut":
            return
        for part in self.parts(config.context):
            for index, number in zip(part.indices, part.lengths):
                if number > config.context + 1:
                    raise DataError(
                        f"{self.name}, line {self.lines[index]:,}",
                        f"prompt, response and end are at most context + 1 = {config.context + 1:,} tokens",
                        f"{number:,} came",
                        'shorten it, use a model with a longer context, or give long="cut"',
                    )

    def advice(self, config) -> list[str]:
        """Sentences that a person should read before tuning; none when all is well."""
        facts, said = self.facts(config.context), []
        if facts["cut_prompts"] or facts["cut_answers"]:
            said.append(
                f"{_many(facts['cut_prompts'], 'prompt loses its', 'prompts lose their')} beginning and "
                f"{_many(facts['cut_answers'], 'answer its', 'answers their')} end, because they are longer than the model's context of {config.context:,} tokens."
            )
        if facts["answers_with_end"]:
            said.append(
                f"{_many(facts['answers_with_end'], 'answer holds', 'answers hold')} the end string {self.template.end!r}: writing would stop there."
            )
        if self.left_out:
            said.append(f"Left out because their two answers are alike: {self.left_out:,} of {len(self.rows) + self.left_out:,} rows.")
        if facts["alike_when_cut"]:
            said.append(
                f"Left out because their answers differ only after what fits the model's context of {config.context:,} tokens: "
                f"{facts['alike_when_cut']:,} of {len(self.rows) + self.left_out:,} rows."
            )
        if not facts["held_out"]:
            said.append(f"{_many(len(self.rows), 'row is', 'rows are')} too few to hold some out: the loss shown is that of the rows trained on.")
        return said

    def facts(self, context: int) -> dict:
        """Numbers, as a page shows them."""
        parts = self.parts(context)
        both = parts[:1] if parts[1] is parts[0] else parts
        alike = len(self.rows) - sum(len(part.rows) for part in both)
        return {
            "name": self.name,
            "kind": self.kind,
            "sha256": self.sha256,
            "template": asdict(self.template),
            "rows": len(self.rows),
            "held_out": sum(len(part.rows) for part in both[1:]),
            "left_out": self.left_out + alike,
            "alike_when_cut": alike,
            "counted_tokens": sum(part.counted for part in both),
            "longest_tokens": max(max(part.lengths) for part in both),
            "cut_prompts": sum(part.cut_prompts for part in both),
            "cut_answers": sum(part.cut_answers for part in both),
            "answers_with_end": sum(self.template.end in answer for row in self.rows for answer in row[1:]),
            "preview": [dict(zip(self.fields, row)) for row in self.rows[:5]],
        }


def _many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


class Pairs(_Examples):
    """(prompt, response) rows: make one with from_jsonl, from_csv, from_list or from_file.

    `long` says what happens to rows longer than a model's context: "cut" takes away the prompt's beginning, and the answer's end where
    that alone is too long (facts tells how many); "refuse" makes it an error. Line breaks around a response go, since the end follows.
    """


class Preferences(_Examples):
    """(prompt, chosen, rejected) rows; as Pairs. Rows whose answers are alike, or become so when they are cut to a model's context,
    prefer nothing: they are left out and counted."""

    kind, fields = "preferences", ("prompt", "chosen", "rejected")
    place_of = staticmethod(pair_files.preference_of)

    def __init__(self, name: str, rows: Iterable[tuple[str, ...]], template: Template | None = None, long: str = "cut", lines=None):
        rows = list(rows)
        lines = list(lines) if lines is not None else range(1, len(rows) + 1)
        kept = [(line, row) for line, row in zip(lines, rows) if row[1].strip("\n") != row[2].strip("\n")]
        super().__init__(name, [row for _, row in kept], template, long, [line for line, _ in kept])
        self.left_out = len(rows) - len(kept)
