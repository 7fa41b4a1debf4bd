"""`posttrainllm sample`, `bench` and `explain`."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import __version__
from .cli_memory import Asked
from .cli_memory import tables as memory_tables
from .cli_output import emit, say
from .cli_places import adapter_at
from .compile import explain as tables
from .data.corpus import Corpus
from .decode.constrain import read_file, vocabulary_of
from .decode.generate import Piece, write
from .errors import ConfigError
from .model.config import GPTConfig
from .model.live import GPT
from .model.program import Pass, Program, evaluation, forward, initial_weights, training_step
from .model.saving import Saving
from .ops.normal import GOLDEN, mix
from .train.ahead import Ahead
from .train.files import opened
from .train.state import model_of
from .train.trainer import Trainer
from .waiting import now


def sample(
    source: Path,
    prompt: str,
    tokens: int,
    how: dict,
    rules: dict[str, str | Path | None],
    whitespace: str,
    draft: Path | None,
    device: str,
    threads: int | None,
    as_json: bool,
    adapter: Path | None = None,
    strength: float = 1.0,
    any_base: bool = False,
) -> None:
    """Write to standard output as the text comes; with as_json one "token" event a piece and a last "done".

    `how` is for decode.generate.write; `rules` holds a pattern ("regex") or a file ("json_schema", "grammar"), one at most; `draft` is
    a saved model whose acceptance is told at the end; `adapter` counts `strength` times, and was made on this model unless `any_base`.
    """
    given = {kind: rule for kind, rule in rules.items() if rule is not None}
    if len(given) > 1:
        options = " and ".join(f"--{kind.replace('_', '-')}" for kind in given)
        raise ConfigError("sample", "a text has one constraint", f"{options} came", "choose one of them")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that is not UTF-8 must not end the text
    with contextlib.ExitStack() as models:
        model = models.enter_context(_model(source, device, threads, adapter, strength, any_base))
        if draft is not None:
            beside = "cpu" if device == "webgpu" else device  # a draft's single rows wait longer for a GPU than they take
            how = how | {"draft": models.enter_context(_model(draft, beside, threads))}
        constraint = None
        for kind, rule in given.items():
            constraint = read_file(kind, rule, vocabulary_of(model.tokenizer), whitespace)
        pieces = write(model, prompt, tokens, constraint=constraint, **how)
        if not as_json:
            print(prompt, end="", flush=True)
        text, first = "", None
        for piece in pieces:
            text += piece.text
            first = piece.seconds if first is None else first
            if as_json:
                emit({"event": "token", "text": piece.text, "tokens": piece.tokens})
            else:
                print(piece.text, end="", flush=True)
        if as_json:
            emit({"event": "done", "prompt": prompt, "text": text, "first_token_seconds": first} | _facts(piece))
            return
        print()
        if piece.acceptance:
            say(_acceptance(model, how["draft"], piece))


@contextlib.contextmanager
def _model(
    source: Path, device: str, threads: int | None, adapter: Path | None = None, strength: float = 1.0, any_base: bool = False
) -> Iterator[GPT]:  # fmt: skip
    """A saved model, with an adapter on it where one is given, for as long as this lasts."""
    lora = None if adapter is None else adapter_at(adapter)
    with opened(source) as checkpoint:
        model = model_of(checkpoint, device=device, threads=threads, lora=lora, any_base=any_base)
    try:
        if lora is not None:
            model.strength = strength
            if lora.base_sha256 not in ("", model.base_sha256()):
                say(f"The adapter {lora.name} was made on other weights than these.")
        yield model
    finally:
        model.close()


def _facts(last: Piece) -> dict:
    """Of a whole text, from its last piece."""
    facts = {
        "tokens": last.tokens,
        "reason": last.reason,
        "seconds": last.seconds,
        "tokens_per_second": last.tokens / max(last.seconds, 1e-9),
    }
    if last.acceptance:
        rates = {"rate": last.acceptance.rate, "tokens_per_pass": last.acceptance.tokens_per_pass}
        facts["acceptance"] = asdict(last.acceptance) | rates
    return facts


def _acceptance(model: GPT, draft: GPT, last: Piece) -> str:
    seen, larger = last.acceptance, draft.config.parameter_count() >= model.config.parameter_count()
    return (
        f"{last.tokens:,} tokens in {last.seconds:.2f} s, {last.tokens / max(last.seconds, 1e-9):,.0f} tokens/s; the draft's proposals: "
        f"{seen.accepted:,} of {seen.proposed:,} stood ({seen.rate:.0%}), {seen.tokens_per_pass:.2f} tokens a pass of the model; "
        f"{seen.draft_seconds:.2f} s in the draft, {seen.model_seconds:.2f} s in the model."
        f"{' The draft is no smaller than the model: it can only cost time.' if larger else ''}"
    )


def measure(trainer: Trainer, steps: int, warmup_steps: int) -> tuple[list[float], dict]:
    """(Seconds of each of `steps` whole training steps, facts), after `warmup_steps` that are not counted.

    A GPU takes many steps at once: there all of them are timed together, and facts hold its dispatches and Python's share.
    """
    if not hasattr(trainer.model.machine, "steps"):
        for _ in range(warmup_steps):
            trainer.train_step()
        return [trainer.train_step().seconds for _ in range(steps)], {}
    now(trainer.model.prepare())
    now(_steps(trainer, warmup_steps + 50))  # the block's size settles
    began = time.perf_counter()
    host = now(_steps(trainer, steps))
    each = (time.perf_counter() - began) / steps
    loaded = trainer.model.loaded_step
    facts = {
        "dispatches_per_step": len(loaded.lowered.dispatches),
        "host_ms_per_step": 1e3 * host / steps,
        "host_share": host / steps / each,
        "precision": getattr(trainer.model.machine, "precision", "f32"),
        "gpu_memory": trainer.model.memory(),
    }
    return [each] * steps, facts


async def _steps(trainer: Trainer, count: int) -> float:
    """Train for so many steps; the seconds that Python took."""
    ahead = Ahead(trainer, await trainer.model.steps())
    stop = trainer.step + count
    while trainer.step < stop:
        await ahead.advance(stop)
    return ahead.host_seconds


def bench(
    preset: str,
    device: str,
    threads: int | None,
    isa: str | None,
    precision: str,
    steps: int,
    warmup_steps: int,
    batch: int | None,
    as_json: bool,
    asked: Asked,
) -> None:
    """Print the median step: ms, tokens/s and GFLOP/s, with what was measured and where."""
    config = GPTConfig.preset(preset, **({} if batch is None else {"batch": batch}))
    saving = asked.saving(config, how={"device": device, "threads": threads, "isa": isa, "precision": precision})
    model = GPT.on(Program(config, saving=saving), device, threads, isa, precision)
    try:
        model.initialise(42)
        trainer = Trainer(model, Corpus("letters", _letters(max(1 << 16, 32 * config.context))))
        seconds, facts = measure(trainer, steps, warmup_steps)
        flops, median = model.program.step.flops(), statistics.median(seconds)
        result = {
            "preset": preset,
            "device": model.machine.name,
            "engine": model.machine.description,
            "threads": getattr(model.machine, "threads", 1),
            "parameters": config.parameter_count(),
            "config": config.to_dict(),
            "saving": saving.to_dict(),
            "steps": steps,
            "warmup_steps": warmup_steps,
            "ms_per_step": 1e3 * median,
            "ms_per_step_min": 1e3 * min(seconds),
            "ms_per_step_max": 1e3 * max(seconds),
            "tokens_per_second": trainer.tokens_per_step / median,
            "gflops": flops / median / 1e9,
            "flops_per_step": flops,
            **facts,
            "memory_bytes": model.program.memory()["total_bytes"],
            "host": {
                "machine": platform.machine(),
                "system": platform.system(),
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "posttrainllm": __version__,
            },
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    finally:
        model.close()
    if as_json:
        emit(result)
        return
    print(
        f"{preset}, batch {config.batch} x {config.context}, {config.parameter_count():,} parameters; {result['engine']}"
    )
    print(
        f"{result['ms_per_step']:.2f} ms a step (median of {steps}, from {result['ms_per_step_min']:.2f} to "
        f"{result['ms_per_step_max']:.2f}; {warmup_steps} before, not counted)"
    )
    print(
        f"{result['tokens_per_second']:,.0f} tokens/s, {result['gflops']:.1f} GFLOP/s, {result['memory_bytes'] / 1e6:.1f} MB"
    )


def _letters(count: int) -> bytes:
    """Bytes like a text's, the same everywhere: a bench needs no file."""
    return bytes(97 + mix(i * GOLDEN) % 26 for i in range(count))


def explain(preset: str, stage: str, of: str, batch: int | None, as_json: bool, asked: Asked) -> None:
    """Print the tables of one stage of one of a preset's tapes, or of its memory."""
    config = GPTConfig.preset(preset, **({} if batch is None else {"batch": batch}))
    if stage == "memory" and of != "step":
        raise ConfigError("explain", "--stage memory is of a training step", f"--pass {of} came", "leave --pass out")
    made = _pass(config, of, asked.saving(config)) if stage != "memory" else None
    shown = {
        "graph": lambda: tables.explain_graph(made.plan.graph),
        "plan": lambda: tables.explain_plan(made.plan),
        "tape": lambda: tables.explain_tape(made.tape),
        "memory": lambda: memory_tables(config, asked),
    }[stage]()
    for table in shown:
        if as_json:
            emit({"event": "table", "preset": preset, "stage": stage, "pass": of} | table.to_dict())
        else:
            print(tables.text(table))


def _pass(config: GPTConfig, of: str, saving: Saving) -> Pass:
    if of == "writing":
        return forward(config, 1, config.context)
    if of == "initial":
        return initial_weights(config, saving=saving)
    return {"step": training_step, "evaluation": evaluation}[of](config, saving=saving)
