"""Run under Pyodide by dawn.mjs: a few training steps on WebGPU through gpu.mjs; answers with JSON."""

import json
import struct
import time

from posttrainllm.backends.gpu import tiles
from posttrainllm.backends.webgpu_browser import open_webgpu
from posttrainllm.compile.tape import address
from posttrainllm.errors import DeviceError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import DLOSS, LOSS, RECIPE, SEED, initial_weights, pack_recipe, training_step


def need_of(*passes) -> dict[str, int]:
    need: dict[str, int] = {}
    for each in passes:
        for region, nbytes in each.plan.region_bytes.items():
            need[region] = max(need.get(region, 0), nbytes)
    return need


async def refusal(engine, source: str) -> str:
    """What the browser's compiler says against a shader; empty when nothing."""
    from js import Object
    from pyodide.ffi import to_js

    engine.device.pushErrorScope("validation")
    engine.device.createShaderModule(to_js({"code": source}, dict_converter=Object.fromEntries))
    error = await engine.device.popErrorScope()
    return str(error.message) if error else ""


async def run(asked: str) -> str:
    """asked: {"config", "steps": [[tokens, targets]…], "recipes", "gradients": names, "clamp", "repeat", "lose"}."""
    asked = json.loads(asked)
    if asked.get("quick"):  # tiles that a CPU's driver compiles quickly
        tiles.LARGE, tiles.MIDDLE, tiles.SMALL = (), *[tiles.MatmulTile(32, 32, 8, 4, 4)] * 2
    config = GPTConfig(**asked["config"])
    machine = await open_webgpu(asked.get("clamp"))
    initial, step = initial_weights(config), training_step(config)
    machine.allocate(need_of(initial, step))
    machine.upload(address(SEED), struct.pack("<Q", 42))
    machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    machine.replay(await machine.load_async(initial.tape))
    seen = []
    began = time.perf_counter()
    loaded = await machine.load_async(step.tape, lambda done, total: seen.append((done, total)))
    prepare_seconds = time.perf_counter() - began
    ring = machine.ring(address(LOSS), 512, every=4)
    rows = []

    def train(tokens, targets, recipe):
        machine.upload(address(RECIPE), pack_recipe(recipe))
        machine.upload(address(step.tokens), struct.pack(f"<{len(tokens)}i", *tokens))
        machine.upload(address(step.targets), struct.pack(f"<{len(targets)}i", *targets))
        machine.replay(loaded)
        ring.push()

    gradients = {}
    for number, (tokens, targets) in enumerate(asked["steps"]):
        train(tokens, targets, asked["recipes"][number])
        rows += ring.poll()
        if number == 0:
            for name in asked["gradients"]:
                gradients[name] = (await machine.download_async(*step.address(name))).hex()
    rows += await ring.drain_async()
    answer = {
        "description": machine.description,
        "software": machine.software,
        "losses": [struct.unpack_from("<f", row, 0)[0] for row in rows],
        "norms": [struct.unpack_from("<f", row, 256)[0] for row in rows],
        "gradients": gradients, "progress": seen[-1], "dispatches": len(loaded.lowered.dispatches), "prepare_seconds": prepare_seconds,
    }  # fmt: skip
    answer["refused"] = [
        message for source in asked.get("sources", []) if (message := await refusal(machine._engine, source))
    ]
    if asked.get("repeat"):
        tokens, targets = asked["steps"][0]
        await machine.wait_async()
        host, began = 0.0, time.perf_counter()
        for _ in range(asked["repeat"]):
            start = time.perf_counter()
            train(tokens, targets, asked["recipes"][-1])
            host += time.perf_counter() - start
            if machine.full:
                await machine.wait_async()
        await machine.wait_async()
        answer["step_ms"] = (time.perf_counter() - began) / asked["repeat"] * 1e3
        answer["host_ms"] = host / asked["repeat"] * 1e3
        await ring.drain_async()
    if asked.get("lose"):
        machine._engine.device.destroy()
        try:
            for tokens, targets in asked["steps"]:
                train(tokens, targets, asked["recipes"][0])
            await machine.download_async(address(LOSS), 4)
            answer["lost"] = "a number came"
        except DeviceError as error:
            answer["lost"] = error.code
    return json.dumps(answer)
