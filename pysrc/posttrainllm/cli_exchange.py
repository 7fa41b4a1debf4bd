"""`posttrainllm import` and `export`: models from and for transformers, llama.cpp and PEFT."""

from __future__ import annotations

import contextlib
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .cli import app
from .cli_options import AnyBaseOption, DeviceOption, JsonOption, Number, Text, ThreadsOption, friendly
from .cli_options import Device as _Device
from .cli_output import emit, say
from .cli_places import adapter_at, gone_unless_saved, is_run, require_new_adapter, require_new_file, writable
from .errors import ConfigError, DataError


class To(str, Enum):
    """What `export` writes."""

    hf = "hf"
    gguf = "gguf"
    peft = "peft"
    safetensors = "safetensors"


class Matrices(str, Enum):
    """How GGUF keeps them."""

    f32 = "f32"
    f16 = "f16"
    q8_0 = "q8_0"


@app.command("import")
@friendly
def import_model(
    source: Annotated[Path, typer.Argument(help="A Hugging Face folder of a GPT-2 (config.json, model.safetensors, tokenizer.json), its .zip, or a run's .safetensors.")],
    out: Annotated[Path, typer.Option(help="Folder of the run that it becomes; there is none yet.")],
    name: Annotated[Text, typer.Option(help="What the run is called.", show_default="the folder's name")] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a model from elsewhere as a run: to sample from, fine-tune with lora or sft, and look inside."""
    from .store.checkpoint import weights_sha256
    from .train.files import hold_run, opened

    if is_run(out):
        raise ConfigError("import", "--out is a new run's folder", f"a run is saved in {out}", "choose another")
    with opened(source) as checkpoint:
        with gone_unless_saved(out), hold_run(out, name or out.name) as run:
            nbytes = run.save(checkpoint)
        facts = {"config": checkpoint.config, "parameters": checkpoint.parameters, "tokenizer": checkpoint.tokenizer["name"]}
        if as_json:
            emit({"event": "imported", "place": str(out), "bytes": nbytes, "weights_sha256": weights_sha256(checkpoint.weights)} | facts)
        else:
            say(f"{checkpoint.parameters:,} parameters, {facts['tokenizer']} tokens, in {out}, {nbytes:,} bytes: `sample --from {out}` writes with it.")


@app.command("export")
@friendly
def export_model(
    source: Annotated[Path, typer.Argument(help="A run's folder, a .safetensors file, or a Hugging Face folder; with --to peft an adapter.")],
    out: Annotated[Path, typer.Argument(help="A folder for hf and peft, a file for gguf and safetensors.")],
    to: Annotated[To, typer.Option(help="hf: transformers. gguf: llama.cpp. peft: an adapter. safetensors: this program's file.")] = To.hf,
    matrices: Annotated[Matrices, typer.Option(help="How gguf keeps matrices; norms and biases stay f32.")] = Matrices.f32,
    adapter: Annotated[Path | None, typer.Option(help="Work this adapter into the model first.")] = None,
    strength: Annotated[Number, typer.Option(help="How much of the adapter counts.", show_default="1")] = None,
    any_base: AnyBaseOption = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="OUT may replace a model or a file that is there.")] = False,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a saved model for other programs."""
    from .model.config import GPTConfig
    from .store.gguf import note_of

    _check(source, out, to, matrices, adapter, strength, overwrite)
    note = ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(writable(out) if to in (To.hf, To.peft) else writable(None, out))
        if to is To.peft:
            try:
                found = adapter_at(source)
            except DataError as error:
                raise ConfigError("export", "with --to peft, SOURCE is an adapter's folder, file or run", error.parts[2], "choose an adapter") from error
            nbytes = found.save(out)
        else:
            checkpoint = _whole(stack, source, adapter, 1.0 if strength is None else strength, any_base, device.value, threads)
            nbytes = _written(checkpoint, out, to, matrices.value)
            note = note_of(GPTConfig.from_dict(checkpoint.config)) if to is To.gguf else ""
    if as_json:
        emit({"event": "exported", "to": to.value, "place": str(out), "bytes": nbytes, "note": note})
    else:
        say(f"Written to {out}, {nbytes:,} bytes. {note}".strip())


def _check(source: Path, out: Path, to: To, matrices: Matrices, adapter: Path | None, strength, overwrite: bool) -> None:
    """What contradicts itself, or would be in the way of something, is said before anything is made."""
    from .store.hf import CONFIG

    def refuse(rule: str, came: str, remedy: str) -> None:
        raise ConfigError("export", rule, came, remedy)

    if matrices is not Matrices.f32 and to is not To.gguf:
        refuse("--matrices is gguf's", f"--to {to.value} came with it", "leave it out")
    if to is To.peft and adapter is not None:
        refuse("--to peft writes the adapter that SOURCE is", "--adapter came too", "give the adapter as SOURCE")
    if strength is not None and adapter is None:
        refuse("--strength is how much of --adapter counts", "no --adapter came", "add it, or leave --strength out")
    if to is To.peft:
        require_new_adapter("export", out, overwrite)
    elif to is To.hf:
        if out.exists() and not out.is_dir():
            refuse("OUT is a folder", f"{out} is a file", "name a folder")
        if is_run(out):
            refuse("OUT is a folder beside runs", f"a run is saved in {out}", "choose another")
        if (out / CONFIG).exists() and not overwrite:
            refuse("OUT is a new model's folder", f"a {CONFIG} is in {out}", "choose another, or add --overwrite")
        if out.exists() and source.exists() and out.samefile(source):
            refuse("SOURCE is only read", f"{out} is both", "choose another folder")
    else:
        require_new_file("export", "OUT", out, {"SOURCE": source, "--adapter": adapter})
        if out.exists() and not overwrite:
            refuse("OUT is a new file", f"{out} is there already", "choose another, or add --overwrite")


def _whole(stack: contextlib.ExitStack, source: Path, adapter: Path | None, strength: float, any_base: bool, device: str, threads: int | None):
    """The model as a checkpoint, with an adapter worked in where one is given."""
    from .train.files import opened
    from .train.state import model_of, weights_checkpoint

    checkpoint = stack.enter_context(opened(source))
    if adapter is None:
        return checkpoint
    model = model_of(checkpoint, lora=adapter_at(adapter), any_base=any_base, device=device, threads=threads)
    stack.callback(model.close)
    model.strength = strength
    model.merge()
    return weights_checkpoint(model, checkpoint.name)


def _written(checkpoint, out: Path, to: To, matrices: str) -> int:
    from .train.exchange import write_gguf, write_hf
    from .train.files import write_checkpoint

    if to is To.hf:
        return write_hf(checkpoint, out)
    return write_gguf(checkpoint, out, matrices) if to is To.gguf else write_checkpoint(checkpoint, out)
