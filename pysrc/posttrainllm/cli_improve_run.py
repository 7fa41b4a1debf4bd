"""What `corrections`, `improve` and `versions` do."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

from .cli_interrupt import BROKEN_PIPE, Interrupt, until_broken
from .cli_output import counted, emit, plain, say
from .cli_places import is_run, require_new_adapter
from .cli_tune_run import base_of
from .data.corpus import Corpus
from .data.pairs import Template
from .errors import ConfigError, StoreError, StoreMissingError
from .train.files import hold_run
from .train.reports import EvalReport, Report
from .train.state import model_of
from .train.trainer import Live
from .tune.continual.curate import CuratedReport
from .tune.continual.gate import GateReport
from .tune.continual.history import Version
from .tune.continual.improve import ImprovedReport, PhaseReport
from .tune.continual.improve import improve as improving
from .tune.continual.records import Corrections

ABOUT = "tuning.json"


def _held(source: Path):
    """The run of a folder, held. Raises StoreMissingError where none was saved there."""
    if not is_run(source):
        raise StoreMissingError(str(source), "corrections belong to a run's folder", "no run was saved there", "choose the run's folder")
    return hold_run(source)


def corrections(source: Path, add: str | None, given: dict, take: Path | None, export: Path | None, delete: list[str], clear: bool, overwrite: bool, as_json: bool) -> None:
    """Add, import, delete, export, in this order; then the list."""
    texts = {name: value.replace("\\n", "\n") for name, value in given.items() if value is not None}
    if texts and add is None:
        raise ConfigError("corrections", "--prompt, --offered, --kept and --note go with --add", "they came alone", "add --add edit, or leave them out")
    if export is not None and export.exists() and not overwrite:
        raise ConfigError("corrections", "--export is a new file", f"{export} is there already", "choose another, or add --overwrite")
    with _held(source) as run:
        kept = Corrections(run.journal)
        if add is not None:
            kept.record(add, texts.pop("prompt", ""), texts.pop("offered", ""), texts.pop("kept", ""), **texts)
        if take is not None:
            kept.add_jsonl(Corpus.from_file(take).data.decode("utf-8"), take.name)
        if delete:
            kept.delete(*delete)
        if clear:
            kept.clear()
        rows, text = list(kept), kept.to_jsonl()
        recovered = run.journal.recovered
    if recovered:
        say(recovered)
    if export is not None:
        try:
            export.write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError("corrections", f"{export} can be written", error.strerror or str(error), "choose another place") from error
    if as_json:
        for row in rows:
            emit({"event": "correction"} | row.to_dict())
        emit({"event": "corrections", "count": len(rows)})
        return
    for row in rows:
        print(f"{row.id}  {row.created}  {row.what:7}  {_short(row.prompt)} | {_short(row.offered)} -> {_short(row.kept)}")
    print(f"{counted(len(rows), 'correction')} in {source}.")


def _short(text: str) -> str:
    line = text.replace("\n", "⏎")
    return line if len(line) <= 40 else f"{line[:39]}…"


def improve(source: Path, base: str | None, settings: dict, rank: int | None, gate: list[str], template: dict, device: str, threads: int | None, as_json: bool) -> int:
    """Improve, and the exit status: 0 also where the gate kept the result aside, which is no error; 128 + the signal's number when stopped."""
    more = {"gate": dict(map(_bound, gate))} | ({} if rank is None else {"adapter": {"rank": rank}})
    given = {name: value.replace("\\n", "\n").replace("\\t", "\t") for name, value in template.items() if value is not None}
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        run = stack.enter_context(_held(source))
        checkpoint = run.load()
        corpus = base_of(SimpleNamespace(base=base), checkpoint)
        if corpus is None:
            raise ConfigError(
                "improve", "the text that the run was trained on is given", f"the run's is {checkpoint.corpus.get('name', 'unknown')!r}, and no --base came",
                "add --base FILE",
            )  # fmt: skip
        if corpus.sha256 != checkpoint.corpus.get("sha256"):
            say(f"The run was trained on {checkpoint.corpus.get('name', 'another text')!r}, and this is {corpus.name}: what is forgotten is measured on text it may not know.")
        model = model_of(checkpoint, device=device, threads=threads)
        stack.callback(model.close)
        show, last = until_broken(interrupt), None
        live = Live(asked=interrupt.asked, heard=interrupt.asked)
        for last in improving(model, Corrections(run.journal), corpus, live=live, template=Template(**given), **settings, **more):
            show(_json if as_json else _line, last)
    if interrupt.number and interrupt.number != BROKEN_PIPE and isinstance(last, ImprovedReport) and last.version is None:
        return 128 + interrupt.number
    return 0


def _bound(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip().replace("-", "_"), float(value)
    except ValueError as error:
        raise ConfigError("improve", "--gate is NAME=NUMBER", f"{text!r} came", "write base_rise_nats=0.1") from error


def _json(report: Report) -> None:
    emit(report.to_dict())


def _line(report: Report) -> None:
    if isinstance(report, CuratedReport):
        print(f"{counted(report.learned, 'answer')} and {counted(report.preferences, 'preference')} to learn, {report.held_out:,} held out; {len(report.dropped):,} dropped.")
        for each in report.dropped:
            print(f"  {each.id}: {each.why}")
        for note in report.notes:
            print(note)
    elif isinstance(report, PhaseReport) and report.steps:
        print(f"{report.phase}: {counted(report.steps, 'step')}.", flush=True)
    elif isinstance(report, EvalReport):
        print(f"  step {report.step:,}  on what is learnt {report.validation_loss_nats:.4f}", flush=True)
    elif isinstance(report, GateReport):
        _figures(None if report.figures is None else report.figures.to_dict())
        for note in report.notes:
            print(note)
    elif isinstance(report, ImprovedReport):
        print(f"{report.message} ({report.seconds:.1f} s)")


def _figures(f: dict | None) -> None:
    if not f:
        return
    print(f"held-out corrections ({f['held_out_rows']}): {_n(f['held_out_before_nats'])} nats a token before, {_n(f['held_out_after_nats'])} after; better in {_n(f['held_out_wins'], '.0%')}")
    print(f"the base's held-out text: {_n(f['base_before_nats'])} before, {_n(f['base_after_nats'])} after; fixed passages {_n(f['probe_before_nats'])}, {_n(f['probe_after_nats'])}, the worst {_n(f['probe_worst_rise_nats'], '+.3f')}")
    if f["preference_accuracy"] is not None:
        print(f"held-out preferences ({f['preferences']}): the better answer gained more in {f['preference_accuracy']:.0%}")
    if f["copied_after_bytes"] is not None:
        print(f"recited beginnings: {f['recital_before']:.0%} before, {f['recital_after']:.0%} after; copied runs {f['copied_before_bytes']:.1f} and {f['copied_after_bytes']:.1f} bytes on average")


def _n(value: float | None, form: str = ".3f") -> str:
    return "not a number" if value is None else format(value, form)


def versions(source: Path, use: str | None, aside: bool, compare: tuple[int, int] | None, out: Path | None, version: int | None, overwrite: bool, as_json: bool) -> None:
    """Put one in use, compare, write; then the list."""
    if out is not None:
        require_new_adapter("versions", out, overwrite)
    with _held(source) as run:
        kept = Corrections(run.journal)
        history = kept.history
        if use is not None:
            history.use(_number(use), aside)
        rows, on = history.list(), history.in_use
        known = {row.id for row in kept}
        if out is not None:
            _write(history, on, version, out)
        found = history.compare(*compare) if compare else None
    if found is not None:
        _compared(compare, found, as_json)
        return
    if as_json:
        for row in rows:
            emit({"event": "version", "in_use": on is not None and on.number == row.number} | row.to_dict())
        emit({"event": "versions", "count": len(rows), "in_use": on and on.number})
        return
    for row in rows:
        _version(row, on, known)
    print(f"In use: {'the base alone' if on is None else f'version {on.number}'}.")


def _number(text: str) -> int | None:
    if text == "none":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError("versions", "--use is a version's number, or none", f"{text!r} came", "choose one of the list") from error


def _version(row: Version, on: Version | None, known: set[str]) -> None:
    state = "in use" if on is not None and on.number == row.number else "promoted" if row.promoted else "kept aside"
    gone = sum(each not in known for each in row.learned)
    print(f"version {row.number}  {row.created}  {state}; after {'the base' if row.parent is None else f'version {row.parent}'}; adapter {row.adapter_sha256[:16]}")
    print(f"  learnt from {counted(len(row.learned), 'record')}{f' ({gone} deleted since)' if gone else ''}, judged by {len(row.held_out)}, {len(row.dropped)} dropped")
    for reason in row.reasons:
        print(f"  {reason}")
    if row.figures:
        print(f"  held out {_n(row.figures['held_out_before_nats'])} -> {_n(row.figures['held_out_after_nats'])}, base {_n(row.figures['base_before_nats'])} -> {_n(row.figures['base_after_nats'])} nats a token")


def _compared(numbers: tuple[int, int], found: dict, as_json: bool) -> None:
    if as_json:
        emit({"event": "compared", "versions": list(numbers)} | found)
        return
    print(f"{'':36}  version {numbers[0]:<10}  version {numbers[1]}")
    for name, (one, other) in [*found["figures"].items(), *found["settings"].items()]:
        print(f"{name:36}  {_cell(one):18}  {_cell(other)}")
    learned = found["learned"]
    print(f"learnt by both {len(learned['both'])}, by version {numbers[0]} alone {len(learned['only_one'])}, by version {numbers[1]} alone {len(learned['only_other'])}")


def _cell(value) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else _short(str(value))


def _write(history, on: Version | None, number: int | None, out: Path) -> None:
    chosen = history[number] if number is not None else on
    if chosen is None:
        raise ConfigError("versions", "--out writes a version's adapter", "none is in use", "add --version N")
    nbytes = history.adapter(chosen.number).renamed(out.name).save(out)
    about = {"kind": "improve", "template": chosen.template or asdict(Template()), "version": chosen.to_dict()}
    try:
        (out / ABOUT).write_text(json.dumps(plain(about), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError("versions", f"{out} can be written", error.strerror or str(error), "choose another place") from error
    say(f"{out}: version {chosen.number}, {nbytes:,} bytes.")
