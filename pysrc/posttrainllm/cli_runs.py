"""`posttrainllm runs list | compare | tag | note`: find saved runs again, and see them side by side."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .cli import app
from .cli_options import JsonOption, Text, friendly

runs = typer.Typer(no_args_is_help=True, help="List, compare and mark saved runs.")
app.add_typer(runs, name="runs")


class Order(str, Enum):
    """What a list goes by."""

    updated = "updated"
    name = "name"
    loss = "loss"
    steps = "steps"


class Metric(str, Enum):
    """What is compared."""

    loss = "loss"
    validation = "validation"
    rate = "rate"


class Along(str, Enum):
    """What a table goes along."""

    step = "step"
    tokens = "tokens"
    seconds = "seconds"


RunArgument = Annotated[Path, typer.Argument(help="A run's folder.", show_default=False)]


@runs.command("list")
@friendly
def list_(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs' folders.")] = Path("runs"),
    tag: Annotated[list[str] | None, typer.Option(help="Only runs with this tag; may be given again.")] = None,
    search: Annotated[Text, typer.Option(help="Only runs with this in name, tags or note.")] = None,
    sort: Annotated[Order, typer.Option(help="The last saved first, or by name, validation loss or steps.")] = Order.updated,
    as_json: JsonOption = False,
) -> None:
    """List the runs in a folder, with their tags and notes."""
    from .cli_runs_work import list_runs

    list_runs(folder, tag or [], search or "", sort.value, as_json)


@runs.command()
@friendly
def compare(
    paths: Annotated[list[Path], typer.Argument(help="2 to 8 runs: folders, or files exported as one.", show_default=False)],
    metric: Annotated[Metric, typer.Option(help="The training loss (a running mean), the validation loss, or the learning rate.")] = Metric.validation,
    along: Annotated[Along, typer.Option(help="What the lines of the table are.")] = Along.step,
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side: their figures, and the settings that differ."""
    from .cli_runs_work import compare_runs

    compare_runs(paths, metric.value, along.value, as_json)


@runs.command()
@friendly
def tag(
    run: RunArgument,
    tags: Annotated[list[str] | None, typer.Argument(help="Tags to add.", show_default=False)] = None,
    remove: Annotated[list[str] | None, typer.Option(help="A tag to take away; may be given again.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Add tags to a run, take some away, or show them."""
    from .cli_runs_work import tag_run

    tag_run(run, tags or [], remove or [], as_json)


@runs.command()
@friendly
def note(
    run: RunArgument,
    text: Annotated[Text, typer.Argument(help="The note; empty takes it away.", show_default="shows it")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's note in place of the one it has, or show it."""
    from .cli_runs_work import note_run

    note_run(run, text, as_json)
