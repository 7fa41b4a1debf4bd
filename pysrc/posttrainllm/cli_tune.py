"""`posttrainllm sft` and `dpo`: tune a saved run on prompts with responses, or on chosen and rejected answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .cli import app
from .cli_memory import Asked
from .cli_options import (
    AnyBaseOption, DeviceOption, JsonOption, MemoryOption, MicroBatchesOption, MomentsOption, Number, OverwriteOption, RecomputeOption, Text,
    ThreadsOption, Whole, friendly,
)  # fmt: skip
from .cli_options import Device as _Device
from .configs import load

_TABLE, _LORA = load("tuning"), load("lora")["adapter"]


def _default(kind: str, name: str, text: str):
    return typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=f"{_TABLE[kind][name]:g}")


def _rate(kind: str):
    adapter, full = (table[kind]["learning_rate"] for table in (_TABLE["adapter"], _TABLE))
    return typer.Option("--learning-rate", help="The peak.", show_default=f"{adapter:g}, with --full {full:g}")


SourceOption = Annotated[Path, typer.Option("--from", help="The run to tune: its folder, or a .safetensors file.")]
OutOption = Annotated[Path, typer.Option(help="Folder for the adapter (PEFT's format); with --full the .safetensors file of the weights.")]
FullOption = Annotated[bool, typer.Option("--full", help="Tune all weights, not an adapter.")]
AdapterOption = Annotated[Path | None, typer.Option(help="Begin with this adapter instead of a new one: after sft, dpo.")]
RankOption = Annotated[Whole, typer.Option(help="Of a new adapter.", show_default=str(_LORA["rank"]))]
AlphaOption = Annotated[Number, typer.Option(help="Its scaling is alpha/rank.", show_default=str(_LORA["alpha"]))]
TargetOption = Annotated[
    list[str] | None, typer.Option(help="What a new adapter changes; may be given again.", show_default=", ".join(_LORA["targets"]))
]
BaseOption = Annotated[
    Text,
    typer.Option(help="The text that the run knows, to tell what is forgotten: shakespeare, or a file.", show_default="the bundled one, where it is that"),
]
BetweenOption = Annotated[Text, typer.Option(help=r"What stands between prompt and answer; \n is a line break.", show_default=r"\n")]
EndOption = Annotated[Text, typer.Option(help="What an answer ends with, and writing stops at.", show_default=r"\n\n")]
RefuseOption = Annotated[bool, typer.Option("--refuse-long", help="Rows longer than the context are an error, not cut.")]
SeedOption = Annotated[int, typer.Option(help="Of the order of the rows, and of a new adapter.")]
BatchOption = Annotated[Whole, typer.Option(help="Sequences of a step.", show_default="the run's")]


@app.command()
@friendly
def sft(
    source: SourceOption,
    pairs: Annotated[Path, typer.Option(help="Prompts and responses: .jsonl, .json or .csv.")],
    out: OutOption,
    steps: Annotated[Whole, _default("sft", "steps", "Steps.")] = None,
    learning_rate: Annotated[Number, _rate("sft")] = None,
    validation_fraction: Annotated[Number, _default("sft", "validation_fraction", "Share of the rows held out.")] = None,
    evaluate_every_steps: Annotated[Whole, _default("sft", "evaluate_every_steps", "Steps between evaluations.")] = None,
    full: FullOption = False,
    adapter: AdapterOption = None,
    rank: RankOption = None,
    alpha: AlphaOption = None,
    target: TargetOption = None,
    base: BaseOption = None,
    between: BetweenOption = None,
    end: EndOption = None,
    refuse_long: RefuseOption = False,
    batch: BatchOption = None,
    seed: SeedOption = 42,
    overwrite: OverwriteOption = False,
    any_base: AnyBaseOption = False,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Tune a run on prompts with responses; the loss is that of the responses alone. Ctrl-C stops and saves."""
    from .cli_tune_run import Job, run

    names = ("steps", "learning_rate", "validation_fraction", "evaluate_every_steps", "seed")
    settings = {name: value for name, value in locals().items() if name in names and value is not None}
    lora = {"rank": rank, "alpha": alpha, "targets": target}
    how = {"batch": batch, "device": device.value, "threads": threads, "overwrite": overwrite, "any_base": any_base}
    template = {"between": between, "end": end}
    how["asked"] = Asked.of(micro_batches, recompute, moments and moments.value, memory)
    return run(Job("sft", source, pairs, out, settings, lora, template, full, adapter, base, None, refuse_long, as_json, **how))


@app.command()
@friendly
def dpo(
    source: SourceOption,
    preferences: Annotated[Path, typer.Option(help="Prompts, each with a chosen and a rejected answer: .jsonl, .json or .csv.")],
    out: OutOption,
    beta: Annotated[Number, typer.Option(help="How dearly straying from the run is paid for.", show_default=str(_TABLE["beta"]))] = None,
    steps: Annotated[Whole, _default("dpo", "steps", "Steps.")] = None,
    learning_rate: Annotated[Number, _rate("dpo")] = None,
    validation_fraction: Annotated[Number, _default("dpo", "validation_fraction", "Share of the rows held out.")] = None,
    evaluate_every_steps: Annotated[Whole, _default("dpo", "evaluate_every_steps", "Steps between evaluations.")] = None,
    full: FullOption = False,
    adapter: AdapterOption = None,
    rank: RankOption = None,
    alpha: AlphaOption = None,
    target: TargetOption = None,
    base: BaseOption = None,
    between: BetweenOption = None,
    end: EndOption = None,
    refuse_long: RefuseOption = False,
    batch: BatchOption = None,
    seed: SeedOption = 42,
    overwrite: OverwriteOption = False,
    any_base: AnyBaseOption = False,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Tune a run on chosen and rejected answers (DPO). Ctrl-C stops and saves."""
    from .cli_tune_run import Job, run

    names = ("steps", "learning_rate", "validation_fraction", "evaluate_every_steps", "seed")
    settings = {name: value for name, value in locals().items() if name in names and value is not None}
    lora = {"rank": rank, "alpha": alpha, "targets": target}
    how = {"batch": batch, "device": device.value, "threads": threads, "overwrite": overwrite, "any_base": any_base}
    template = {"between": between, "end": end}
    how["asked"] = Asked.of(1, recompute, moments and moments.value, memory)
    return run(Job("dpo", source, preferences, out, settings, lora, template, full, adapter, base, beta, refuse_long, as_json, **how))
