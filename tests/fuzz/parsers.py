"""Everything in Python that reads what others wrote: by name, what reads it and what it reads when all is well.

`survives` is the property: it is read, or refused with the house's error, a sentence; in bounded time, and with at most so many times the
memory of the input.
"""

from __future__ import annotations

import io
import json
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from posttrainllm.configs import load as settings_of
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pairs import Pairs, Preferences
from posttrainllm.data.tokenizer_json import read_lists
from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.decode import constrain
from posttrainllm.errors import PostTrainError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes
from posttrainllm.session.messages import REQUESTS, checked
from posttrainllm.store import hf, peft
from posttrainllm.store.checkpoint import Checkpoint, history_text
from posttrainllm.store.journal import Journal
from posttrainllm.store.listing import summary_of
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.safetensors import SafeTensors
from posttrainllm.store.volume import FILES, JOURNAL_FILES
from posttrainllm.train.checks import checked as checked_run
from posttrainllm.train.checks import run_state
from posttrainllm.train.settings import training_settings
from posttrainllm.tune.continual.records import Corrections
from tests.store.hf_samples import BPE, PLAIN, checkpoint, folder_of

ROOM_BYTES = 24 << 20
"""Beside what the input itself is allowed: pieces of 4 MiB, and what parsing takes."""
MOST_SECONDS = 10.0
CONFIG = GPTConfig(1, 8, 2, 8, 256, 2)


class Parser(NamedTuple):
    """`factor`: the most bytes of memory for a byte of input, beyond ROOM_BYTES."""

    read: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    factor: int = 64


def survives(name: str, data: bytes, measured: bool = True) -> str:
    """"" where it was read, else the sentence. AssertionError with the input where anything else came."""
    parser = PARSERS[name]
    if measured:
        tracemalloc.start()
    began = time.monotonic()
    said = ""
    try:
        parser.read(data)
    except PostTrainError as error:
        said = str(error)
        assert 10 < len(said) < 1500 and said[-1] in ".!?" and error.code.startswith("E-"), (said, data[:2000])
    except BaseException as error:
        raise AssertionError(f"{name} raised {type(error).__name__}: {error}\ninput: {data[:4000]!r}") from error
    finally:
        seconds = time.monotonic() - began
        peak = tracemalloc.get_traced_memory()[1] if measured else 0
        if measured:
            tracemalloc.stop()
    assert peak < parser.factor * len(data) + ROOM_BYTES, f"{name} took {peak:,} bytes for {len(data):,}: {data[:2000]!r}"
    assert seconds < MOST_SECONDS, f"{name} took {seconds:.1f} s for {len(data):,} bytes: {data[:2000]!r}"
    return said


def seen(tensors) -> None:
    for tensor in tensors.values():
        tensor.view()


def a_checkpoint(data: bytes) -> None:
    found = Checkpoint.from_safetensors(data)
    for group in (found.weights, found.m, found.v):
        seen(group)
    summary_of(found), history_text(found)
    config, _, _ = checked_run(found, False)
    if found.training:
        run_state(found, config)


def a_volume(data: bytes) -> None:
    """The six files of a run from anybody, each after its length in four bytes: listed, opened, read, and saved into."""
    volume = MemoryVolume()
    now(volume.open_run("x", True)).close()
    for file in FILES:
        size = int.from_bytes(data[:4], "little") % (1 << 20)
        volume.runs["x"][file].data[:] = data[4 : 4 + size]
        data = data[4 + size :]
    store = RunStore(volume)
    for info in now(store.list()):
        assert len(info.note) < 1000
    with now(store.open("x")) as run:
        refused = []
        for look in (run.load, lambda: corrections_of(run.journal), lambda: [seen(run.snapshots.load(step)) for step in run.snapshots.steps()]):
            try:
                look()
            except PostTrainError as error:
                refused.append(error)
        run.rename("still")
    if refused:
        raise refused[0]


def corrections_of(journal) -> None:
    """All that C1's reading of a journal does."""
    rows = Corrections(journal)
    rows.list(), rows.to_jsonl(), rows.history.in_use
    for version in rows.history:
        rows.history.adapter(version.number)


def a_journal(data: bytes) -> None:
    """Sound records of facts that nobody of ours wrote: a JSON value a line."""
    volume = MemoryVolume()
    folder = now(volume.open_run("x", True))
    journal = Journal([folder.files[name] for name in JOURNAL_FILES], "run x")
    for line in data.split(b"\n"):
        try:
            facts = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(facts, dict):
            journal.append(facts, b"bytes")
    corrections_of(Journal([folder.files[name] for name in JOURNAL_FILES], "run x"))


def an_adapter(data: bytes) -> None:
    size = int.from_bytes(data[:4], "little") % (1 << 20)
    settings = data[4 : 4 + size]
    peft.from_files(data[4 + size :], settings or None)


def a_zip(data: bytes) -> None:
    seen(hf.read_zip(data).weights)


def a_folder(data: bytes) -> None:
    """A folder of Hugging Face's with one file of another's: its name, a zero, its bytes."""
    name, _, rest = data.partition(b"\0")
    seen(hf.read(hf_files() | {name.decode("latin-1"): rest}).weights)


def a_request(data: bytes) -> None:
    request = json.loads(data.decode("utf-8", "replace")) if data[:1] == b"{" else {"kind": data.decode("latin-1")}
    checked(request)


def bounded_json(read: Callable) -> Callable[[bytes], object]:
    """`read` of a JSON value; what is no JSON does not get there."""

    def parse(data: bytes) -> object:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return read(value)

    return parse


def as_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "replace"))


def constraint(kind: str) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        rule = data.decode("utf-8", "replace")[:400]
        made = constrain.read(kind, rule, constrain.vocabulary_of(ByteTokenizer()))
        return made.start().distance

    return read


@cache
def hf_files() -> dict[str, bytes]:
    return folder_of(checkpoint(PLAIN))


@cache
def run_file() -> bytes:
    made = checkpoint(CONFIG)
    made.history = [{"step": 0, "loss_nats": 5.5}, {"step": 0, "validation_loss_nats": 5.5}]
    made.corpus, made.m, made.v = {"name": "x", "sha256": "ab" * 32}, dict(made.weights), dict(made.weights)
    return made.to_bytes()


@cache
def trained_file() -> bytes:
    """As training leaves it, all its settings in it."""
    made = Checkpoint.from_safetensors(run_file())
    made.training = training_settings({})
    made.cursor, made.rng = {"epoch": 0, "window": 0}, {"seed": 42}
    return made.to_bytes()


def a_run() -> bytes:
    store = RunStore(MemoryVolume(), lambda: "2026-12-01T00:00:00Z")
    with now(store.create("one", "x")) as run:
        run.save(Checkpoint.from_safetensors(run_file()))
        run.snapshots.keep(0, Checkpoint.from_safetensors(run_file()).weights)
        Corrections(run.journal).record("accept", "q", "a", id="c1")
    return b"".join(len(file.data).to_bytes(4, "little") + bytes(file.data) for file in store.volume.runs["x"].values())


def journal_lines() -> list[bytes]:
    correction = {"kind": "correction", "id": "c", "created": "x", "what": "accept", "prompt": "q", "offered": "a", "kept": "a"}
    version = {"kind": "version", "number": 1, "created": "x", "promoted": True, "reasons": [], "figures": {}, "learned": {}, "held_out": {},
               "texts_sha256": "", "parent": None, "base_sha256": "", "adapter_sha256": "ab", "dropped": []}  # fmt: skip
    return [json.dumps(correction).encode() + b"\n" + json.dumps({"kind": "use", "number": None}).encode(), json.dumps(version).encode()]


def peft_file() -> bytes:
    lora = LoRAConfig(2, 4.0, ("attn.q", "mlp.fc"))
    weights = {name: bytes(4 * a * b) for name, (a, b) in shapes(CONFIG, lora).items()}
    files = peft.to_files(Adapter("one", lora, {"layers": 1, "channels": 8}, "ab" * 32, weights))
    return len(files[peft.CONFIG]).to_bytes(4, "little") + files[peft.CONFIG] + files[peft.WEIGHTS]


def zip_file() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in hf_files().items():
            archive.writestr(name, data)
    return out.getvalue()


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"enum": ["x", None]}, "c": {"$ref": "#/$defs/d"}},
          "required": ["a"], "$defs": {"d": {"type": "array", "items": {"type": "string", "pattern": "^a+$"}, "maxItems": 3}}}  # fmt: skip
CORRECTION = b'{"what": "edit", "prompt": "q", "offered": "a", "kept": "b", "sampler": {"seed": 1}, "version": null}\n'
REQUEST = {"kind": "write.start", "id": 3, "prompt": "x", "tokens": 5, "stop": ["\n"], "constraint": {"kind": "regex", "text": "a+"}}


PARSERS = {
    "safetensors": Parser(lambda data: seen(SafeTensors(data).tensors), lambda: [run_file()]),
    "run file": Parser(a_checkpoint, lambda: [run_file(), trained_file()]),
    "run folder": Parser(a_volume, lambda: [a_run()]),
    "journal": Parser(a_journal, journal_lines),
    "tokenizer.json": Parser(lambda data: BPETokenizer.from_json(data).encode("To be, or not"), lambda: [BPE.to_json().encode()], 400),
    "vocab.json, merges.txt": Parser(
        lambda data: read_lists(*(data.split(b"\0", 1) + [b""])[:2]), lambda: [b'{"a": 0, "b": 1, "ab": 2}\0#version: 0.2\na b\n'], 400
    ),
    "pairs": Parser(as_text(lambda text: Pairs.from_text(text, "x.jsonl")), lambda: [b'{"prompt": "q", "response": "a"}\n' * 4], 400),
    "pairs, CSV": Parser(as_text(lambda text: Pairs.from_text(text, "x.csv")), lambda: [b'prompt,response\n"q, or",a\nr,"b\nc"\n'], 400),
    "preferences": Parser(
        as_text(lambda text: Preferences.from_text(text, "x")), lambda: [b'[{"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b"}]'], 400
    ),
    "corrections": Parser(as_text(lambda text: Corrections().add_jsonl(text)), lambda: [CORRECTION * 2], 400),
    "PEFT": Parser(an_adapter, lambda: [peft_file()]),
    "Hugging Face .zip": Parser(a_zip, lambda: [zip_file()], 200),
    "Hugging Face folder": Parser(a_folder, lambda: [name.encode() + b"\0" + data for name, data in hf_files().items() if len(data) < 60_000], 400),
    "text": Parser(lambda data: Corpus.from_bytes(data, "x").facts(), lambda: ["Grüße, 世界\r\n".encode() * 9, b"\xff\xfea\0b\0"]),
    "model config": Parser(bounded_json(GPTConfig.from_dict), lambda: [json.dumps(CONFIG.to_dict()).encode()], 400),
    "adapter config": Parser(bounded_json(LoRAConfig.from_dict), lambda: [json.dumps(settings_of("lora")["adapter"]).encode()], 400),
    "request": Parser(bounded_json(lambda value: checked(value) if isinstance(value, dict) else None), lambda: [json.dumps(REQUEST).encode(), *(
        json.dumps({"kind": kind}).encode() for kind in REQUESTS)], 400),
    "regex": Parser(constraint("regex"), lambda: [rb"[a-z]+@(?:x|y){1,3}\.\d\w*", rb"\u00e9?[^\n]{2,}|(?i:ab)$"], 1 << 20),
    "JSON schema": Parser(constraint("json_schema"), lambda: [json.dumps(SCHEMA).encode()], 1 << 20),
    "grammar": Parser(constraint("grammar"), lambda: [b'start: "a" b+\nb: /[0-9]+/ | "(" WORD ")"\nWORD: "x".."z"\n'], 1 << 20),
}  # fmt: skip
