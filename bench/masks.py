"""What a rule costs a token: `./build.sh bench masks [--preset NAME] [--tokens N] [--texts N] [--out FILE]`.

An untrained model writes texts under a rule, over bytes and over BPE tokens, and as many tokens without one, in turn. mask_us is the time
inside the guide (which tokens may come, and what state one leads to), a token; share is that of a token's whole time. The first text
finds the states that later ones know; "warm" is the median of the others.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from pathlib import Path

from bench import host

SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "tags": {"type": "array", "items": {"enum": ["a", "b", None]}}},
        "required": ["name", "age"],
    },
}  # fmt: skip
SUMS = 'start: term (("+"|"-") term)*\nterm: /[0-9]+/ | "(" start ")" | term "*" term'
PATTERN = r"([A-Z][a-z]{1,9} (said|asked): [a-z ,]{5,40}[.?!]\n)+"


def model_of(preset: str, tokenizer):
    """An untrained model with a vocabulary of that tokenizer."""
    from posttrainllm.model.config import GPTConfig
    from posttrainllm.model.live import GPT

    config = GPTConfig.from_dict(GPTConfig.preset(preset).to_dict() | {"vocabulary": tokenizer.vocabulary})
    model = GPT.create(config, device="cpu", threads=1, training=False)
    model.tokenizer = tokenizer
    return model


def one_text(model, constraint, tokens: int, seed: int) -> dict:
    """{"token_us", "mask_us", "tokens"} of one text; mask_us is 0 without a rule."""
    from posttrainllm.decode.constrain.guide import Guide
    from posttrainllm.decode.generate import write

    spent, kept = 0.0, {name: getattr(Guide, name) for name in ("start", "allowed", "take")}

    def timed(call):
        def run(*given):
            nonlocal spent
            began = time.perf_counter()
            found = call(*given)
            spent += time.perf_counter() - began
            return found

        return run

    for name, call in kept.items():
        setattr(Guide, name, timed(call))
    how = {} if constraint is None else {"constraint": constraint, "end": "longest"}
    began = time.perf_counter()
    try:
        for piece in write(model, "ROMEO:", tokens, seed=seed, top_k=0, temperature=1.0, **how):
            written = piece.tokens
    finally:
        whole = time.perf_counter() - began
        for name, call in kept.items():
            setattr(Guide, name, call)
    return {"token_us": 1e6 * whole / written, "mask_us": 1e6 * spent / written, "tokens": written}


def measure(preset: str, tokenizer, tokens: int, texts: int) -> dict:
    """Each rule's first and warm texts, with texts without one between them."""
    from posttrainllm.decode.constrain import grammar, json_schema, regex, vocabulary_of

    model, vocabulary, found = model_of(preset, tokenizer), vocabulary_of(tokenizer), {}
    one_text(model, None, tokens, 0)
    for name, make, rule in (("regex", regex, PATTERN), ("json_schema", json_schema, SCHEMA), ("grammar", grammar, SUMS)):
        began = time.perf_counter()
        constraint = make(rule, vocabulary)
        made = time.perf_counter() - began
        ruled, plain = [], []
        for seed in range(texts + 1):
            ruled.append(one_text(model, constraint, tokens, seed))
            plain.append(one_text(model, None, tokens, seed))
        found[name] = {"compile_ms": round(1000 * made, 1), "plain_token_us": round(statistics.median(each["token_us"] for each in plain), 1)}
        for when, some in (("first", ruled[:1]), ("warm", ruled[1:])):
            token, mask = (statistics.median(each[key] for each in some) for key in ("token_us", "mask_us"))
            found[name][when] = {"token_us": round(token, 1), "mask_us": round(mask, 1), "share": round(mask / token, 4)}
    model.close()
    return found


def main(arguments: list[str]) -> int:
    """Measure, print a table, write the JSON."""
    from posttrainllm.data.bpe import BPETokenizer
    from posttrainllm.data.corpus import Corpus
    from posttrainllm.data.tokenizers import ByteTokenizer

    parser = argparse.ArgumentParser(prog="./build.sh bench masks", description=__doc__)
    parser.add_argument("--preset", default="medium")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / ".out" / "masks.json")
    options = parser.parse_args(arguments)
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "host": host.facts(),
        "busy_cores": host.busy_cores(),
        "preset": options.preset,
        "tokens": options.tokens,
        "vocabularies": {},
    }
    tokenizers = {"bytes": ByteTokenizer(), "bpe 1024": BPETokenizer.train(bytes(Corpus.shakespeare().train), 1024)}
    print("vocabulary  rule         compile   plain token   first: token   mask   share   warm: token   mask   share")
    for name, tokenizer in tokenizers.items():
        record["vocabularies"][name] = found = measure(options.preset, tokenizer, options.tokens, options.texts)
        for rule, row in found.items():
            cells = "".join(f"{row[when]['token_us']:>12,.0f} µs{row[when]['mask_us']:>7,.1f}{row[when]['share']:>8.1%}" for when in ("first", "warm"))
            print(f"{name:<12}{rule:<12}{row['compile_ms']:>6,.0f} ms{row['plain_token_us']:>11,.0f} µs{cells}")
    print(f"\ncores that other work kept busy before: {record['busy_cores']:g}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0
