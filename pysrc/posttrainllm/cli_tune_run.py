"""What `sft` and `dpo` do: open the run, tune, print figures before and after, write the adapter or the weights."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from .cli_interrupt import BROKEN_PIPE, Interrupt, until_broken
from .cli_memory import Asked
from .cli_output import counted, emit, plain, say, trained
from .cli_places import adapter_at, require_new_adapter, require_new_file, writable
from .data.corpus import Corpus
from .data.pairs import Pairs, Preferences, Template
from .errors import ConfigError, FormatError, NonFiniteError, StoreError
from .model.choosing import in_words
from .model.config import GPTConfig
from .model.live import GPT
from .model.lora import LoRAConfig
from .model.saving import PLAIN
from .store.checkpoint import Checkpoint
from .store.peft import WEIGHTS
from .train.files import opened
from .train.reports import TROUBLES, EvalReport, Report, StepReport, StoppedReport
from .train.state import model_of
from .train.trainer import Live, Trainer
from .tune.dpo import PreferenceEvalReport, dpo_trainer
from .tune.forgetting import ForgettingReport
from .tune.running import blocks, each
from .tune.sft import sft_trainer

ABOUT = "tuning.json"


@dataclass
class Job:
    """What was asked for. settings, lora and template hold what was given (None: the default)."""

    kind: str
    source: Path
    rows: Path
    out: Path
    settings: dict
    lora: dict
    template: dict
    full: bool
    adapter: Path | None
    base: str | None
    beta: float | None
    refuse_long: bool
    as_json: bool
    batch: int | None
    device: str
    threads: int | None
    overwrite: bool = False
    any_base: bool = False
    asked: Asked = Asked()


def run(job: Job) -> int:
    """Do the job and return the exit status: 0, or 128 + the signal's number when it was stopped. Raises PostTrainError."""
    examples, place = _examples(job), _place(job)  # what is wrong with the rows is said before anything is made
    with contextlib.ExitStack() as stack:
        interrupt = stack.enter_context(Interrupt())
        stack.enter_context(writable(*((None, place) if job.full else (place,))))
        model, base = _opened(job)
        stack.callback(model.close)
        trainer = sft_trainer(model, examples, job.settings) if job.kind == "sft" else dpo_trainer(model, examples, job.settings, job.beta)
        output = _Lines(trainer, job, base)
        show = until_broken(interrupt)
        show(output.start, None)
        for report in each(blocks(trainer, base, Live(asked=interrupt.asked, heard=interrupt.asked))):
            show(output.report, report)
        if report.reason in TROUBLES:
            raise NonFiniteError(report.message)
        written = _save(job, trainer, place, output.figures)
        if interrupt.number != BROKEN_PIPE:
            show(output.done, written)
    return 128 + interrupt.number if report.reason == "stopped" else 0


def _examples(job: Job) -> Pairs | Preferences:
    given = {name: value.replace("\\n", "\n").replace("\\t", "\t") for name, value in job.template.items() if value is not None}
    kind = Pairs if job.kind == "sft" else Preferences
    return kind.from_file(job.rows, Template(**given), "refuse" if job.refuse_long else "cut")


def _place(job: Job) -> Path:
    """Where the result goes, seen to be free for it."""
    if job.full and (job.adapter or any(value is not None for value in job.lora.values())):
        raise ConfigError(job.kind, "--full tunes all weights", "settings of an adapter came with it", "leave out the one or the others")
    if job.adapter and any(value is not None for value in job.lora.values()):
        raise ConfigError(job.kind, "--adapter brings its own settings", "--rank, --alpha or --target came with it", "leave them out")
    if job.full and job.out.suffix != ".safetensors":
        raise ConfigError(job.kind, "with --full, --out is a .safetensors file", f"{job.out} came", "name a file")
    if job.full:
        require_new_file(job.kind, "--out", job.out, {"--from": job.source})
        if job.out.exists() and not job.overwrite:
            raise ConfigError(job.kind, "--out is a new file", f"{job.out} is there already", "choose another, or add --overwrite")
    else:
        require_new_adapter(job.kind, job.out, job.overwrite)
    return job.out


def _opened(job: Job) -> tuple[GPT, Corpus | None]:
    """The model to tune, and the text it knows where that can be told."""
    adapter = None if job.adapter is None else adapter_at(job.adapter)
    with opened(job.source) as checkpoint:
        base = base_of(job, checkpoint)
        if job.batch is not None:
            checkpoint.config = GPTConfig.from_dict(checkpoint.config | {"batch": job.batch}).to_dict()
        how = {"device": job.device, "threads": job.threads}
        if job.full:
            return model_of(checkpoint, saving=job.asked.on(checkpoint, None, how), **how), base
        seed = job.settings["seed"]
        lora = adapter or LoRAConfig.of(**job.lora)
        how["saving"] = job.asked.on(checkpoint, lora, how)
        return model_of(checkpoint, True, lora=lora, seed=seed, any_base=job.any_base, **how), base


def base_of(job: Job, checkpoint: Checkpoint) -> Corpus | None:
    """The text that a run knows, split as it was: the one of job.base, else the bundled one where it was that."""
    fraction = checkpoint.training.get("validation_fraction")
    if job.base is not None:
        corpus = Corpus.named(job.base)
    else:
        corpus = Corpus.shakespeare() if checkpoint.corpus.get("name") == "Shakespeare" else None
        if corpus is None or corpus.sha256 != checkpoint.corpus.get("sha256"):
            return None
    return corpus if fraction is None else corpus.split_at(fraction)


def _save(job: Job, trainer: Trainer, place: Path, figures: dict) -> dict:
    """Write adapter or weights, and what it was made from beside it. Raises StoreError."""
    model, examples = trainer.model, trainer.corpus
    nbytes = model.save(place) if job.full else model.adapter.renamed(place.name).save(place)
    about = {
        "kind": job.kind,
        "rows": {"name": examples.name, "sha256": examples.sha256, "count": len(examples)},
        "template": asdict(examples.template),
        "training": trainer.settings | ({"beta": trainer.beta} if job.kind == "dpo" else {}),
        "steps_done": trainer.step,
        "figures": figures,
    }
    beside = _beside(place)
    try:
        beside.write_text(json.dumps(plain(about), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(job.kind, f"{beside} can be written", error.strerror or str(error), "choose another place") from error
    return {"out": str(place), "bytes": nbytes, "about": str(beside)}


def _beside(place: Path) -> Path:
    """Where it stands what an adapter's folder, or a file of weights, was made from."""
    folder = place.parent if place.name == WEIGHTS else place  # an adapter may be named by its file, too
    return folder.with_suffix(f".{ABOUT}") if folder.suffix == ".safetensors" and not folder.is_dir() else folder / ABOUT


def template_of(place: Path) -> Template:
    """The template that an adapter or weights were tuned with; the usual one where nobody wrote it down. Raises FormatError."""
    try:
        return Template(**json.loads(_beside(place).read_text("utf-8"))["template"])
    except FileNotFoundError:
        return Template()
    except (OSError, ValueError, TypeError, KeyError, ConfigError) as error:
        raise FormatError(
            str(_beside(place)), "it tells the template of a tuning", f"it does not ({error})", "remove it, or tune again"
        ) from error


def forget_tuning(place: Path) -> None:
    """Remove what an adapter's folder was made from: another adapter took the place."""
    with contextlib.suppress(OSError):
        _beside(place).unlink()


class _Lines:
    """Lines for a person, or one JSON object each; `figures` keeps the first and the last of what was measured."""

    def __init__(self, trainer: Trainer, job: Job, base: Corpus | None) -> None:
        self._trainer, self._job, self._base = trainer, job, base
        self.figures: dict = {}
        self._loss = math.nan

    def start(self, _: None) -> None:
        """What is tuned on what."""
        model, examples = self._trainer.model, self._trainer.corpus
        facts, advice = examples.facts(model.config.context), examples.advice(model.config)
        lora, saving = model.lora, model.program.saving
        count, share = trained(model)
        if self._job.as_json:
            about = {"kind": self._job.kind, "parameters": model.config.parameter_count(), "trained_parameters": count}
            settings = {"training": self._trainer.settings, "lora": None if lora is None else lora.to_dict(), "data": facts, "saving": saving.to_dict()}
            emit({"event": "start"} | about | settings | {"engine": model.machine.description, "warnings": advice})
            return
        what = "all weights" if lora is None else f"an adapter of rank {lora.rank} on {', '.join(lora.targets)}"
        print(f"{what}: {count:,} numbers, {share:.2%} of all; {model.machine.description}.")
        print(f"{facts['name']}: {counted(facts['rows'], 'row')}, {facts['held_out']:,} held out, {counted(facts['counted_tokens'], 'token')} to learn.")
        if saving != PLAIN:
            print(f"To need less memory: {in_words(saving)}.")
        for sentence in advice:
            print(sentence)
        if self._base is None:
            print("What is forgotten is not measured: name the run's text with --base.")

    def report(self, report: Report) -> None:
        """One report."""
        if isinstance(report, StepReport):
            self._loss = report.loss_nats
        if isinstance(report, EvalReport):
            self._keep("loss_nats", report.validation_loss_nats)
            if isinstance(report, PreferenceEvalReport):
                self._keep("margin", report.margin)
                self._keep("accuracy", report.accuracy)
        if isinstance(report, ForgettingReport):
            names = ("name", "before_nats", "after_nats", "before_bits_per_byte", "after_bits_per_byte")
            self.figures["base"] = {name: getattr(report, name) for name in names}
        if self._job.as_json:
            emit(report.to_dict())
        elif isinstance(report, EvalReport):
            print(self._evaluated(report), flush=True)
        elif isinstance(report, StoppedReport) and report.reason not in TROUBLES:
            print(report.message)

    def _keep(self, name: str, value: float) -> None:
        self.figures.setdefault(f"before_{name}", value)
        self.figures[f"after_{name}"] = value

    def _evaluated(self, report: EvalReport) -> str:
        trained = f"loss {self._loss:.4f}  " if math.isfinite(self._loss) else ""
        part = "held out" if self._trainer.corpus.held_out else "on all rows"
        line = f"step {report.step:,}  {trained}{part} {report.validation_loss_nats:.4f}"
        if isinstance(report, PreferenceEvalReport):
            return f"{line}  margin {report.margin:+.3f}  accuracy {report.accuracy:.0%}"
        return f"{line}  {report.bits_per_byte:.3f} bits/byte"

    def done(self, written: dict) -> None:
        """Before and after, and how to ask."""
        figures, template = self.figures, self._trainer.corpus.template
        if self._job.as_json:
            emit({"event": "done", "step": self._trainer.step} | figures | written)
            return
        print(f"{'loss of responses' if self._job.kind == 'sft' else 'preference loss'}: {figures['before_loss_nats']:.4f} before, {figures['after_loss_nats']:.4f} after")
        if "after_accuracy" in figures:
            print(f"margin {figures['after_margin']:+.3f}, accuracy {figures['after_accuracy']:.0%}")
        known = figures.get("base")
        if known and known["after_nats"] is not None:
            print(
                f"{known['name']} (its validation part): {known['before_nats']:.4f} nats, {known['before_bits_per_byte']:.3f} bits/byte before; "
                f"{known['after_nats']:.4f}, {known['after_bits_per_byte']:.3f} after: {known['after_nats'] - known['before_nats']:+.4f} nats"
            )
        print(f"{written['out']}: {written['bytes']:,} bytes; {written['about']} tells what it was made from.")
        option = f"--from {self._job.source} --adapter {written['out']}" if not self._job.full else f"--from {written['out']}"
        say(f"Ask it: posttrainllm sample {option} --ask PROMPT (which adds {template.between!r}, and stops at {template.end!r}).")
