"""What a list of runs says about each, from two pages of its files: no payload is read and no run disturbed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrainllm.data.tokenizers import facts
from posttrainllm.store.bits import bits_per_byte
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.marks import Marks
from posttrainllm.store.slots import newest, newest_meta
from posttrainllm.store.volume import META_FILE

MAX_NAME = 200


@dataclass(frozen=True)
class RunInfo:
    """A line of the list. `steps` is how many the run was asked for, 0 where it does not say; `bytes` is all the run's files together; `note` is a sentence where `state` is not good.

    `tokenizer` and `vocabulary` are how its text is read ("" and 0 where a save of before does not say), two with the same
    `tokenizer_sha256` read it alike ("" for bytes). `bits_per_byte` is its newest validation
    loss as they compare over tokenizers. `marks` are the person's own tags and note. `state`: good; empty (nothing saved yet); corrupt (no save is sound); newer (another version's); unreadable.
    """

    id: str
    name: str
    state: str
    step: int = 0
    steps: int = 0
    corpus_sha256: str = ""
    validation_loss_nats: float | None = None
    loss_nats: float | None = None
    bits_per_byte: float | None = None
    tokenizer: str = ""
    vocabulary: int = 0
    tokenizer_sha256: str = ""
    parameters: int = 0
    created: str = ""
    updated: str = ""
    bytes: int = 0
    payload_bytes: int = 0
    resumable: bool = False
    open: bool = False
    note: str = ""
    marks: Marks = Marks()

    @property
    def corrupt(self) -> bool:
        return self.state == "corrupt"


def describe(
    run_id: str, heads: Mapping[str, tuple[int, bytes]], known_damage: str = "", is_open: bool = False
) -> RunInfo:
    """A line of the list from what `Volume.peek` gives; `known_damage` is what opening it once found in a payload."""
    page, damaged = newest(heads)
    facts = newest_meta(heads.get(META_FILE, (0, b""))[1]).summary
    state, note = page.state, known_damage
    if known_damage or (state == "blank" and damaged):
        state = "corrupt"
        note = note or f"run {run_id}: no save in it passes its checksum; delete it, or import an exported copy."
    elif state == "blank":
        state = "empty"
        note = f"run {run_id}: nothing was saved in it yet; train it or delete it."
    elif state == "newer":
        note = f"run {run_id}: a newer version saved it; reload the page or update the package."
    summary = page.summary
    return RunInfo(
        run_id,
        text(facts, "name") or text(summary, "name") or run_id,
        state,
        step=int(_number(summary, "step") or 0),
        steps=int(_number(summary, "steps") or 0),
        corpus_sha256=text(summary, "corpus_sha256"),
        validation_loss_nats=_number(summary, "validation_loss_nats"),
        loss_nats=_number(summary, "loss_nats"),
        bits_per_byte=_number(summary, "bits_per_byte"),
        tokenizer=text(summary, "tokenizer"),
        vocabulary=int(_number(summary, "vocabulary") or 0),
        tokenizer_sha256=text(summary, "tokenizer_sha256"),
        parameters=int(_number(summary, "parameters") or 0),
        created=text(facts, "created"),
        updated=text(summary, "updated"),
        bytes=sum(size for size, _ in heads.values()),
        payload_bytes=page.payload_bytes,
        resumable=state == "good" and summary.get("resumable") is True,
        open=is_open,
        note=note,
        marks=Marks.of(facts),
    )


def summary_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a slot's header page repeats of its payload, for the list."""
    return {
        "name": clean_name(checkpoint.name),
        "step": checkpoint.step,
        "steps": checkpoint.training.get("steps"),
        "corpus_sha256": checkpoint.corpus.get("sha256"),
        "validation_loss_nats": checkpoint.last("validation_loss_nats"),
        "loss_nats": checkpoint.last("loss_nats"),
        "bits_per_byte": bits_per_byte(checkpoint, "validation_loss_nats", checkpoint.last("validation_loss_nats")),
        "tokenizer": checkpoint.tokenizer.get("name"),
        "vocabulary": checkpoint.tokenizer.get("vocabulary"),
        "tokenizer_sha256": facts(checkpoint.tokenizer)["sha256"],
        "parameters": checkpoint.parameters,
        "updated": checkpoint.updated[:40],
        "resumable": checkpoint.resumable,
    }


def clean_name(name: str) -> str:
    """A run's name as it is kept: one line, Unicode text, at most 200 characters, never empty."""
    printable = name.encode("utf-8", "replace").decode("utf-8").split()
    return " ".join(printable)[:MAX_NAME] or "untitled"


def text(facts: Mapping[str, Any], key: str) -> str:
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def _number(facts: Mapping[str, Any], key: str) -> Any:
    value = facts.get(key)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
