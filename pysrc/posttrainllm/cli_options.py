"""What the commands share: options by their types, and how an error becomes a sentence and an exit status."""

from __future__ import annotations

import functools
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .cli_output import emit, quiet_stdout, say
from .configs import load
from .errors import PostTrainError

_PRESETS = ", ".join(load("presets"))


class Device(str, Enum):
    """Engines by name."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"
    reference = "reference"


class TrainDevice(str, Enum):
    """Those of `train`, whose torch engine has one more."""

    auto = "auto"
    cpu = "cpu"
    webgpu = "webgpu"
    reference = "reference"
    cuda = "cuda"


class Engine(str, Enum):
    """What does the arithmetic of `train`."""

    native = "native"
    torch = "torch"


class Parallel(str, Enum):
    """How processes under torchrun share a model."""

    ddp = "ddp"
    fsdp = "fsdp"


class Moments(str, Enum):
    """How AdamW's moments are kept."""

    f32 = "f32"
    bf16 = "bf16"
    eight = "8bit"


class TrainPrecision(str, Enum):
    """Those of `train`, whose torch engine has one more."""

    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"


class Precision(str, Enum):
    """How activations are stored."""

    f32 = "f32"
    f16 = "f16"


def friendly(command):
    """Errors of this package become their sentence and exit status 1; with --json also an error event."""

    @functools.wraps(command)
    def wrapped(*args, **options):
        try:
            status = command(*args, **options)
        except PostTrainError as error:
            say(f"posttrainllm: {error}")
            if options.get("as_json"):
                emit({"event": "error"} | error.to_event())
            status = 1
        except BrokenPipeError:
            quiet_stdout()
            status = 128 + 13
        except KeyboardInterrupt:
            status = 128 + 2
        if status:
            raise typer.Exit(status)

    return wrapped


def size(name: str):
    return typer.Option(f"--{name}", help="Instead of the preset's.")


Text, Whole, Number = str | None, int | None, float | None
PresetOption = Annotated[Text, typer.Option("--preset", help=f"One of {_PRESETS}.", show_default="medium")]
DeviceOption = Annotated[Device, typer.Option("--device", help="The engine.")]
_THREADS = typer.Option("--threads", min=1, max=256, help="Threads of the cpu engine.", show_default="cores, at most 8")
ThreadsOption = Annotated[Whole, _THREADS]
_PRECISION_HELP = "How webgpu stores activations: f16 has f32 weights behind it and a loss scale."
PrecisionOption = Annotated[Precision, typer.Option("--precision", help=_PRECISION_HELP)]
RunPrecisionOption = Annotated[
    TrainPrecision | None,
    typer.Option(
        "--precision",
        help=f"{_PRECISION_HELP} bf16: torch multiplies matrices in bfloat16, with f32 weights.",
        show_default="f32, or what the run has",
    ),
]
TrainDeviceOption = Annotated[TrainDevice, typer.Option("--device", help="Where: cuda is the torch engine's, webgpu the native one's.")]
EngineOption = Annotated[Engine, typer.Option("--engine", help="torch: the same run in PyTorch (pip install 'posttrainllm[torch]'), also under torchrun.")]
ParallelOption = Annotated[Parallel, typer.Option("--parallel", help="Under torchrun: ddp holds the model in every process, fsdp shares it out.")]
MicroBatchesOption = Annotated[
    Whole, typer.Option("--micro-batches", min=1, help="Parts in which a batch goes through, to need less memory.", show_default="1")
]
RecomputeOption = Annotated[
    Text, typer.Option("--recompute", help="Blocks whose activations are computed again for the backward, or auto: as few as fit.", show_default="0")
]
MomentsOption = Annotated[
    Moments | None, typer.Option("--moments", help="How AdamW's moments are kept.", show_default="f32, or what the run has")
]
MemoryOption = Annotated[
    Text, typer.Option("--memory", help="Memory to train in (3G, 512M): the cheapest way that fits is chosen.", show_default="the machine's")
]
BatchOption = Annotated[Whole, size("batch")]
IsaOption = Annotated[Text, typer.Option("--isa", hidden=True)]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
AnyBaseOption = Annotated[bool, typer.Option("--any-base", help="Take an adapter that was made on other weights of the same sizes, too.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="--out may replace what was tuned before.")]
