"""The GPU's start-up self-test: a small GPT's loss, every gradient and decoded logits beside the float64 reference, before a
GPU may train or write.

A driver that is wrong in one op shows in the gradients behind it: the first one off, from the loss down, names where.
"""

from __future__ import annotations

import logging
import math
import struct

from ..backends.reference import ReferenceMachine
from ..compile import place, record
from ..compile.tape import address
from ..errors import DeviceError, SelfTestError
from ..ops.lazy import np
from . import kernel_check
from .config import GPTConfig
from .gpt import Layout
from .program import (
    DLOSS, LOSS, NORM, POSITION, RECIPE, SEED, Pass, decoding, evaluation, initial_weights, pack_recipe, regions_of, training_step,
)  # fmt: skip

LOG = logging.getLogger("posttrainllm.gpu")
CONFIG = GPTConfig(layers=2, channels=20, heads=2, context=9, vocabulary=23, batch=3)
DECODED = 4
"""Tokens of a pass over the cache."""
RECIPE_VALUES = (0.05, 0.9, 0.95, 0.05, 0.1, 1.0, 10.0, 20.0)
"""AdamW's eps is large, so that a gradient that is zero but for roundings moves nothing."""
ALLOWED = {"f32": 1e-3, "f16": 32 * 2.0**-11}
"""Of a gradient's root mean square, by precision of storage. A rounding is 2^-24 (2^-11 in f16), and the squares of some
sixty on a path there and back add up: 1e-6 was measured in f32, 2e-3 in f16. A wrong op gives 1e-1 or more."""


async def check(machine) -> None:
    """Decode and train one step on the machine and on the reference. Raises SelfTestError, naming what is off and by how much.

    A device whose subgroups are what is wrong goes on without them.
    """
    try:
        await _check(machine)
    except SelfTestError as error:
        if not machine.options.subgroups:
            raise
        LOG.warning("%s; trying without subgroups", error)
        machine.drop_subgroups()
        await _check(machine)


async def _check(machine) -> None:
    scale = await _gradient_scale(machine)
    for op, name, mine, judge in await kernel_check.results(machine, _load, _read, scale):
        if fault := _fault(machine, mine, judge):
            raise _refused(machine, op, f"its {name}", fault)
    got, expected = await _step(machine), await _step(ReferenceMachine())
    for name, judge in expected.items():
        if fault := _fault(machine, got[name], judge):
            op = await forward_op(machine, decoding(CONFIG, DECODED) if name == "logits" else evaluation(CONFIG))
            raise _refused(machine, op or _op_of(name), name, fault)


def _fault(machine, mine, judge) -> str:
    """What is wrong with a machine's numbers beside the judge's; "" where nothing is."""
    size = float(np.sqrt((judge**2).mean()))
    if not np.isfinite(mine).all():
        return "numbers that are not finite"
    if judge.any() and not mine.any():
        return "only zeros"
    error = float(np.sqrt(((mine - judge) ** 2).mean()))
    return f"values off by {error / size if size else math.inf:.1%}" if error > ALLOWED[getattr(machine, "precision", "f32")] * size else ""


async def forward_op(machine, each) -> str:
    """The first op whose result is off on the way to a pass's loss or logits, by another run that keeps them all; "" where it
    cannot be told: half precision keeps activations from being read, and a fault may show only where ops are fused."""
    nodes = each.plan.graph.nodes
    for node, after in zip(nodes, [*nodes[1:], None]):
        fused = node.kernel.name == "linear" and after is not None and after.kernel.name == "add"
        for value in node.written():
            value.keep = value.region == "arena" and not fused
    plan, initial, found = place(each.plan.graph), initial_weights(CONFIG, training=False), []
    kept = Pass(plan, record(plan), each.tokens, each.targets)
    made = [(node.kernel.name, value) for node in nodes for value in node.written() if value.keep or value.region == "metrics"]
    try:
        for one in (machine, ReferenceMachine()):
            one.allocate(regions_of((initial, kept)))
            one.upload(address(SEED), struct.pack("<Q", 7))
            one.replay(await _load(one, initial.tape))
            numbers = [(node.kernel.name, await _numbers(one, node.values["x"])) for node in initial.plan.graph.nodes]
            await _forward(one, kept)
            found.append(numbers + [(name, await _numbers(one, value)) for name, value in made])
    except DeviceError:
        return ""
    off = (name for (name, mine), (_, judge) in zip(*found) if _fault(machine, mine, judge))
    return next(off, "")


async def _forward(machine, each) -> None:
    """Run a pass: one with targets on the batch, one for decoding on the second DECODED tokens after the first."""
    loaded, (tokens, targets) = await _load(machine, each.tape), _batch()
    if each.targets is not None:
        machine.upload(address(each.tokens), tokens)
        machine.upload(address(each.targets), targets)
        machine.replay(loaded)
        return
    for start in (0, DECODED):
        machine.upload(address(each.tokens), tokens[4 * start : 4 * (start + DECODED)])
        machine.upload(address(POSITION), struct.pack("<i", start))
        machine.replay(loaded)


async def _numbers(machine, value):
    return np.frombuffer(await _read(machine, address(value), value.nbytes), "<f4").astype(float)


def _batch() -> tuple[bytes, bytes]:
    """Tokens and targets of the step, as i32."""
    count = CONFIG.batch * CONFIG.context
    tokens = [(i * 7 + 5) % CONFIG.vocabulary for i in range(count)]
    targets = [(i * 11 + 1) % CONFIG.vocabulary if i % 5 else -100 for i in range(count)]
    return struct.pack(f"<{count}i", *tokens), struct.pack(f"<{count}i", *targets)


def check_now(machine) -> None:
    """The same for an engine that never makes one wait (wgpu-py)."""
    try:
        check(machine).send(None)
    except StopIteration:
        return
    raise SelfTestError(machine.description, "its self-test runs at once", "it waits", "use `await check(machine)`")


def _refused(machine, op: str, name: str, came: str) -> SelfTestError:
    return SelfTestError(
        f"{machine.description}, op {op}",
        f"a training step and decoding give the reference's {name}",
        f"{came} came",
        "use the cpu engine, and please report the device",
    )


async def _step(machine) -> dict:
    """float64 arrays by name: loss, weights' gradients from the last layer to the first, the norm, stepped weights, logits."""
    initial, step, decode = initial_weights(CONFIG), training_step(CONFIG), decoding(CONFIG, DECODED)
    need = regions_of((initial, step, decode))
    machine.allocate(need)
    machine.upload(address(SEED), struct.pack("<Q", 7))
    machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    machine.replay(await _load(machine, initial.tape))
    tokens, targets = _batch()
    await _forward(machine, decode)
    logits = np.frombuffer(await _read(machine, *decode.address("logits")), "<f4").astype(float)
    machine.upload(address(step.tokens), tokens)
    machine.upload(address(step.targets), targets)
    machine.upload(address(RECIPE), pack_recipe(RECIPE_VALUES))
    machine.replay(await _load(machine, step.tape))
    weights = Layout.of(CONFIG).values()
    places = {"loss": (address(LOSS), 4)}
    places |= {f"gradient of {name}": step.address(name) for name in sorted(weights, key=_depth)}
    places |= {"gradient norm": (address(NORM), 4)}
    places |= {f"new {name}": (address(value), value.nbytes) for name, value in weights.items()}
    found = {name: np.frombuffer(await _read(machine, *place), "<f4").astype(float) for name, place in places.items()}
    scale = await _gradient_scale(machine)
    found = {name: array / (scale if name.startswith("gradient of") else 1.0) for name, array in found.items()}
    return found | {"logits": logits}


def _op_of(name: str) -> str:
    """The op whose kernel gives a number of this name: where a fault is, or just behind it."""
    if name in ("loss", "gradient norm", "logits"):
        return {"loss": "linear with what is fused to it, or cross_entropy", "gradient norm": "grad_norm", "logits": "embedding_at or attention_cached"}[name]
    if name.startswith("new "):
        return "adamw"
    if ".ln_" in name or "ln_f" in name:
        return "layernorm"
    return "embedding or unembed" if "wte" in name or "wpe" in name else "attention or linear" if ".qkv" in name else "linear"


def _depth(name: str) -> tuple:
    """Backward's order: the head's side first."""
    parts = name.split(".")
    order = {"ln_f": 0, "blocks": 1, "wpe": 2, "wte": 3}[parts[0]]
    inside = ("mlp.proj", "mlp.fc", "ln_2", "attn.proj", "attn.qkv", "ln_1")
    return (order, -int(parts[1]) if order == 1 else 0, next((i for i, part in enumerate(inside) if part in name), 0))


async def _load(machine, tape):
    return await machine.load_async(tape) if hasattr(machine, "load_async") else machine.load(tape)


async def _gradient_scale(machine) -> float:
    """What the gradients of the step just run are multiplied by."""
    if hasattr(machine, "gradient_scale_async"):
        return await machine.gradient_scale_async()
    return machine.gradient_scale() if hasattr(machine, "gradient_scale") else 1.0


async def _read(machine, where: int, nbytes: int) -> bytes:
    return (
        await machine.download_async(where, nbytes)
        if hasattr(machine, "download_async")
        else machine.download(where, nbytes)
    )
