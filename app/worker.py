"""Python in the worker: a Session on the page's engine and storage. worker.mjs provides `posttrainllm_host`."""

import asyncio
import contextlib
import importlib
import json
import sys
from pathlib import Path

if "/lib/posttrainllm" not in sys.path:  # a snapshot has it already, with the package imported
    sys.path.insert(0, "/lib/posttrainllm")
importlib.invalidate_caches()

import posttrainllm_host as host  # noqa: E402
import posttrainllm.data  # noqa: E402
from pyodide.ffi import can_run_sync, to_js  # noqa: E402
from posttrainllm.backends.gpu.tile_cache import cache_file  # noqa: E402
from posttrainllm.backends.wasm import open_wasm, reach_bytes, spares  # noqa: E402
from posttrainllm.backends.webgpu_browser import open_webgpu  # noqa: E402
from posttrainllm.data.corpus import Corpus  # noqa: E402
from posttrainllm.errors import DeviceError, PostTrainError, SelfTestError, StoreError, StoreQuotaError  # noqa: E402
from posttrainllm.model import webgpu_check  # noqa: E402
from posttrainllm.model.selftest import check  # noqa: E402
from posttrainllm.session import Host, Session  # noqa: E402
from posttrainllm.store.blobs import BlobSource  # noqa: E402
from posttrainllm.store.memory import MemoryVolume  # noqa: E402
from posttrainllm.store.opfs import OpfsVolume  # noqa: E402
from posttrainllm.store.runs import RunStore  # noqa: E402


MOST_JOINED_BYTES = 64 << 20
SPARE_BYTES = 128 << 20
"""Of an engine that stands ready for a cell: enough for the presets up to xl."""
SHAKESPEARE = Path(posttrainllm.data.__file__).parent / "shakespeare.txt"


class PageHost(Host):
    """Engines: WebGPU where a real GPU passes its test, else WebAssembly on threads, else on one. Runs in the origin-private file
    system, the stop flag from shared memory.
    """

    def __init__(self, store: RunStore, adapters: RunStore, persistent: bool) -> None:
        super().__init__(store=store, adapters=adapters)
        self.persistent = persistent
        self.isolated = bool(host.isolated())
        self.reach_bytes = reach_bytes(int(host.device_gigabytes() * (1 << 30)), str(host.memory_64()) != "never")
        self._bundled: Corpus | None = None
        self._threads: int | None = None
        self._refused = ""
        self.gpu = None  # the machine in use, where it is a GPU
        self._tiles = ""
        self._handed = None  # the GPU machine given out last
        self._gpu_engine, self._tested, self._no_gpu, self._gpu_description = None, None, "", ""
        self._gpu_features: list[str] | None = None  # unknown

    async def open_machine(self, total_bytes: int):
        if self.device in ("auto", "webgpu"):
            self.gpu = await self._open_gpu()
            if self.gpu is not None:
                self.opened(self.gpu)
                return self.gpu
        self.gpu = None
        machine = await self._open_cpu(total_bytes)
        self.opened(machine)
        return machine

    async def _open_gpu(self):
        """A GPU that passed its self-test; None, with the reason kept, where there is none.

        One device serves all models, one after the other. While a model lives on it, another gets a device of its own, and the
        first goes with its model.
        """
        if not host.has_gpu():
            self._no_gpu = "This browser has no WebGPU."
            return None
        if self._no_gpu and self.device == "auto":
            return None
        if self._gpu_engine is not None and self._gpu_engine.failed:
            self._gpu_engine = None
        self._no_gpu, machine = "", None
        living = self._handed is not None and not self._handed.closed and self._handed.engine == self._gpu_engine
        engine = None if living else self._gpu_engine
        try:
            await host.load_numpy()
            await self._recall_tiles()
            machine = await open_webgpu(precision=self.precision, engine=engine)
            self._gpu_description, self._gpu_features = machine.description, sorted(machine.features)
            if machine.software and self.device == "auto":
                self._no_gpu = f"{machine.description} is a CPU that plays a GPU: the C++ engine is faster."
            elif (machine.engine, self.precision) != self._tested:
                await webgpu_check.check(machine)
                machine.close()
                self._tested = (machine.engine, self.precision)
                machine = await open_webgpu(precision=self.precision, engine=machine.engine)
        except (DeviceError, SelfTestError, ImportError) as error:
            self._no_gpu = str(error)
        if self._no_gpu:
            if machine is not None:
                machine.engine.close()
            if not living:
                self._gpu_engine = None
            return None
        if living:
            self._handed.retire()
        self._gpu_engine, self._handed = machine.engine, machine
        return machine

    def using(self, machine) -> None:
        self.gpu = machine if machine is not None and machine.name == "webgpu" else None
        super().using(machine)

    async def _recall_tiles(self) -> None:
        """What was measured of this GPU on another day, to where the package looks for it."""
        if not self._tiles:
            self._tiles = await host.kept_tiles() or ""
            if self._tiles:
                cache_file().parent.mkdir(parents=True, exist_ok=True)
                cache_file().write_text(self._tiles, encoding="utf-8")

    async def prepared(self) -> None:
        text = cache_file().read_text(encoding="utf-8") if cache_file().exists() else ""
        if text != self._tiles:
            self._tiles = text
            await host.keep_tiles(text)

    async def _open_cpu(self, total_bytes: int):
        machine = await open_wasm(total_bytes, self._threads)
        try:
            check(machine)
        except PostTrainError as error:
            machine.close()
            if machine.threads == 1 or not isinstance(error, SelfTestError):
                raise
            self._threads, self._refused = 1, str(error)  # degrade in order: the build without threads may still be right
            return await self._open_cpu(total_bytes)
        return machine

    def offers(self) -> list[dict]:
        gpu = {
            "name": "webgpu", "description": self._gpu_description or "GPU (WebGPU)", "features": self._gpu_features, "chosen": False,
            "available": bool(host.has_gpu()), "why": self._no_gpu,
        }
        cpu = {"name": "cpu", "description": "CPU, WebAssembly SIMD", "chosen": False, "available": True, "why": ""}
        return [gpu, cpu]

    def reach_of(self, program):
        short = super().reach_of(program)
        return short if self.gpu is None or (short and short.reason) else None  # nobody says how much a GPU has

    def why(self, machine) -> str:
        if machine.name == "webgpu":
            return "The GPU, which passed its self-test: loss and every gradient of a small model as the reference has them."
        return f"{self._why_cpu(machine)} {self._no_gpu}".strip()

    def _why_cpu(self, machine) -> str:
        if machine.threads > 1:
            return "The C++ engine, passed its self-test. This page is isolated, so it may use several threads."
        if self._refused:
            return f"One thread only: the threaded engine was refused. {self._refused}"
        if machine.fallback_reason:
            return f"One thread only: the threaded engine did not start ({machine.fallback_reason})."
        if not self.isolated:
            return "One thread only: this page is not isolated (its host sends no COOP and COEP headers), so threads may not share memory."
        return "The C++ engine, passed its self-test. This device offers one core."

    async def bundled_corpus(self) -> Corpus:
        if self._bundled is None:
            self._bundled = Corpus("Shakespeare", (await host.corpus()).to_bytes())
        return self._bundled

    async def open_beside(self, total_bytes: int):
        return await self._open_cpu(total_bytes)

    async def load_numpy(self) -> None:
        await host.load_numpy()

    async def before_cell(self, code: str) -> None:
        """numpy, and the bundled text where the code names it; where Python may not wait (no JSPI), an engine for a model it may make."""
        await host.load_numpy()
        if "shakespeare" in code and not SHAKESPEARE.exists():
            SHAKESPEARE.write_bytes((await self.bundled_corpus()).data)
        if not can_run_sync() and not spares and ("GPT" in code or "load" in code):
            spares.append(await open_wasm(SPARE_BYTES, self._threads))

    @contextlib.contextmanager
    def interruptible(self):
        host.interrupts(True)
        try:
            yield
        finally:
            host.interrupts(False)

    async def load_lark(self) -> None:
        await host.load_lark()

    def flag(self) -> int:
        return host.flag()

    def to_bytes(self, buffer) -> bytes:
        return buffer.to_bytes()

    def source_of(self, file, name):
        return BlobSource(file, host.file_reader(), name) if hasattr(file, "arrayBuffer") else super().source_of(file, name)

    def own(self, chunk):
        return chunk.slice() if hasattr(chunk, "subarray") else host.to_uint8(chunk)  # Python's heap would never shrink again

    def join(self, chunks, total_bytes):
        if total_bytes > MOST_JOINED_BYTES:  # an ArrayBuffer ends at 2 GiB, and would be a second copy
            return host.blob(to_js(chunks))
        whole, position = host.new_bytes(total_bytes), 0
        for chunk in chunks:
            part = whole.subarray(position, position + (chunk.byteLength if hasattr(chunk, "subarray") else len(chunk)))
            part.set(chunk) if hasattr(chunk, "subarray") else part.assign(chunk)
            position += part.byteLength
        return whole.buffer

    async def keep_text(self, corpus: Corpus) -> None:
        if self._bundled is not None and corpus.sha256 == self._bundled.sha256:
            return
        data = host.to_uint8(corpus.data)
        try:
            await host.keep_text(corpus.sha256, data)
        except Exception as error:  # a JsException: no storage, or no room
            cls = StoreQuotaError if "uota" in str(error) else StoreError
            raise cls("text", "it is kept so that the run can go on later", f"the browser refused ({error})",
                      "keep the text yourself; training goes on") from error

    async def kept_text(self, sha256: str, name: str):
        found = await host.kept_text(sha256)
        return None if found is None else Corpus(name, found.to_bytes())

    async def sweep_texts(self, wanted: set[str]) -> None:
        await host.sweep_texts(json.dumps(sorted(wanted)))

    async def room_bytes(self) -> int | None:
        room = await host.room()
        return None if room is None else int(room)

    async def texts_bytes(self) -> int:
        return int(await host.texts_bytes())


def emit(event, buffer=None) -> None:
    """An event to the page. json refuses what JSON cannot carry, so a NaN is a fault here and never a silent null there."""
    text = json.dumps(event, allow_nan=False)
    host.post(text) if buffer is None else host.post_buffer(text, buffer)


async def main() -> None:
    """Start the session and serve for ever."""
    try:
        store, adapters, persistent = RunStore(await OpfsVolume.open()), RunStore(await OpfsVolume.open("adapters")), True
    except StoreError as error:
        store, adapters, persistent = RunStore(MemoryVolume()), RunStore(MemoryVolume()), False
        emit({"kind": "log", "message": str(error)})
    session = Session(emit, PageHost(store, adapters, persistent))

    def receive(text, buffer=None, files=None):
        request = json.loads(text)
        if files is not None:
            request["files"] = list(files)
        if buffer is not None:
            request["buffer"] = buffer.copy() if hasattr(buffer, "copy") else buffer
        session.receive(request)

    host.listen(receive)
    host.post(json.dumps({"kind": "boot", "stage": "engine", "fraction": 0.85, "message": "Testing the engine"}))
    try:
        await session.begin()
    except PostTrainError as error:  # no engine may be used here: say why, in its own words
        emit({"kind": "failed", "fatal": True} | error.to_event() | {"kind": "failed"})
        return
    asyncio.ensure_future(session.serve())


await main()  # noqa: F704 - Pyodide runs this file with top-level await
