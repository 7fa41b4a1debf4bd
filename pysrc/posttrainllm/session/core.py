"""Session: one person's corpus, model and runs, driven by requests and answering with events.

It is the same object in the page's worker and natively. `serve` is its only loop: between two training steps it handles
what came in and gives the event loop a turn, so that nothing a person does waits longer than a step.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from .. import __version__
from ..configs import load
from ..data.corpus import Corpus
from ..dims import ELEMENT_BYTES
from ..errors import ConfigError, PostTrainError, StoreError
from ..model.config import GPTConfig
from ..model.live import GPT, RESERVE_BYTES
from ..model.program import Program
from .adapters import Adapters
from .cells import Cells
from .comparing import Comparing
from .engines import Engines
from .exports import Exports
from .features import Features
from .host import Host
from .improving import Improving
from .inside import Inside
from .job import Job
from .lenses import Lenses
from .memorising import Memorising
from .messages import checked, plainly
from .planning import Planning, rate_of, saving_for
from .run_changes import RunChanges
from .runs import Runs
from .sharpening import Sharpening
from .tokens import Tokens
from .training import Training
from .tuning import Tuning, defaults
from .writing import Writing


class Session:
    """emit(event, buffer) sends an event; host gives engines, storage and the stop flag."""

    def __init__(self, emit: Callable[[dict, object], None], host: Host) -> None:
        self._emit, self.host = emit, host
        self._queue: deque[dict] = deque()
        self._arrived = asyncio.Event()
        self.corpus: Corpus | None = None
        self.model: GPT | None = None
        self.engine: dict = {}
        self.rate_flops: float = 0.0
        self.engines = Engines(self)
        self.training = Training(self)
        self.writing = Writing(self)
        self.runs = Runs(self)
        self.tokens = Tokens(self)
        self.tuning, self.adapters = Tuning(self), Adapters(self)
        self.improving = Improving(self)
        self.exports = Exports(self)
        self.comparing, self.memorising = Comparing(self), Memorising(self)
        self.inside, self.features = Inside(self), Features(self)
        self.lenses, self.sharpening = Lenses(self), Sharpening(self)
        self.cells = Cells(self)
        self._closed = False
        self._flops: tuple = (None, 0)
        self._handlers = {
            "corpus.bundled": self._corpus_bundled,
            "corpus.text": self._corpus_text,
            "corpus.file": self._corpus_file,
            "engine.use": self.engines.use,
        }
        parts = (self.runs, self.exports, self.training, self.tuning, self.adapters, self.improving, self.comparing, self.memorising, self.features)
        for part in (Planning(self), RunChanges(self), self.cells, self.tokens, self.writing, self.inside, self.lenses, self.sharpening, *parts):
            self._handlers |= part.handlers()

    @property
    def job(self) -> Job:
        """What trains now: a tune, or the run of the live model."""
        return self.tuning if self.tuning.active else self.training

    def refuse_when_busy(self, place: str) -> None:
        """Raise ConfigError where a run or a tune is going."""
        if self.tuning.active:
            raise ConfigError(place, "one run at a time", "a tune is going", "stop it first; its adapter is saved when it stops")
        if self.training.active:
            raise ConfigError(place, "one run at a time", "a run is going", "stop it first; it is saved when it stops")

    def stop_writing(self) -> None:
        """End what is written with the live model: it is about to be another one."""
        self.writing.cancel()
        self.comparing.cancel()
        self.memorising.cancel()

    # Events and the loop

    def emit(self, kind: str, buffer=None, **fields) -> None:
        """Send an event."""
        self._emit({"kind": kind} | fields, buffer)

    def fail(self, error: Exception, reply_to: int | None = None) -> None:
        """Send an error as an event: its own sentence, or for a fault of ours what it was."""
        if isinstance(error, PostTrainError):
            event = error.to_event()
            event["message"] = plainly(error)
        elif isinstance(error, MemoryError):
            event = {"code": "E-DEVICE-MEMORY", "message": "There is not enough memory for this. Close other tabs or choose a smaller model."}
        else:
            event = {"code": "E-ERROR", "message": f"Something went wrong inside ({type(error).__name__}: {error}). What was saved is safe."}
        self.emit("failed", code=event["code"], message=event["message"], reply_to=reply_to)

    def receive(self, request: dict) -> None:
        """Queue a request; it is handled between two steps."""
        self._queue.append(request)
        self._arrived.set()

    def waits(self, beginning: str) -> bool:
        """Whether a request whose kind begins so has come and is not handled yet: for a handler that takes its time."""
        return any(str(request.get("kind")).startswith(beginning) for request in self._queue)

    def acts(self, apart: Callable[[str], bool]) -> bool:
        """Whether a request has come whose kind is none of those that stand apart."""
        return any(not apart(str(request.get("kind"))) for request in self._queue)

    async def begin(self) -> None:
        """Test the engine, list what is saved, and say `ready`."""
        began = time.perf_counter()
        machine = await self.host.open_machine(0)
        self.engine = self.engines.describe(machine)
        await self.measure(machine)
        machine.close()
        self.emit(
            "ready",
            version=__version__,
            engines=self.engines.all(),
            threads=getattr(machine, "threads", 1),
            isolated=self.host.isolated,
            presets=self.presets(),
            training=load("training"),
            tuning=defaults(),
            storage=await self.runs.storage(),
            runs=await self.runs.rows(),
            seconds=time.perf_counter() - began,
        )

    def presets(self) -> dict[str, dict]:
        """Sizes to choose from on the engine in use, with their parameters: those whose weights, gradients and moments alone would
        fill a page's memory need a GPU. Whether the rest fits, the plan says."""
        reach = self.host.reach_bytes if self.engine["name"] != "webgpu" else None
        sizes = {name: settings | {"parameters": GPTConfig(**settings).parameter_count()} for name, settings in load("presets").items()}
        return {name: size for name, size in sizes.items() if reach is None or 4 * ELEMENT_BYTES * size["parameters"] <= reach}

    async def measure(self, machine) -> None:
        """How fast a machine is that no model uses yet: what plans are reckoned by."""
        self.rate_flops = await rate_of(machine)

    async def serve(self) -> None:
        """Handle requests until `close`; train and write in between."""
        while not self._closed:
            busy = False
            try:
                for part in (self.training, self.tuning, self.improving, self.writing, self.lenses, self.comparing, self.memorising, self.features):
                    busy = await part.turn() or busy
            except Exception as error:  # noqa: BLE001 - the loop must outlive any fault; the person is told
                busy = await self._recovered(error)
                if not busy:
                    self.job.abort(error)
                    await self.adapters.tell()
            if busy:
                await asyncio.sleep(0)
            elif not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            while self._queue:
                await self.handle(self._queue.popleft())

    async def _recovered(self, error: Exception) -> bool:
        try:
            return await self.engines.recover(error)
        except Exception as another:  # noqa: BLE001 - as above
            self.fail(another)
            return False

    async def handle(self, request: dict) -> None:
        """Handle one request now. Errors become a `failed` event with the request's id."""
        identity = request.get("id")
        try:
            fields = checked(request)
            if self.improving.require_apart(request["kind"]):
                await self.improving.give_way()
            await self._handlers[request["kind"]](identity, **fields)
        except Exception as error:  # noqa: BLE001 - one bad request must not end the session
            self.fail(error, identity)

    async def close(self) -> None:
        """Stop, save and let go of the model."""
        self._closed = True
        await self.improving.close()
        await self.job.finish("stopped")
        self.cells.close()
        self.runs.let_go()
        self.drop_model()
        self._arrived.set()

    # Corpus

    async def set_corpus(self, corpus: Corpus, identity: int | None) -> None:
        """Make `corpus` the one to train on and tell its facts; a tokenizer that is learned from the text is learned anew."""
        self.corpus = corpus
        facts = corpus.facts()
        warnings = corpus.advice(GPTConfig.preset("tiny"))
        self.emit("corpus", reply_to=identity, **facts, warnings=warnings, notes=[])
        await self.tokens.follow()

    async def _corpus_bundled(self, identity: int | None) -> None:
        await self.set_corpus(await self.host.bundled_corpus(), identity)

    async def _corpus_text(self, identity: int | None, text: str, name: str = "Pasted text") -> None:
        await self.set_corpus(Corpus.from_text(text, name), identity)

    async def _corpus_file(self, identity: int | None, buffer, name: str = "file") -> None:
        await self.set_corpus(Corpus.from_bytes(self.host.to_bytes(buffer), name), identity)

    async def keep_text(self, corpus: Corpus) -> None:
        """Keep a text for another day. A failure is told, and what needs it goes on."""
        try:
            await self.host.keep_text(corpus)
        except StoreError as error:
            self.fail(error)

    # The model

    def config_of(self, preset: str | None, config: dict | None) -> GPTConfig:
        """The GPTConfig a request names (default medium), with the vocabulary of the tokenizer that is chosen."""
        chosen = GPTConfig.from_dict(config) if config is not None else GPTConfig.preset(preset or "medium")
        return chosen if self.tokens.tokenizer.name == "bytes" else replace(chosen, vocabulary=self.tokens.tokenizer.vocabulary)

    async def prepare(self, model: GPT) -> None:
        """Compile a model's tapes, telling how far it is."""
        await model.prepare(self._preparing)
        await self.host.prepared()

    def _preparing(self, done: int, total: int) -> None:
        """Tell how many of a tape's pipelines are compiled."""
        self.emit("preparing", done=int(done), total=int(total))

    def need_bytes(self) -> int:
        """Bytes that the live model needs of a machine; 0 without one."""
        return sum(self.model.program.region_bytes().values()) + RESERVE_BYTES if self.model else 0

    def flops_of_step(self) -> int:
        """Floating-point operations of a training step of the live model."""
        step = self.model.program.step
        if self._flops[0] is not step:
            self._flops = (step, step.flops())
        return self._flops[1]

    def drop_model(self) -> None:
        """Give the live model's memory back."""
        self.stop_writing()
        self.writing.drafts.close()
        self.adapters.forget()
        self.tuning.let_go()
        for part in (self.features, self.lenses, self.inside):
            part.forget()
        if self.model is not None:
            self.model.close()
            self.model = None

    async def make_model(self, config: GPTConfig, saving=None) -> GPT:
        """A live model with room for training, in the place of the one there was; `saving` as a request has it. Raises before letting
        the old one go where the plan cannot fit."""
        program = Program(config, saving=saving_for(self, config, saving))
        self.require_fit("model", program)
        self.drop_model()
        machine = await self.host.open_machine(sum(program.region_bytes().values()) + RESERVE_BYTES)
        try:
            model = GPT(config, machine, program)
            await self.prepare(model)
        except BaseException:
            machine.close()
            raise
        self.model, self.engine = model, self.engines.describe(machine)
        return model

    def require_fit(self, place: str, program: Program) -> None:
        """Raise ConfigError where the engine has not the room that a program needs."""
        short = self.host.reach_of(program)
        if short is not None:
            came = short.reason.partition(". ")[0] or f"they need {short.need_bytes:,}"
            raise ConfigError(
                place, "weights, gradients and activations fit " + (f"{short.limit_bytes:,} bytes" if short.limit_bytes else "this GPU"), came,
                "choose a smaller size or a smaller batch", code="E-CONFIG-PLAN",
            )
