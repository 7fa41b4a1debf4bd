"""The tokenizer, natively and in the tab: `python -m bench.bpe [--json] [--no-tab]`, on the built site and Shakespeare.

Learns 1,024 tokens from the first million bytes, and encodes the whole text with 1,024 and 8,192 tokens, beside the
`tokenizers` library and plain Python. Every engine's merges and counts of tokens are compared, so a wrong one has no figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from bench import host
from posttrainllm.backends.bpe import open_bpe
from posttrainllm.data import bpe as module
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.bpe_reference import ReferenceBpe
from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pretokens import pieces, runs
from posttrainllm.data.symbols import BYTE_ORDER

MEGABYTE, REPEATS = 1_000_000, 5


def timed(work, repeats: int = REPEATS) -> tuple[float, object]:
    """(Best seconds, the last result)."""
    best, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - began)
    return best, result


def plain(text: bytes) -> dict:
    """Plain Python: the engine is taken away."""
    kept, module.open_bpe = module.open_bpe, lambda *_: None
    try:
        seconds, made = timed(lambda: BPETokenizer.train(text, 1024), 1)
        sample = text[:200_000]
        encoding, _ = timed(lambda: made.encode_bytes(sample), 1)
    finally:
        module.open_bpe = kept
    return {"train_1mb_seconds": seconds, "encode_mb_per_second": len(sample) / encoding / 1e6, "merges": made.merges}


def native(text: bytes, whole: bytes, tokenizers: dict[int, BPETokenizer]) -> dict:
    """The C++ engine under CPython; encode also the first time, with nothing remembered."""
    seconds, made = timed(lambda: BPETokenizer.train(text, 1024))
    found = {"train_1mb_seconds": seconds, "merges": made.merges}
    large, _ = timed(lambda: BPETokenizer.train(whole, 8192), 2)
    found["train_all_8192_seconds"] = large
    for size, tokenizer in tokenizers.items():
        cold, _ = timed(
            lambda tokenizer=tokenizer: BPETokenizer(
                tokenizer.tokens, tokenizer.merges, engine=open_bpe(runs())
            ).encode_bytes(whole)
        )
        warm, ids = timed(lambda tokenizer=tokenizer: tokenizer.encode_bytes(whole))
        found |= {
            f"encode_{size}_mb_per_second": len(whole) / cold / 1e6,
            f"encode_{size}_warm_mb_per_second": len(whole) / warm / 1e6,
        }
        found[f"tokens_{size}"] = len(ids)
    return found


def library(text: bytes, whole: bytes, tokenizers: dict[int, BPETokenizer]) -> dict | None:
    """Hugging Face's library, on the threads it takes."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        return None

    def train():
        theirs = Tokenizer(models.BPE())
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        theirs.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        theirs.train_from_iterator(
            [text.decode()],
            trainers.BpeTrainer(vocab_size=1024, min_frequency=2, initial_alphabet=alphabet, show_progress=False),
        )
        return theirs

    seconds, made = timed(train, 2)
    found = {"train_1mb_seconds": seconds, "merges": BPETokenizer.from_json(made.to_str()).merges}
    for size, tokenizer in tokenizers.items():
        theirs = Tokenizer.from_str(tokenizer.to_json())
        encoding, result = timed(lambda theirs=theirs: theirs.encode(whole.decode()), 1)
        lines = whole.decode().splitlines(keepends=True)
        batch, _ = timed(lambda theirs=theirs, lines=lines: theirs.encode_batch(lines), 1)
        found |= {
            f"encode_{size}_mb_per_second": len(whole) / encoding / 1e6,
            f"encode_{size}_lines_mb_per_second": len(whole) / batch / 1e6,
        }
        found[f"tokens_{size}"] = len(result.ids)
    return found


def tab(text: bytes, whole: bytes, tokenizers: dict[int, BPETokenizer]) -> dict:
    """The engine as WebAssembly in a worker of Chromium."""
    from bench.browser import Tab

    page = Tab()
    try:
        page.data.mkdir(exist_ok=True)
        (page.data / "runs").write_bytes(runs().tobytes())
        counts = {}
        for name, data in (("megabyte", text), ("whole", whole)):
            folder = page.data / name
            folder.mkdir()
            (folder / "runs").write_bytes(runs().tobytes())
            for number, piece in enumerate(pieces(data)):
                (folder / f"piece{number}").write_bytes(piece)
            counts[name] = number + 1
        order = sorted(range(256), key=BYTE_ORDER.__getitem__)
        learned = [
            page.call(
                "bpe", "train", folder="/data/megabyte/", pieces=counts["megabyte"], table=order, tokens=768, minimum=2
            )
            for _ in range(REPEATS)
        ]
        merges = learned[0]["merges"]
        found = {
            "browser": page.version,
            "train_1mb_seconds": min(each["ms"] for each in learned) / 1000,
            "train_1mb_first_seconds": learned[0]["ms"] / 1000,
            "merges": tuple(zip(merges[0::3], merges[1::3], strict=True)),
        }
        for size, tokenizer in tokenizers.items():
            answer = page.call(
                "bpe",
                "encode",
                folder="/data/whole/",
                pieces=counts["whole"],
                table=list(tokenizer._table),
                repeats=REPEATS,
            )
            found |= {
                f"encode_{size}_mb_per_second": len(whole) / answer["ms"][0] / 1e3,
                f"encode_{size}_warm_mb_per_second": len(whole) / min(answer["ms"]) / 1e3,
                f"tokens_{size}": answer["tokens"],
            }
        return found
    finally:
        page.close()


def main(arguments: list[str]) -> int:
    """Measure, print; 1 where two engines do not agree."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.bpe", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-tab", action="store_true", help="without the browser")
    options = parser.parse_args(arguments)
    whole = Corpus.shakespeare().data
    text = whole[:MEGABYTE]
    tokenizers = {size: BPETokenizer.train(whole, size) for size in (1024, 8192)}
    assert not isinstance(tokenizers[1024].engine, ReferenceBpe), "the native engine is not built"
    parts = {
        "native": native(text, whole, tokenizers),
        "python": plain(text),
        "tokenizers library": library(text, whole, tokenizers),
    }
    if not options.no_tab:
        parts["tab"] = tab(text, whole, tokenizers)
    parts = {name: part for name, part in parts.items() if part}
    merges = {part.pop("merges") for part in parts.values()}
    counts = {tuple(part[f"tokens_{size}"] for size in tokenizers) for part in parts.values() if "tokens_1024" in part}
    agree = len(merges) == len(counts) == 1
    if options.json:
        print(
            json.dumps(
                {
                    "host": host.facts(),
                    "busy_cores": host.busy_cores(),
                    "bytes": len(whole),
                    "agree": agree,
                    "parts": parts,
                }
            )
        )
    else:
        for name, part in parts.items():
            print(
                f"{name}: "
                + ", ".join(
                    f"{key} {value:,.3f}" if isinstance(value, float) else f"{key} {value}"
                    for key, value in part.items()
                )
            )
        print("All agree." if agree else "They do NOT agree.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
