"""The command line: posttrainllm train | sample | tokenize | lora | sft | dpo | corrections | improve | versions | memorise | runs | import | export | bench | explain."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .cli_options import (
    AnyBaseOption, BatchOption, Device, DeviceOption, Engine, EngineOption, IsaOption, JsonOption, MemoryOption, MicroBatchesOption, MomentsOption, Number, Parallel,
    ParallelOption, Precision, PrecisionOption, PresetOption, RecomputeOption, RunPrecisionOption, Text, ThreadsOption, TrainDevice,
    TrainDeviceOption, Whole, friendly, size,
)  # fmt: skip
from .configs import load
from .decode.generate import AHEAD
from .errors import ConfigError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, sample, tokenize, measure and explain small GPTs.",
)
_DEFAULTS = load("training")


class End(str, Enum):
    """Where a constrained text ends."""

    model = "model"
    first = "first"
    longest = "longest"


class Whitespace(str, Enum):
    """Between the marks of JSON."""

    compact = "compact"
    spaced = "spaced"
    free = "free"


class Trouble(str, Enum):
    """What a run does when its numbers go wrong."""

    roll_back = "roll_back"
    stop = "stop"


class Stage(str, Enum):
    """What `explain` shows."""

    graph = "graph"
    plan = "plan"
    tape = "tape"
    memory = "memory"


class Pass(str, Enum):
    """The tapes of a model."""

    step = "step"
    evaluation = "evaluation"
    writing = "writing"
    initial = "initial"


def _setting(name: str, text: str):
    """An option for a training setting; None where it is not given, so that a resumed run keeps its own."""
    return typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=str(_DEFAULTS[name]) if isinstance(_DEFAULTS[name], str) else f"{_DEFAULTS[name]:g}")


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@app.command()
@friendly
def train(
    data: Annotated[Text, typer.Option(help="shakespeare, or a UTF-8 text file.", show_default="shakespeare")] = None,
    preset: PresetOption = None,
    steps: Annotated[Whole, _setting("steps", "The step to reach.")] = None,
    device: TrainDeviceOption = TrainDevice.auto,
    threads: ThreadsOption = None,
    seed: Annotated[Whole, _setting("seed", "Of the first weights and of the order of the text.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder in which the run is saved, each minute and at the end.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, exactly.")] = False,
    source: Annotated[Path | None, typer.Option("--from", help="With --resume: a run exported as one file (by the page, too), kept in --out first.")] = None,
    as_json: JsonOption = False,
    export: Annotated[Path | None, typer.Option(help="Write the run as one .safetensors file at the end.")] = None,
    name: Annotated[Text, typer.Option(help="What the run is called.", show_default="the folder's name")] = None,
    layers: Annotated[Whole, size("layers")] = None,
    channels: Annotated[Whole, size("channels")] = None,
    heads: Annotated[Whole, size("heads")] = None,
    context: Annotated[Whole, size("context")] = None,
    batch: BatchOption = None,
    learning_rate: Annotated[Number, _setting("learning_rate", "The peak.")] = None,
    minimum_learning_rate_fraction: Annotated[
        Number, _setting("minimum_learning_rate_fraction", "Of the peak, at the end of the decay.")
    ] = None,
    warmup_steps: Annotated[Whole, _setting("warmup_steps", "Steps of linear rise.")] = None,
    decay_steps: Annotated[
        Whole, _setting("decay_steps", "Step at which the cosine ends; not --steps, so that 50 + 50 steps are 100.")
    ] = None,
    beta1: Annotated[Number, _setting("beta1", "AdamW's.")] = None,
    beta2: Annotated[Number, _setting("beta2", "AdamW's.")] = None,
    eps: Annotated[Number, _setting("eps", "AdamW's.")] = None,
    weight_decay: Annotated[Number, _setting("weight_decay", "AdamW's, on matrices and embeddings.")] = None,
    clip: Annotated[Number, _setting("clip", "Largest gradient norm; 0 is off.")] = None,
    on_trouble: Annotated[Trouble | None, _setting("on_trouble", "A number that is not finite, or a loss that leaps up: go back to the last good state with half the rate, or stop there.")] = None,
    validation_fraction: Annotated[Number, _setting("validation_fraction", "Share of the text, at its end.")] = None,
    evaluate_every_steps: Annotated[Whole, _setting("evaluate_every_steps", "Steps between evaluations.")] = None,
    evaluation_tokens: Annotated[Whole, _setting("evaluation_tokens", "Tokens of an evaluation.")] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between saves; 0 saves at the end only.")] = 60.0,
    sample_every: Annotated[float, typer.Option(min=0, help="Seconds between samples; 0 is never.")] = 0.0,
    sample_prompt: Annotated[str, typer.Option(help="What a sample continues.")] = "\n",
    precision: RunPrecisionOption = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Train on the tokens of this tokenizer.json.", show_default="bytes")
    ] = None,
    bpe: Annotated[Whole, typer.Option(help="Learn so many tokens from the training part first, and train on those.")] = None,
    snapshots: Annotated[bool, typer.Option("--snapshots", help="Keep the weights of up to seven steps in --out: the start, then powers of two.")] = False,
    engine: EngineOption = Engine.native,
    parallel: ParallelOption = Parallel.ddp,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    isa: IsaOption = None,
) -> int:
    """Train a GPT on a text. Ctrl-C stops after the present step and saves."""
    from .cli_memory import Asked
    from .cli_train import Job, run

    given = locals()
    sizes = {key: given[key] for key in ("layers", "channels", "heads", "context", "batch") if given[key] is not None}
    settings = {key: given[key] for key in _DEFAULTS if given[key] is not None} | ({"on_trouble": on_trouble.value} if on_trouble else {})
    return run(
        Job(
            data,
            preset,
            sizes,
            settings,
            device.value,
            threads,
            isa,
            precision and precision.value,
            out,
            resume,
            export,
            name,
            save_every,
            sample_every,
            sample_prompt,
            as_json,
            tokenizer,
            bpe,
            snapshots,
            engine.value,
            parallel.value,
            Asked.of(micro_batches, recompute, moments and moments.value, memory),
            source,
        )
    )


@app.command()
@friendly
def sample(
    source: Annotated[Path, typer.Option("--from", help="A run's folder, a .safetensors file, or a Hugging Face folder of a GPT-2.")],
    prompt: Annotated[Text, typer.Option(help="What the text begins with.", show_default="a line break")] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to write, at most.")] = 200,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest.")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Only the k likeliest; 0 is off.")] = 40,
    top_p: Annotated[float, typer.Option(help="Only the likeliest that reach this share; 1 is off.")] = 1.0,
    min_p: Annotated[float, typer.Option(help="Only those this likely beside the likeliest; 0 is off.")] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1 weakens tokens already seen.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 42,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be given again.")] = None,
    regex: Annotated[Text, typer.Option(help="Write only what this regular expression (Python's) matches as a whole.")] = None,
    json_schema: Annotated[Path | None, typer.Option(help="Write JSON that is valid for the JSON Schema in this file.")] = None,
    grammar: Annotated[Path | None, typer.Option(help="Write a text of the grammar in this file, in lark's notation.")] = None,
    end: Annotated[End, typer.Option(help="Where such a text ends: where the model leaves it, as soon as it may, or late.")] = End.model,
    whitespace: Annotated[Whitespace, typer.Option("--json-whitespace", help="Between the marks of JSON.")] = Whitespace.compact,
    draft: Annotated[Path | None, typer.Option(help="A smaller saved model, which proposes tokens for this one to verify.")] = None,
    ahead: Annotated[int, typer.Option(help="Tokens that it proposes at a time, 1 to 16.")] = AHEAD,
    adapter: Annotated[Path | None, typer.Option(help="An adapter's folder or file, put on the model.")] = None,
    strength: Annotated[Number, typer.Option(help="How much of the adapter counts; 0 is the model alone.", show_default="1")] = None,
    any_base: AnyBaseOption = False,
    ask: Annotated[Text, typer.Option(help="Instead of --prompt: a prompt as in the rows of sft or dpo; stops where an answer ends.")] = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue a prompt with a saved model."""
    from .cli_run import sample as write_out

    if strength is not None and adapter is None:
        raise ConfigError("sample", "--strength is how much of an adapter counts", "no --adapter came", "add it, or leave --strength out")
    if ask is not None and prompt is not None:
        raise ConfigError("sample", "--ask stands in place of --prompt", "both came", "leave one of them out")
    prompt, strength = "\n" if prompt is None else prompt, 1.0 if strength is None else strength
    if ask is not None:
        from .cli_tune_run import template_of

        template = template_of(adapter or source)
        prompt, stop = template.ask(ask), [*(stop or ()), template.end]
    sampler = {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    rules = {"regex": regex, "json_schema": json_schema, "grammar": grammar}
    how = {"stop": tuple(stop or ()), "end": end.value, "ahead": ahead, **sampler}
    write_out(source, prompt, tokens, how, rules, whitespace.value, draft, device.value, threads, as_json, adapter, strength, any_base)


@app.command()
@friendly
def tokenize(
    text: Annotated[Text, typer.Argument(help="A text to split into tokens.", show_default=False)] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="The tokenizer.json that splits TEXT or counts --data.")] = None,
    data: Annotated[Text, typer.Option(help="shakespeare, or a UTF-8 text file.")] = None,
    vocabulary: Annotated[Whole, typer.Option(help="Learn so many tokens from --data.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where the tokenizer.json that was learned goes.")] = None,
    special: Annotated[list[str] | None, typer.Option(help="A text that is one token; may be given again.")] = None,
    minimum: Annotated[int, typer.Option(help="Merge pairs that come so often.")] = 2,
    merges: Annotated[bool, typer.Option("--merges", help="List --tokenizer's merges in order.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Learn a byte-level BPE tokenizer from a text, or show how one splits a text."""
    from .cli_tokenize import tokenize as work

    work(text, data, tokenizer, vocabulary, out, tuple(special or ()), minimum, merges, as_json)


@app.command()
@friendly
def bench(
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
    threads: ThreadsOption = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps measured.")] = 20,
    warmup_steps: Annotated[int, typer.Option(min=0, help="Steps before, not measured.")] = 3,
    batch: BatchOption = None,
    as_json: JsonOption = False,
    precision: PrecisionOption = Precision.f32,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    isa: IsaOption = None,
) -> None:
    """Measure whole training steps: forward, backward, clip, AdamW."""
    from .cli_memory import Asked
    from .cli_run import bench as measure

    asked = Asked.of(micro_batches, recompute, moments and moments.value, memory)
    measure(preset or "medium", device.value, threads, isa, precision.value, steps, warmup_steps, batch, as_json, asked)


@app.command()
@friendly
def explain(
    preset: PresetOption = None,
    stage: Annotated[Stage, typer.Option(help="How far compiled.")] = Stage.graph,
    of: Annotated[Pass, typer.Option("--pass", help="Which of the model's tapes.")] = Pass.step,
    batch: BatchOption = None,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a stage of the compiled model: every node, address or record, with totals; or its memory, and what each way of saving costs."""
    from .cli_memory import Asked
    from .cli_run import explain as show

    asked = Asked.of(micro_batches, recompute, moments and moments.value, memory)
    show(preset or "medium", stage.value, of.value, batch, as_json, asked)


from . import cli_exchange, cli_improve, cli_lora, cli_memorise, cli_runs, cli_tune  # noqa: E402, F401 - add their commands; here, since they take `app` and the options from above

if __name__ == "__main__":
    sys.exit(app())
