"""What a Session needs of where it runs: engines, storage, the bundled text, the stop flag. Native here; worker.py has the page's."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from dataclasses import dataclass, replace

from ..backends.choose import DEVICES
from ..data.corpus import Corpus
from ..errors import ConfigError, DeviceLimitError
from ..model.choosing import within
from ..model.held import predicted
from ..model.memory import RESERVE_BYTES
from ..model.program import Program
from ..model.saving import Saving
from ..model.selftest import open_machine
from ..store.buffers import as_source
from ..store.memory import MemoryVolume
from ..store.runs import RunStore

RUN, PAUSE, STOP = 0, 1, 2
MOST_FORESEEN = 200
BOUNDLESS_BYTES = 1 << 44


@dataclass(frozen=True)
class Short:
    """What a program needs and an engine has not: bytes; or a sentence on why."""

    need_bytes: int = 0
    limit_bytes: int = 0
    reason: str = ""


class Host:
    """The native host: runs are kept where `store` says, adapters where `adapters` does (default: in memory)."""

    isolated = True
    reach_bytes: int | None = None
    """Bytes a model may take in all; None where only the machine's memory limits it."""
    persistent = True
    """Whether saved runs outlive this process."""

    def __init__(self, device: str = "auto", threads: int | None = None, store: RunStore | None = None, adapters: RunStore | None = None) -> None:
        self.device, self.threads, self.precision = device, threads, "f32"
        self.store, self.adapters = store or RunStore(MemoryVolume()), adapters or RunStore(MemoryVolume())
        self._texts: dict[str, tuple[str, bytes]] = {}
        self._machine, self._predictor, self.on_gpu = None, None, False
        self._foreseen: dict[tuple, dict[str, int] | DeviceLimitError] = {}
        self._fitting: dict[tuple, bool] = {}

    async def open_machine(self, total_bytes: int):
        """A machine that passed its self-test, with room for total_bytes: what was preferred, or the next best."""
        machine = open_machine(self.device, self.threads, total_bytes, precision=self.precision)
        self.opened(machine)
        return machine

    async def open_beside(self, total_bytes: int):
        """A machine for a small second model beside the live one: the cpu engine, whatever the live one runs on."""
        return open_machine("reference" if self.device == "reference" else "cpu", self.threads, total_bytes)

    async def before_cell(self, code: str) -> None:
        """Have ready what a cell's code may want. Natively all of it is there."""

    def interruptible(self):
        """A context in which a person may interrupt Python: KeyboardInterrupt is raised there."""
        return nullcontext()

    def opened(self, machine) -> None:
        """What models will hold is told as this machine does."""
        self._machine, self._predictor = weakref.ref(machine), getattr(machine, "predictor", None)
        self.on_gpu, self._foreseen, self._fitting = machine.name == "webgpu", {}, {}

    def memory_of(self, program: Program) -> dict[str, int]:
        """Bytes by kind, and in all, that the engine in use will hold for a program. Raises DeviceLimitError where it cannot."""
        machine = self._machine() if self._machine else None  # its options are other ones after it was tuned
        predictor = getattr(machine, "predictor", None) or self._predictor
        if predictor is None:
            return program.memory()
        if predictor != self._predictor or len(self._foreseen) > MOST_FORESEEN:
            self._foreseen, self._fitting = {}, {}
        self._predictor = predictor
        key = program.config, program.lora, program.saving, program.step is not None
        if key not in self._foreseen:
            try:
                self._foreseen[key] = predicted(program, predictor)
            except DeviceLimitError as error:
                self._foreseen[key] = error
        if isinstance(self._foreseen[key], DeviceLimitError):
            raise self._foreseen[key]
        return self._foreseen[key]

    def training_bytes(self, config, saving) -> int:
        """What memory_of says in all of training with a Saving, without its program where it was foreseen; of what a GPU cannot hold in
        its buffers, what it would hold in larger ones."""
        known = self._foreseen.get((config, None, saving, True))
        if isinstance(known, dict):
            return known["total_bytes"]
        program = Program(config, saving=saving)
        try:
            return self.memory_of(program)["total_bytes"]
        except DeviceLimitError:
            boundless = replace(self._predictor.options.limits, buffer_bytes=BOUNDLESS_BYTES, binding_bytes=BOUNDLESS_BYTES)
            return predicted(program, replace(self._predictor, options=replace(self._predictor.options, limits=boundless)))["total_bytes"]

    def using(self, machine) -> None:
        """This machine holds the live model after all (None: there is none): an attempt at another one failed."""
        if machine is not None:
            self.opened(machine)

    async def prepared(self) -> None:
        """A model was prepared: what was measured on its device may be kept."""

    @property
    def preference(self) -> tuple[str, str]:
        """(engine's name or "auto", precision), as `prefer` takes it."""
        return self.device, self.precision

    def prefer(self, name: str, precision: str = "f32") -> None:
        """Open this engine from now on. Raises ConfigError for a name that is none."""
        if name not in DEVICES:
            raise ConfigError("engine", f"one of {', '.join(DEVICES)}", f"{name!r} came", "choose one of those")
        self.device, self.precision = name, precision

    def offers(self) -> list[dict]:
        """Engines that could be used instead: name, description, available, why."""
        return []

    def fits(self, config, lora, saving) -> bool:
        """Whether training with a Saving fits the engine in use: `reach_of`, on a CPU without making the tapes; on a GPU what counts is
        what must lie in one piece, which neither moments nor what is computed again change."""
        if not self.on_gpu:
            return within(config, lora, self.reach_bytes)(saving)
        key = config, lora, saving.micro_batches
        if key not in self._fitting:
            self._fitting[key] = self.reach_of(Program(config, True, lora, Saving(saving.micro_batches))) is None
        return self._fitting[key]

    def reach_of(self, program) -> Short | None:
        """What a program needs beyond what the engine has; None where it fits."""
        try:
            self.memory_of(program)
        except DeviceLimitError as error:
            return Short(reason=f"{error.parts[1].capitalize()}; {error.parts[2]}. Choose a smaller size or a smaller batch.")
        need = sum(program.region_bytes().values()) + RESERVE_BYTES
        return Short(need, self.reach_bytes) if self.reach_bytes is not None and need > self.reach_bytes else None

    def why(self, machine) -> str:
        """One sentence on why this engine runs."""
        return "The fastest engine on this machine that passed its self-test."

    async def bundled_corpus(self) -> Corpus:
        """Shakespeare."""
        return Corpus.shakespeare()

    def flag(self) -> int:
        """RUN, PAUSE or STOP, as the page's shared flag says."""
        return RUN

    def to_bytes(self, buffer) -> bytes:
        """A request's buffer as bytes."""
        return bytes(buffer)

    def source_of(self, file, name: str):
        """A file of a request as something with `size` and `read_at`."""
        return as_source(file)

    def own(self, chunk):
        """A chunk that stays valid after the next one is read."""
        return bytes(chunk)

    def join(self, chunks: list, total_bytes: int):
        """Chunks as the one buffer that an event carries."""
        return b"".join(chunks)

    async def load_numpy(self) -> None:
        """numpy is there: it is only loaded when something needs it."""

    async def load_lark(self) -> None:
        """What reads grammars is there, or an import of it tells that it is not."""

    async def keep_text(self, corpus: Corpus) -> None:
        """Keep a person's own text, so that its runs can go on later."""
        self._texts[corpus.sha256] = (corpus.name, corpus.data)

    async def kept_text(self, sha256: str, name: str) -> Corpus | None:
        """The kept text with that hash, if there is one, under the name its run knows it by."""
        kept = self._texts.get(sha256)
        return Corpus(name, kept[1]) if kept else None

    async def sweep_texts(self, wanted: set[str]) -> None:
        """Forget the kept texts that are not wanted: those of deleted runs."""
        self._texts = {sha256: kept for sha256, kept in self._texts.items() if sha256 in wanted}

    async def room_bytes(self) -> int | None:
        """Bytes that saves may still take, as far as somebody says."""
        return None

    async def texts_bytes(self) -> int:
        """Bytes of all kept texts."""
        return sum(len(data) for _, data in self._texts.values())
