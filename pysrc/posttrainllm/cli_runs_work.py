"""What `posttrainllm runs` does."""

from __future__ import annotations

from pathlib import Path

from .cli_output import emit, plain, say
from .cli_places import is_run
from .errors import StoreMissingError
from .store.disk import DiskVolume
from .store.listing import RunInfo
from .store.marks import Marks
from .store.runs import Run, RunStore, now
from .train.comparison import Compared, Table
from .train.comparison import compare_runs as compared_runs
from .train.files import hold_run

WIDTH = 14
SORTED = {
    "updated": None,
    "name": lambda info: info.name.casefold(),
    "loss": lambda info: (info.validation_loss_nats is None, info.validation_loss_nats or 0),
    "steps": lambda info: -info.step,
}


def list_runs(folder: Path, tags: list[str], search: str, order: str, as_json: bool) -> None:
    """One line a run, and its note below it."""
    if not folder.is_dir():
        raise StoreMissingError(str(folder), "runs are in a folder", "there is none", "name the folder that --out was in")
    found = [info for info in now(RunStore(DiskVolume(folder)).list()) if _wanted(info, tags, search)]
    if SORTED[order]:
        found.sort(key=SORTED[order])
    for info in found:
        if as_json:
            emit({"event": "run", "folder": str(folder / info.id), "name": info.name, "state": info.state, "step": info.step, "steps": info.steps,
                  "validation_loss_nats": info.validation_loss_nats, "parameters": info.parameters, "updated": info.updated} | _marks(info.marks))  # fmt: skip
            continue
        loss = f"validation loss {info.validation_loss_nats:.3f}" if info.validation_loss_nats is not None else info.state
        print(plain(f"{info.id}  {info.name}  step {info.step:,}  {loss}" + "".join(f"  #{tag}" for tag in info.marks.tags)))
        for line in info.marks.note.splitlines():
            print(plain(f"    {line}"))
    if not as_json and not found:
        say("No run is like that.")


def _wanted(info: RunInfo, tags: list[str], search: str) -> bool:
    own = {tag.casefold() for tag in info.marks.tags}
    everything = " ".join([info.name, info.id, *info.marks.tags, info.marks.note]).casefold()
    return all(tag.casefold() in own for tag in tags) and search.casefold() in everything


def _marks(marks: Marks) -> dict:
    return {"tags": list(marks.tags), "note": marks.note}


def compare_runs(paths: list[Path], metric: str, along: str, as_json: bool) -> None:
    """A table of the metric, the settings that differ, and what to mind."""
    found = compared_runs(paths)
    if as_json:
        emit({"event": "compared", "paths": [str(path) for path in paths]} | found.to_dict())
        return
    unit = {"rate": "learning rate", "loss": f"training loss, {found.unit}, running mean"}.get(metric, f"validation loss, {found.unit}")
    print(f"{unit}, by {along}")
    _print_table(found, found.table(metric, along), 6 if metric == "rate" else 3)
    print("\nSettings that differ" if found.settings else "\nAll settings are the same.")
    for setting in found.settings:
        print(plain(_line(f"{setting.group}: {setting.label}", [value or "-" for value in setting.values])))
    for note in found.notes:
        say(plain(note))


def _print_table(found: Compared, table: Table, digits: int) -> None:
    print(plain(_line(table.along, found.names)))
    for place, row in [*zip(table.places, table.rows, strict=True), ("at its end", table.ends)]:
        first = place if isinstance(place, str) else f"{place:,.1f}" if table.along == "seconds" else f"{place:,.0f}"
        print(_line(first, ["-" if value is None else f"{value:.{digits}f}" for value in row]))


def _line(first: str, others: list[str]) -> str:
    return f"{first:<34}" + "".join(f"  {other[:WIDTH]:>{WIDTH}}" for other in others)


def tag_run(folder: Path, add: list[str], remove: list[str], as_json: bool) -> None:
    """Add and take away, then show."""
    gone = {tag.casefold() for tag in remove}
    with _held(folder) as run:
        if add or remove:
            kept = [tag for tag in run.marks.tags if tag.casefold() not in gone]
            run.mark(Marks.checked([*kept, *add], run.marks.note))
        marks = run.marks
    _show(marks, as_json, " ".join(f"#{tag}" for tag in marks.tags) or "no tags")


def note_run(folder: Path, text: str | None, as_json: bool) -> None:
    """Write it where there is one, then show."""
    with _held(folder) as run:
        if text is not None:
            run.mark(Marks.checked(run.marks.tags, text.replace("\\n", "\n")))
        marks = run.marks
    _show(marks, as_json, marks.note or "no note")


def _show(marks: Marks, as_json: bool, text: str) -> None:
    if as_json:
        emit({"event": "marks"} | _marks(marks))
    else:
        print(plain(text))


def _held(folder: Path) -> Run:
    if not is_run(folder):
        raise StoreMissingError(str(folder), "tags and notes belong to a run's folder", "no run was saved there", "choose the run's folder")
    return hold_run(folder)
