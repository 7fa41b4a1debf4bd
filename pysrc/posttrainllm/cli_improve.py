"""`posttrainllm corrections`, `improve` and `versions`: keep corrections of a run's answers, learn from them, look back and go back."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .cli import app
from .cli_options import DeviceOption, JsonOption, Number, OverwriteOption, Text, ThreadsOption, Whole, friendly
from .cli_options import Device as _Device
from .cli_tune import BaseOption, BetweenOption, EndOption
from .configs import load

_TABLE = load("continual")["improve"]


class What(str, Enum):
    """What a user made of an answer."""

    accept = "accept"
    edit = "edit"
    retry = "retry"
    correct = "correct"


class Start(str, Enum):
    """What an improvement starts from."""

    base = "base"
    version = "version"


RunOption = Annotated[Path, typer.Option("--from", help="The folder of the run that they belong to.")]


def _default(name: str, text: str):
    return typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=f"{_TABLE[name]}")


@app.command()
@friendly
def corrections(
    source: RunOption,
    add: Annotated[What | None, typer.Option(help="Add one: the offer accepted, edited (--kept is the edited text), refused, or corrected.")] = None,
    prompt: Annotated[Text, typer.Option(help="With --add: what was asked.")] = None,
    offered: Annotated[Text, typer.Option(help="With --add: what the model answered.")] = None,
    kept: Annotated[Text, typer.Option(help="With --add edit or correct: what it should have answered.")] = None,
    note: Annotated[Text, typer.Option(help="With --add: for yourself.")] = None,
    take: Annotated[Path | None, typer.Option("--import", help="Add those of a JSONL file, all or none.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write all of them into a JSONL file.")] = None,
    delete: Annotated[list[str] | None, typer.Option(help="Delete the one of this id; may be given again.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all.")] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the corrections that a run keeps; add, import, export or delete some."""
    from .cli_improve_run import corrections as work

    given = {"prompt": prompt, "offered": offered, "kept": kept, "note": note}
    work(source, add and add.value, given, take, export, delete or [], clear, overwrite, as_json)


@app.command()
@friendly
def improve(
    source: RunOption,
    base: BaseOption = None,
    start: Annotated[Start | None, _default("start", "Learn anew from the base, or go on from the version in use.")] = None,
    replay_share: Annotated[Number, _default("replay_share", "Share of each batch that is text of the base.")] = None,
    sft_steps: Annotated[Whole, _default("sft_steps", "Steps on the answers.")] = None,
    sft_learning_rate: Annotated[Number, _default("sft_learning_rate", "Their peak rate, at up to 128 channels.")] = None,
    dpo_steps: Annotated[Whole, _default("dpo_steps", "Steps on the preferences; 0 for none.")] = None,
    dpo_learning_rate: Annotated[Number, typer.Option("--dpo-learning-rate", help="Their peak rate.", show_default="as dpo's")] = None,
    beta: Annotated[Number, _default("beta", "How dearly the preferences' straying is paid for.")] = None,
    seed: Annotated[Whole, _default("seed", "Of the new adapter and of the order.")] = None,
    rank: Annotated[Whole, typer.Option(help="Of the adapter.", show_default=str(load("continual")["adapter"]["rank"]))] = None,
    gate: Annotated[
        list[str] | None, typer.Option(help="A bound of the gate, as NAME=NUMBER; may be given again.", show_default="configs/continual.json's")
    ] = None,
    between: BetweenOption = None,
    end: EndOption = None,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Learn from a run's corrections; what passes the gate is the version in use. Ctrl-C stops and changes nothing."""
    from .cli_improve_run import improve as work

    settings = {name: value for name, value in locals().items() if name in _TABLE and value is not None}
    if start is not None:
        settings["start"] = start.value
    return work(source, base, settings, rank, gate or [], {"between": between, "end": end}, device.value, threads, as_json)


@app.command()
@friendly
def versions(
    source: RunOption,
    use: Annotated[Text, typer.Option(help="Put this version in use, an earlier one too: a number, or none for the base alone.")] = None,
    aside: Annotated[bool, typer.Option("--aside", help="With --use: also one that the gate kept aside.")] = False,
    compare: Annotated[tuple[int, int] | None, typer.Option(help="Two versions side by side.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write a version's adapter into this folder (PEFT's format).")] = None,
    version: Annotated[Whole, typer.Option(help="With --out: which.", show_default="the one in use")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """List what was learnt from what, and what the gate said; compare two versions, go back to one, or write its adapter."""
    from .cli_improve_run import versions as work

    work(source, use, aside, compare, out, version, overwrite, as_json)
