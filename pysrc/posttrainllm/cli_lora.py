"""`posttrainllm lora`: train a low-rank adapter on a saved run, keep it as PEFT's folder, merge it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .cli import app
from .cli_interrupt import Interrupt, until_broken
from .cli_memory import Asked
from .cli_options import (
    AnyBaseOption, DeviceOption, JsonOption, MemoryOption, MicroBatchesOption, MomentsOption, Number, OverwriteOption, PrecisionOption,
    RecomputeOption, Text, ThreadsOption, Whole, friendly,
)  # fmt: skip
from .cli_options import Device as _Device
from .cli_options import Precision as _Precision
from .cli_output import emit, output_for, say, trained
from .cli_places import adapter_at, require_new_adapter, require_new_file, weights_of, writable
from .configs import load
from .errors import ConfigError, NonFiniteError

if TYPE_CHECKING:
    from .model.live import GPT
    from .train.trainer import Trainer

_DEFAULTS = load("lora")
_TRAINING = load("training") | _DEFAULTS["training"]


def _of_adapter(name: str, text: str):
    default = _DEFAULTS["adapter"][name]
    return typer.Option(f"--{name}", help=text, show_default=f"{default:g}")


def _setting(name: str, text: str):
    return typer.Option(f"--{name.replace('_', '-')}", help=text, show_default=f"{_TRAINING[name]:g}")


@app.command()
@friendly
def lora(
    source: Annotated[Path, typer.Option("--from", help="The base: a run's folder, a .safetensors file, or a Hugging Face folder. It is only read.")],
    data: Annotated[Text, typer.Option(help="shakespeare, or a UTF-8 text file, to train on.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the adapter, in PEFT's format.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="Begin with this adapter; without --data only merge it.")] = None,
    merge: Annotated[Path | None, typer.Option(help="Write the model with the adapter worked in, as one .safetensors file.")] = None,
    strength: Annotated[Number, typer.Option(help="How much of the adapter --merge takes.", show_default="1")] = None,
    rank: Annotated[Whole, _of_adapter("rank", "Of the change of each linear.")] = None,
    alpha: Annotated[Number, _of_adapter("alpha", "The change counts alpha / rank times.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            help="attn.q, attn.k, attn.v, attn.qkv, attn.proj, mlp.fc or mlp.proj; may be given again.",
            show_default=" ".join(_DEFAULTS["adapter"]["targets"]),
        ),
    ] = None,
    rslora: Annotated[bool, typer.Option("--rslora", help="Count alpha / sqrt(rank) instead: for large ranks.")] = False,
    steps: Annotated[Whole, _setting("steps", "The step to reach.")] = None,
    seed: Annotated[Whole, _setting("seed", "Of the adapter's start and of the order of the text.")] = None,
    learning_rate: Annotated[Number, _setting("learning_rate", "The peak.")] = None,
    minimum_learning_rate_fraction: Annotated[
        Number, _setting("minimum_learning_rate_fraction", "Of the peak, at the end of the decay.")
    ] = None,
    warmup_steps: Annotated[Whole, _setting("warmup_steps", "Steps of linear rise.")] = None,
    decay_steps: Annotated[
        Whole, typer.Option(help="Step at which the cosine ends; resuming keeps it.", show_default="--steps")
    ] = None,
    weight_decay: Annotated[Number, _setting("weight_decay", "AdamW's.")] = None,
    clip: Annotated[Number, _setting("clip", "Largest gradient norm; 0 is off.")] = None,
    validation_fraction: Annotated[Number, _setting("validation_fraction", "Share of the text, at its end.")] = None,
    evaluate_every_steps: Annotated[Whole, _setting("evaluate_every_steps", "Steps between evaluations.")] = None,
    evaluation_tokens: Annotated[Whole, _setting("evaluation_tokens", "Tokens of an evaluation.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the adapter's run as one .safetensors file, for --resume.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with such a file, exactly.")] = None,
    overwrite: OverwriteOption = False,
    any_base: AnyBaseOption = False,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    precision: PrecisionOption = _Precision.f32,
    micro_batches: MicroBatchesOption = None,
    recompute: RecomputeOption = None,
    moments: MomentsOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> int:
    """Train a low-rank adapter on a text: under 1 % of the parameters at the defaults, and the base stays as it is."""
    given = locals()
    settings = {name: given[name] for name in _TRAINING if given.get(name) is not None}
    if decay_steps is None and steps is not None:
        settings["decay_steps"] = steps
        settings.setdefault("warmup_steps", min(_TRAINING["warmup_steps"], steps // 2))
    shape = {"rank": rank, "alpha": alpha, "targets": tuple(target) if target else None, "rslora": rslora or None}
    shape = {name: value for name, value in shape.items() if value is not None}
    _check(data, out, adapter, merge, resume, export, shape, settings, strength, any_base)
    _check_places(source, out, adapter, merge, resume, export, overwrite)
    from .model.lora import LoRAConfig
    from .train.files import opened
    from .train.state import model_of

    asked = Asked.of(micro_batches, recompute, moments and moments.value, memory)
    engine = {"device": device.value, "threads": threads, "precision": precision.value}
    what, trainer, status = LoRAConfig.of(**shape) if adapter is None else adapter_at(adapter), None, 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(writable(out, merge, export))
        kept = stack.enter_context(opened(resume)) if resume is not None else None
        base = stack.enter_context(opened(source))
        if kept is not None:
            trainer = _resumed(kept, base, data, steps, engine, asked)
        elif data is not None:
            trainer = _begun(base, what, data, settings, engine, any_base, asked)
        model = trainer.model if trainer is not None else model_of(base, lora=what, any_base=any_base, **engine)
        stack.callback(model.close)
        if trainer is not None:
            status = _train(trainer, out, export, as_json)
        if merge is not None:
            _merge(model, 1.0 if strength is None else strength, merge, as_json)
    return status


def _check(data, out, adapter, merge, resume, export, shape, settings, strength, any_base) -> None:
    """What contradicts itself is said before anything is made."""

    def refuse(rule: str, came: str, remedy: str) -> None:
        raise ConfigError("lora", rule, came, remedy)

    if data is None and resume is None:
        if adapter is None or merge is None:
            refuse("there is a text to train on (--data), or an adapter to merge (--adapter and --merge)", "neither came", "add --data FILE")
        if out or export or settings:
            refuse("--adapter with --merge alone trains nothing", "an option for training came", "add --data FILE, or leave it out")
    elif out is None and merge is None and export is None:
        refuse("what is trained is kept", "no --out came", "add --out FOLDER")
    if adapter is not None and shape:
        refuse("an adapter brings its rank, alpha and targets", f"--{next(iter(shape))} came with --adapter", "leave one of them out")
    wrong = [name for name in settings if name not in ("steps", "decay_steps", "warmup_steps")]
    if resume is not None and (adapter is not None or shape or wrong):
        refuse("a run that goes on keeps its settings", "another came with --resume", "give --steps alone")
    if resume is not None and any_base:
        refuse("a run goes on with its own base", "--any-base came with --resume", "leave it out")
    if strength is not None and merge is None:
        refuse("--strength is how much of the adapter --merge takes", "no --merge came", "add it, or leave --strength out")


def _check_places(source: Path, out, adapter, merge, resume, export, overwrite: bool) -> None:
    """A result that would be in the way of something, or of another, is refused."""
    read = {"--from": source, "--adapter": adapter and weights_of(adapter)}
    if out is not None:
        require_new_adapter("lora", out, overwrite or resume is not None)
    if merge is not None:
        require_new_file("lora", "--merge", merge, read | {"--resume": resume})
    if export is not None:
        require_new_file("lora", "--export", export, read)
    files = [path.resolve() for path in (out and weights_of(out), merge, export) if path is not None]
    if len(set(files)) < len(files):
        raise ConfigError("lora", "each result has a place of its own", f"{merge or export} came twice", "name another")


def _begun(base, what, data: str, settings: dict, engine: dict, any_base: bool, asked: Asked) -> Trainer:
    from .data.corpus import Corpus
    from .train.settings import training_settings
    from .train.state import model_of
    from .train.trainer import Trainer

    seed = training_settings(settings, adapter=True)["seed"]
    corpus = Corpus.named(data)
    model = model_of(base, True, lora=what, seed=seed, any_base=any_base, saving=asked.on(base, what, engine), **engine)
    try:
        return Trainer(model, corpus, settings)
    except BaseException:
        model.close()
        raise


def _resumed(kept, base, data: str | None, steps: int | None, engine: dict, asked: Asked) -> Trainer:
    from .data.corpus import Corpus
    from .train.moments import kind_of
    from .train.settings import training_settings
    from .train.state import adapter_of, trainer_of

    corpus = Corpus.shakespeare() if data is None else Corpus.named(data)
    if data is None and kept.corpus.get("sha256") != corpus.sha256:
        raise ConfigError("lora", "the text is given again", f"the adapter was trained on {kept.corpus.get('name')!r}", "add --data FILE")
    if steps is not None and steps < kept.step:
        raise ConfigError("lora", f"--steps is the step to reach, and the run is at step {kept.step:,}", f"{steps:,} came", "name a later one")
    saving = None if asked.nothing else asked.on(base, adapter_of(kept), engine, kind_of(kept))
    trainer = trainer_of(kept, corpus, base=base, saving=saving, **engine)
    if steps is not None:
        trainer.settings = training_settings(trainer.settings | {"steps": steps})
        trainer.until = steps
    return trainer


def _train(trainer: Trainer, out: Path | None, export: Path | None, as_json: bool) -> int:
    from .cli_train import Job, _facts
    from .cli_tune_run import forget_tuning
    from .train.files import write_checkpoint
    from .train.reports import TROUBLES, StoppedReport
    from .train.state import checkpoint_of
    from .train.trainer import Live

    model, name = trainer.model, out.name if out else trainer.corpus.name
    count, share = trained(model)
    facts = _facts(Job(name=name), trainer) | {"adapter": model.lora.to_dict(), "trainable": count, "base_sha256": model.base_sha256()}
    if not as_json:
        say(f"An adapter of {count:,} parameters, {share:.2%} of all, on {', '.join(model.lora.targets)}; the base stays as it is.")
    with Interrupt() as interrupt, output_for(trainer, as_json) as output:
        show = until_broken(interrupt)
        show(output.start, facts)
        for report in trainer.run(trainer.until, Live(asked=interrupt.asked, heard=interrupt.asked)):
            show(output.report, report)
        if export is not None:
            write_checkpoint(checkpoint_of(trainer, name), export)
        if isinstance(report, StoppedReport) and report.reason in TROUBLES:
            raise NonFiniteError(report.message)
        if out is not None:
            nbytes = model.adapter.renamed(name).save(out)
            forget_tuning(out)
            if not as_json:
                say(f"Saved in {out}, {nbytes:,} bytes: `sample --adapter`, and peft, take it.")
        newest = trainer.history[-1] if trainer.history else {}
        show(
            output.done,
            {
                "step": trainer.step,
                "train_loss_nats": newest.get("loss_nats"),
                "val_loss_nats": trainer.validation_loss_nats,
                "weights_sha256": model.weights_sha256(model.trainable_names()),
            },
        )
    return 128 + interrupt.number if report.reason == "stopped" else 0


def _merge(model: GPT, strength: float, path: Path, as_json: bool) -> None:
    """In place: it is the last that is done with the model."""
    model.strength = strength
    adapter = model.merge()
    nbytes = model.save(path)
    if as_json:
        emit({"event": "merged", "adapter": adapter.name, "strength": strength, "place": str(path), "nbytes": nbytes})
    else:
        say(f"Merged at strength {strength:g} into {path}, {nbytes:,} bytes: a model like any other.")
