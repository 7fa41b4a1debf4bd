"""`posttrainllm memorise`: does a saved run, or an adapter on it, recite its training text?"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .cli import app
from .cli_options import AnyBaseOption, DeviceOption, JsonOption, Number, Text, ThreadsOption, Whole, friendly
from .cli_options import Device as _Device
from .cli_output import emit, say
from .cli_places import adapter_at
from .errors import ConfigError

if TYPE_CHECKING:
    from .model.live import GPT
    from .store.checkpoint import Checkpoint
    from .study.memorise import Progress
    from .study.report import Memorisation, SubjectReport


PROMPT_ONLY = "prompt only"
"""The name of the run that is shown training text first."""


@app.command()
@friendly
def memorise(
    source: Annotated[Path, typer.Option("--from", help="A run's folder, a .safetensors file, or a Hugging Face folder of a GPT-2.")],
    data: Annotated[
        Text, typer.Option(help="The text to look for: shakespeare, or a UTF-8 text file.", show_default="the run's, where it is the bundled one")
    ] = None,
    adapter: Annotated[
        list[Path] | None, typer.Option(help="Check it on top of the run as well: an adapter's folder or file; may be given again.")
    ] = None,
    prefixes: Annotated[int, typer.Option(help="Beginnings from the training part, and as many held-out ones.")] = 64,
    prefix_tokens: Annotated[Whole, typer.Option(help="Tokens of a beginning.", show_default="half of the context, at most 128")] = None,
    continuation_tokens: Annotated[Whole, typer.Option(help="Tokens to continue it by.", show_default="a quarter, at most 64")] = None,
    prompt_only: Annotated[bool, typer.Option(help="Also ask the run with some training text before each beginning.")] = True,
    validation_fraction: Annotated[Number, typer.Option(help="Share of the text, at its end, that was held out.", show_default="the run's")] = None,
    seed: Annotated[int, typer.Option(help="Of the places.")] = 42,
    span_bytes: Annotated[
        Whole, typer.Option(help="List copied runs from so many bytes on.", show_default="longer than 95 % of those that held-out text has")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="Copied passages to print.")] = 3,
    any_base: AnyBaseOption = False,
    device: DeviceOption = _Device.auto,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a model recites its training text: what it writes after beginnings from it, and after ones it never saw."""
    from .study.memorise import memorise as check

    how = {"prefixes": prefixes, "prefix_tokens": prefix_tokens, "continuation_tokens": continuation_tokens, "seed": seed, "span_bytes": span_bytes}
    with contextlib.ExitStack() as stack:
        subjects, corpus = _opened(stack, source, data, adapter or [], prompt_only, validation_fraction, any_base, device.value, threads)
        with _progress(as_json) as show:
            try:
                report = check(subjects, corpus, progress=show, **how)
            except ConfigError as error:
                if not error.parts[1].endswith(f"of the context of {PROMPT_ONLY}"):
                    raise
                raise ConfigError(*error.parts[:3], f"{error.parts[3]}, or add --no-prompt-only", code=error.code) from error
    if as_json:
        emit({"event": "memorised"} | report.to_dict(probes=False))
    else:
        _print(report, examples)


def _opened(
    stack: contextlib.ExitStack, source: Path, data: str | None, adapters: list[Path], prompt_only: bool, validation_fraction: float | None,
    any_base: bool, device: str, threads: int | None,
):  # fmt: skip
    """(Subjects for study.memorise, the corpus as the run split it). The models are closed with the stack."""
    from .model.adapted import lora
    from .train.files import opened
    from .train.settings import training_settings
    from .train.state import model_of

    loaded = [adapter_at(path) for path in adapters]  # a wrong path is found before anything is made
    with opened(source) as checkpoint:
        known = {} if checkpoint.training.get("validation_fraction") is None else {"validation_fraction": checkpoint.training["validation_fraction"]}
        given = {} if validation_fraction is None else {"validation_fraction": validation_fraction}
        corpus = _corpus(checkpoint, data, bool(loaded)).split_at(training_settings(known | given)["validation_fraction"])
        model = model_of(checkpoint, device=device, threads=threads)
    stack.callback(model.close)
    subjects: dict[str, tuple[GPT, dict]] = {"base" if loaded else "the run": (model, {})}
    if prompt_only:
        subjects[PROMPT_ONLY] = (model, {"shots": True})
    for each in loaded:
        tuned = lora(model, adapter=each, training=False, any_base=any_base)
        stack.callback(tuned.close)
        name = each.name
        while name in subjects:
            name += "'"
        subjects[name] = (tuned, {})
    return subjects, corpus


def _corpus(checkpoint: Checkpoint, data: str | None, with_adapter: bool):
    """The text that was asked for; without --data the bundled one where the run was trained on that."""
    from .data.corpus import Corpus

    sha256 = checkpoint.corpus.get("sha256")
    own = "a text that the file does not name" if sha256 is None else repr(checkpoint.corpus.get("name"))
    corpus = Corpus.shakespeare() if data is None else Corpus.named(data)
    if data is None and corpus.sha256 != sha256:
        raise ConfigError("memorise", "the text is given again", f"the run was trained on {own}, and no --data came", "add --data FILE")
    if corpus.sha256 != sha256 and not with_adapter:
        say(f"The run was trained on {own}, and this is {corpus.name}: unless they are the same, held-out text may not be held out.")
    return corpus


@contextlib.contextmanager
def _progress(as_json: bool) -> Iterator:
    """What to do with each step: a line of JSON for each probe, a bar on a terminal, nothing elsewhere."""
    if as_json:
        yield lambda item: item.probe and emit({"event": "probe", "subject": item.subject} | item.probe.to_dict())
    elif not sys.stdout.isatty():
        yield None
    else:
        from rich.progress import Progress as Bars

        with Bars(transient=True) as bars:
            task = bars.add_task("", total=None)

            def show(item: Progress) -> None:
                bars.update(task, description=item.what, completed=item.done, total=item.total)

            yield show


def _print(report: Memorisation, examples: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for column in ("prefixes", "whole", "mean run", "longest", "copied", "bits/byte"):
        table.add_column(column, justify="right")
    for subject in report.subjects:
        for title, group in ((subject.name, subject.training), ("  held out", subject.held_out)):
            row = (group.count, group.exact, f"{group.mean_run:.1f}", max(group.runs), max(group.longest_bytes), f"{group.bits_per_byte:.3f}")
            table.add_row(title, *map(str, row))
    console.print(
        f"{report.corpus}: beginnings of {report.prefix_tokens} tokens ({report.tokenizer}), continued greedily by {report.continuation_tokens}."
    )
    console.print(table)
    console.print(
        "whole: continuations that are the text's own; mean run, longest: tokens as in it, at the same places; copied: bytes of the longest run "
        f"that stands anywhere in the training text. Held-out text itself shares runs of up to {report.chance_bytes[-1]} bytes with it, "
        f"half of it {report.chance_bytes[len(report.chance_bytes) // 2]}."
    )
    for subject in report.subjects:
        console.print(f"\n{subject.name}: {subject.verdict.sentence}")
        _examples(console, subject, examples, report.span_bytes)


def _examples(console, subject: SubjectReport, examples: int, span_bytes: int) -> None:
    """The probes with the longest copies, each run in bold with the line it stands in."""
    from rich.text import Text as Styled

    copied = subject.copied()
    if examples and copied:
        console.print(f"Copied, {span_bytes} bytes or more, after {len(copied)} of {len(subject.probes)} beginnings:")
    for probe in copied[:examples]:
        line = Styled(f"  {_flat(probe.prefix)}|", style="dim")
        for text, span in probe.pieces():
            line.append(_flat(text), style="bold" if span else "not dim")
            if span is not None:
                line.append(f" [line {span.line:,}{f', {span.occurrences} places' if span.occurrences > 1 else ''}] ", style="dim italic")
        console.print(line)


def _flat(text: str) -> str:
    return text.replace("\n", "⏎")
