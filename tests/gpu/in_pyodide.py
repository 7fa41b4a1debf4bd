"""Run under Pyodide by dawn.mjs: training steps on WebGPU through gpu.mjs, as the page's Trainer sends them; answers with JSON."""

import json
import time

import numpy as np
from posttrainllm.backends.gpu import tiles
from posttrainllm.backends.webgpu_browser import open_webgpu
from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.held import predicted
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program


async def refusal(engine, source: str) -> str:
    """What the browser's compiler says against a shader; empty when nothing."""
    from js import Object
    from pyodide.ffi import to_js

    engine.device.pushErrorScope("validation")
    engine.device.createShaderModule(to_js({"code": source}, dict_converter=Object.fromEntries))
    error = await engine.device.popErrorScope()
    return str(error.message) if error else ""


def block(asked: dict, config: GPTConfig, first: int, count: int) -> tuple:
    """(tokens, targets, recipes) of so many of the question's steps."""
    steps = asked["steps"][first : first + count]
    shape = (len(steps), config.batch, config.context)
    tokens, targets = (np.array([step[side] for step in steps], np.int32).reshape(shape) for side in (0, 1))
    return tokens, targets, [tuple(recipe) for recipe in asked["recipes"][first : first + count]]


async def run(asked: str) -> str:
    """asked: {"config", "steps": [[tokens, targets]…], "recipes", "gradients": names, "clamp", "repeat", "precision", "lose"}."""
    asked = json.loads(asked)
    if asked.get("quick"):  # tiles that a CPU's driver compiles quickly
        tiles.LARGE, tiles.MIDDLE, tiles.SMALL = (), *[tiles.MatmulTile(32, 32, 8, 4, 4)] * 2
    config = GPTConfig(**asked["config"])
    machine = await open_webgpu(asked.get("clamp"), asked.get("precision", "f32"))
    model, seen = GPT(config, machine, Program(config)), []
    began = time.perf_counter()
    await model.prepare(lambda done, total: seen.append((done, total)))
    prepare_seconds = time.perf_counter() - began
    model.initialise(42)
    step, queue = model.program.step, await model.steps()
    gradients, rows = {}, []
    for first, count in [(0, 1), *((at, 3) for at in range(1, len(asked["steps"]), 3))]:
        queue.push(*block(asked, config, first, count))
        rows += queue.poll()
        if first == 0:
            for name in asked["gradients"]:
                gradients[name] = (await machine.download_async(*step.address(name))).hex()
    rows += await queue.drain()
    loaded = model._loaded[id(step)]
    answer = {
        "description": machine.description,
        "software": machine.software,
        "features": sorted(machine.features),
        "tiles": machine.options.tiles,
        "losses": [loss for loss, _ in rows],
        "norms": [norm for _, norm in rows],
        "gradients": gradients, "progress": seen[-1], "dispatches": len(loaded.lowered.dispatches), "prepare_seconds": prepare_seconds,
    }  # fmt: skip
    if asked.get("weights"):
        answer |= await kept(machine, model)
    answer["refused"] = [
        message for source in asked.get("sources", []) if (message := await refusal(machine.engine, source))
    ]
    if asked.get("repeat"):
        answer |= await timed(asked, config, queue)
    if asked.get("lose"):
        machine.engine.device.destroy()
        try:
            for first in range(len(asked["steps"])):
                queue.push(*block(asked, config, first, 1))
            await queue.drain()
            answer["lost"] = "a number came"
        except DeviceError as error:
            answer["lost"] = error.code
    return json.dumps(answer)


async def kept(machine, model) -> dict:
    """Weights as a save reads them, in how many buffers they lie, and memory as it was foreseen, as told, and as buffers have it."""
    foreseen = predicted(model.program, machine.predictor)
    await model.fetch()
    weights = b"".join(model.weight_view(name).to_bytes() for name in model.weight_names())
    model.set_weight_bytes("wte.weight", model.weight_bytes("wte.weight"))
    again = await machine.download_async(*model.weight_address("wte.weight"))
    return {
        "weights": weights.hex(), "again": weights.startswith(again), "parts": len(machine._memory.cuts.parts.get(0, (0,))),
        "foreseen": foreseen, "memory": model.memory(),
    }  # fmt: skip


async def timed(asked: dict, config: GPTConfig, queue) -> dict:
    """Milliseconds a step in blocks of `block` (16) steps, three blocks ahead; and Python's part of them."""
    size, host, done = asked.get("block", 16), 0.0, 0
    tokens, targets, recipes = (list(part) * size for part in block(asked, config, 0, 1))
    shape = (size, config.batch, config.context)
    tokens, targets = np.array(tokens).reshape(shape), np.array(targets).reshape(shape)
    queue._queue._steps.spentMs = 0
    began = time.perf_counter()
    for _ in range(max(3, asked["repeat"] // size)):
        start = time.perf_counter()
        queue.push(tokens, targets, recipes)
        rows = queue.poll()
        host += time.perf_counter() - start
        done += len(rows)
        while queue.under_way > 3:
            done += len(await queue.landed())
    done += len(await queue.drain())
    js_ms = queue._queue._steps.spentMs / done  # encoding and submitting, in JavaScript and the browser
    return {"js_ms": js_ms, "step_ms": (time.perf_counter() - began) / done * 1e3, "host_ms": host / done * 1e3}
