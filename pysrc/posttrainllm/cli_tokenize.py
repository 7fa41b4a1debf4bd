"""`posttrainllm tokenize`: learn a tokenizer from a text, or show how one splits a text."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .cli_output import emit
from .data import tokenizer_json
from .data.bpe import BPETokenizer
from .data.corpus import Corpus
from .errors import ConfigError, DataError, StoreError


def tokenize(
    text: str | None,
    data: str | None,
    tokenizer: Path | None,
    vocabulary: int | None,
    out: Path | None,
    specials: tuple[str, ...],
    minimum: int,
    merges: bool,
    as_json: bool,
) -> None:
    """With a tokenizer: split `text`, count `data`, or list its merges. Without: learn one from `data` and write it to `out`."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 must not end the list
    if tokenizer is None:
        if text is not None or merges:
            raise _unclear("a text is shown by a tokenizer", "no --tokenizer came", "add --tokenizer FILE")
        if data is None or vocabulary is None or out is None:
            raise _unclear(
                "to learn, it needs --data, --vocabulary and --out",
                "one is missing",
                "or add --tokenizer FILE to show a text",
            )
        learn(Corpus.named(data), vocabulary, out, specials, minimum, as_json)
        return
    if vocabulary is not None or out is not None or specials:
        raise _unclear(
            "a tokenizer that is there learns nothing more",
            "--vocabulary, --out or --special came",
            "leave --tokenizer away",
        )
    if (text is not None) + (data is not None) + merges != 1:
        raise _unclear("--tokenizer takes one of TEXT, --data and --merges", "none or several came", "give one")
    opened = read(tokenizer)
    if merges:
        list_merges(opened, as_json)
    elif data is not None:
        count(opened, Corpus.named(data), as_json)
    else:
        show(opened, text, as_json)


def _unclear(rule: str, came: str, remedy: str) -> ConfigError:
    return ConfigError("tokenize", rule, came, remedy)


def read(path: Path) -> BPETokenizer:
    """A tokenizer.json. Raises FormatError, DataError when it cannot be read."""
    try:
        if path.stat().st_size > tokenizer_json.LIMIT_BYTES:
            raise tokenizer_json.refusal(
                f"a file has at most {tokenizer_json.LIMIT_BYTES:,} bytes", f"{path.name} has more"
            )
        return BPETokenizer.from_json(path.read_bytes())
    except OSError as error:
        raise DataError(
            "tokenizer", "a tokenizer.json that can be read", f"{path}: {error.strerror or error}", "check the path"
        ) from error


def asked_for(path: Path | None, bpe: int | None, corpus: Corpus) -> BPETokenizer | None:
    """What `train --tokenizer FILE` or `train --bpe N` asks for; None where neither does.

    --bpe learns from the training part: the validation part is to stay unseen by the tokenizer too.
    """
    if path is not None and bpe is not None:
        raise ConfigError("train", "a model has one tokenizer", "--tokenizer and --bpe came", "leave one of them out")
    if path is not None:
        return read(path)
    return None if bpe is None else BPETokenizer.train(bytes(corpus.data[: corpus.split]), bpe)


def refuse_another(path: Path | None, bpe: int | None, corpus: Corpus) -> None:
    """Raise ConfigError where the options ask for another tokenizer than that of the run's corpus."""
    wanted, own = asked_for(path, bpe, corpus), corpus.tokenizer
    if wanted is not None and wanted.to_dict() != own.to_dict():
        raise ConfigError(
            "resume",
            f"a run goes on with its own tokenizer, {own.name} of {own.vocabulary:,} tokens",
            f"{f'--bpe {bpe}' if path is None else f'--tokenizer {path}, {wanted.vocabulary:,} tokens,'} came",
            "leave that option out, or start a new run in another --out",
        )


def fewer_than_asked(bpe: int | None, tokenizer) -> list[str]:
    """A sentence where a text gave fewer tokens than --bpe asked for."""
    if bpe is None or tokenizer.vocabulary >= bpe:
        return []
    return [f"The text gave {tokenizer.vocabulary:,} tokens rather than {bpe:,}: no other pair comes twice in its training part."]


def learn(corpus: Corpus, vocabulary: int, out: Path, specials: tuple[str, ...], minimum: int, as_json: bool) -> None:
    """Learn from a whole text, write the file, say what came of it."""
    began = time.perf_counter()
    made = BPETokenizer.train(corpus.data, vocabulary, specials, minimum)
    seconds = time.perf_counter() - began
    try:
        out.write_text(made.to_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            "tokenizer", f"{out} can be written", error.strerror or str(error), "choose another place"
        ) from error
    facts = {
        "vocabulary": made.vocabulary,
        "merges": len(made.merges),
        "bytes": len(corpus.data),
        "seconds": seconds,
        "engine": made.engine.name,
    }
    if as_json:
        emit({"event": "trained", "out": str(out)} | facts)
        return
    print(
        f"{made.vocabulary:,} tokens, {len(made.merges):,} merges from {corpus.name} ({len(corpus.data):,} bytes) in {seconds:.2f} s: {out}"
    )
    if made.vocabulary < vocabulary:
        print(f"Fewer than {vocabulary:,}: no other pair comes {minimum} times.")


def show(tokenizer: BPETokenizer, text: str, as_json: bool) -> None:
    """The text's tokens, each with its id."""
    tokens = tokenizer.pieces(text)
    if as_json:
        emit({"event": "tokens", "ids": [token["id"] for token in tokens], "tokens": tokens})
        return
    for token in tokens:
        print(f"{token['id']:>7}  {_visible(token['text'])}")
    print(f"{len(tokens):,} tokens of {tokens[-1]['end'] if tokens else 0:,} bytes")


def count(tokenizer: BPETokenizer, corpus: Corpus, as_json: bool) -> None:
    """How many tokens a text has."""
    began = time.perf_counter()
    tokens = len(tokenizer.encode_bytes(corpus.data))
    seconds = time.perf_counter() - began
    each = len(corpus.data) / max(1, tokens)
    if as_json:
        emit(
            {
                "event": "counted",
                "bytes": len(corpus.data),
                "tokens": tokens,
                "bytes_per_token": each,
                "seconds": seconds,
            }
        )
        return
    print(f"{corpus.name}: {tokens:,} tokens of {len(corpus.data):,} bytes, {each:.2f} bytes a token; {seconds:.2f} s")


def list_merges(tokenizer: BPETokenizer, as_json: bool) -> None:
    """The merges in order."""
    for row in tokenizer.merge_list():
        if as_json:
            emit({"event": "merge"} | row)
        else:
            print(
                f"{row['rank'] + 1:>7}  {_visible(row['left'])} + {_visible(row['right'])} = {_visible(row['text'])}  {row['id']}"
            )


def _visible(text: str) -> str:
    return "".join(
        c if c.isprintable() and c != " " else {" ": "␣", "\n": "\\n", "\t": "\\t"}.get(c, f"\\u{{{ord(c):x}}}")
        for c in text
    )
