"""What ours.mjs asks of Python in the tab: train a preset, write with one, and a session's whole loop. Requests and answers are JSON."""

import asyncio
import json
import sys
import time

sys.path.insert(0, "/lib/posttrainllm")

import posttrainllm_host as host  # noqa: E402
from posttrainllm.backends.wasm import open_wasm  # noqa: E402
from posttrainllm.data.corpus import Corpus  # noqa: E402
from posttrainllm.decode.generate import write_async  # noqa: E402
from posttrainllm.model.config import GPTConfig  # noqa: E402
from posttrainllm.model.lora import LoRAConfig  # noqa: E402
from posttrainllm.model.live import GPT, RESERVE_BYTES  # noqa: E402
from posttrainllm.model.program import Program  # noqa: E402
from posttrainllm.session import Host, Session  # noqa: E402
from posttrainllm.train.trainer import Trainer  # noqa: E402

now = time.perf_counter
live = {}


async def corpus():
    """Shakespeare, fetched once."""
    if "corpus" not in live:
        live["corpus"] = Corpus("Shakespeare", (await host.corpus()).to_bytes())
    return live["corpus"]


async def make(text):
    """{preset, threads, settings} -> {threads, memory_bytes, region_bytes}: a new model and its trainer; "NAME+lora" trains an adapter on it."""
    asked = json.loads(text)
    await close("{}")
    name, _, tuned = asked["preset"].partition("+")
    config, adapter = GPTConfig.preset(name), LoRAConfig.of() if tuned else None
    program = Program(config, True, adapter)
    need = sum(program.region_bytes().values())
    machine = await open_wasm(need + RESERVE_BYTES, asked["threads"])
    machine.allocate(program.region_bytes())
    model = GPT(config, machine, Program(config, False) if tuned else program)
    model.initialise(42)
    if tuned:
        await model.attach_async(adapter, training=True)
    live["trainer"] = Trainer(model, await corpus(), asked.get("settings"))
    return json.dumps({"threads": machine.threads, "memory_bytes": machine.memory_bytes, "region_bytes": need})


async def run(text):
    """{count} -> [{ms, engine_ms, loss_nats, gradient_norm}]."""
    steps = []
    for _ in range(json.loads(text)["count"]):
        engine, began = host.engine_ms(), now()
        report = live["trainer"].train_step()
        ms = 1000 * (now() - began)
        steps.append({"ms": ms, "engine_ms": host.engine_ms() - engine, "loss_nats": report.loss_nats, "gradient_norm": report.gradient_norm})
    return json.dumps(steps)


async def close(text):
    """Give the engine's memory and threads back."""
    if "trainer" in live:
        live.pop("trainer").model.close()
    return "null"


async def features(text):
    """{settings} -> as bench/web/features.py, of the model that `make` made and `run` trained; the autoencoder has an engine of its own."""
    await host.load_numpy()
    from posttrainllm.study.sae_engine import need_bytes
    from posttrainllm.study.sae_train import SAESettings

    sys.path.insert(0, "/home/pyodide")
    from features import measure

    settings = json.loads(text)["settings"]
    trainer, made = live["trainer"], SAESettings.of(**settings)
    model, loss = trainer.model, await live["trainer"].measure_async()
    machine = await open_wasm(need_bytes(model.config.channels, made.features, made.batch), model.machine.threads)
    try:
        found = await measure(model, trainer.corpus.train, trainer.corpus.validation, machine, **settings)
    finally:
        machine.close()
    found["model"] = {"validation_loss_nats": loss, "weights_sha256": model.weights_sha256()}
    return json.dumps(found)


async def decode(text):
    """{preset, threads, tokens, prompt} -> {ms, engine_ms, tokens}: write with a new model's weights."""
    asked = json.loads(text)
    key = asked["preset"], asked["threads"]
    if key not in live:
        config = GPTConfig.preset(asked["preset"])
        program = Program(config, training=False)
        machine = await open_wasm(sum(program.region_bytes().values()) + RESERVE_BYTES, asked["threads"])
        live[key] = GPT(config, machine, program)
        live[key].initialise(42)
    engine, began = host.engine_ms(), now()
    async for _ in write_async(live[key], asked["prompt"], asked["tokens"]):
        pass
    return json.dumps({"ms": 1000 * (now() - began), "engine_ms": host.engine_ms() - engine, "tokens": asked["tokens"]})


class TabHost(Host):
    """A session's host with this page's engine; runs are kept in memory."""

    def __init__(self, threads):
        super().__init__()
        self.threads = threads

    async def open_machine(self, total_bytes):
        return await open_wasm(total_bytes, self.threads)

    async def bundled_corpus(self):
        return await corpus()


async def session(text):
    """{preset, threads, count} -> {ms, engine_ms, steps}: a session's loop with its events, without samples and saves."""
    asked = json.loads(text)
    each = Session(lambda event, buffer=None: host.post(json.dumps(event)), TabHost(asked["threads"]))
    await each.handle({"kind": "settings", "id": 1, "sample_every_seconds": 0, "save_every_seconds": 1e6})
    training = {"steps": 1000, "evaluate_every_steps": 1000}
    await each.handle({"kind": "train.start", "id": 2, "preset": asked["preset"], "training": training})
    for _ in range(4):  # the first turn evaluates
        each.training.turn()
        await asyncio.sleep(0)
    engine, began = host.engine_ms(), now()
    for _ in range(asked["count"]):
        each.training.turn()
        await asyncio.sleep(0)
    answer = {"ms": 1000 * (now() - began), "engine_ms": host.engine_ms() - engine, "steps": asked["count"]}
    each.drop_model()
    return json.dumps(answer)
