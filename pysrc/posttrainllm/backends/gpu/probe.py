"""Which tile multiplies fastest on this device, measured: products and attention of the tapes to come, each tile that suits, for
a bounded time. What is found is JSON (see tiles.key_of and as_choice), to be kept by adapter and used by every later lowering.

A tile of the matrix units must also give the plain kernel's numbers before it is taken: names and units of that WGSL differ
between browsers, and some take what they then compute otherwise.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterable
from dataclasses import replace

from ...compile.tape import REGION_SHIFT, Tape
from ...dims import product
from ...errors import DeviceError, DeviceLostError
from ...ops import kernel
from ...ops.spec import WRITTEN
from .subjects import CHECKED, Attention, Product, one_kernel, subjects, words
from .tiles import TENSOR_SMALL, as_choice, units_key

LOG = logging.getLogger("posttrainllm.gpu")
SECONDS = 0.3
"""Of measuring; making pipelines comes on top, and ends at MOST_SECONDS in all."""
MOST_SECONDS = 4.0
LEAST_MS = 0.4
"""A measurement repeats a kernel for about so long."""
GUESSED_FLOPS = 8e12
NOISE = 0.03
"""The default stays where another is not faster by more than this share."""
ALIKE = 1 / 200
"""How far results of matrix units may be from the plain kernel's, over the largest: half precision, summed in another order."""


async def _do(machine, method: str, *arguments):
    """machine.method, awaited where the host has it so."""
    waiting = getattr(machine, f"{method}_async", None)
    return await waiting(*arguments) if waiting else getattr(machine, method)(*arguments)


async def _load(machine, tape: Tape, key: str, choice: list):
    """The tape with one tile; None where the device or its compiler refuses."""
    kept = machine.options
    machine.options = replace(kept, tiles={key: choice})
    try:
        return await _do(machine, "load", tape)
    except DeviceLostError:
        raise
    except DeviceError as error:
        LOG.info("%s: %s is refused: %s", key, words(choice), str(error)[:200])
        return None
    finally:
        machine.options = kept


async def _timed(machine, loadeds: list, repeats: int) -> list[float]:
    """Milliseconds of each tape, `repeats` times over: by the GPU's clock where it has one, else by ours."""
    if "timestamp-query" in machine.features and hasattr(machine, "time_replays"):
        found = machine.time_replays(loadeds, repeats)
        return list(await found if hasattr(found, "__await__") else found)
    times = []
    for loaded in loadeds:
        await _do(machine, "wait")
        began = time.perf_counter()
        for _ in range(repeats):
            machine.replay(loaded)
        await _do(machine, "wait")
        times.append((time.perf_counter() - began) * 1e3 / repeats)
    return times


async def agrees(machine, subject: Product | Attention, choice: list) -> bool:
    """Whether a choice needs no check, or gives what the plain kernel gives on a small sample with edges."""
    right, others = subject.to_check(choice)
    if not others:
        return True
    sample, results = subject.sample(), []
    for each in (right, *others):
        loaded = await _load(
            machine, one_kernel(sample.kernel, sample.sizes), sample.key(machine.options.precision), each
        )
        if loaded is None:
            return False
        results.append(await _results(machine, loaded, kernel(sample.kernel), sample.sizes))
    most = [max(map(abs, part)) for part in results[0]]
    return all(most) and all(
        abs(a - b) <= most[i] * ALIKE
        for other in results[1:]
        for i, part in enumerate(other)
        for a, b in zip(results[0][i], part)
    )  # NaN is not


async def _results(machine, loaded, made_of, sizes: dict[str, int]) -> list[tuple]:
    """What a tape of one kernel writes, after numbers were put everywhere; by buffer, for halves are not to be had as values."""
    places = {}
    for dispatch in loaded.lowered.dispatches:
        for index, operand, _ in dispatch.bindings:
            if index < len(made_of.args):
                places[index] = operand.region << REGION_SHIFT | operand.offset_bytes
    formats = {}
    for index, at in places.items():
        size = machine.options.element_bytes(made_of.name, made_of.args[index].name)
        count = product(made_of.shape(made_of.args[index], sizes))
        formats[index] = f"<{count}{'e' if size == 2 else 'f'}"
        numbers = [((i * 7919 + index) % 257 - 128) / 128 for i in range(count)]
        machine.upload(at, struct.pack(formats[index], *numbers))
    machine.replay(loaded)
    written = [index for index in sorted(places) if made_of.args[index].role in WRITTEN]
    return [
        struct.unpack(
            formats[index], bytes(await _do(machine, "download", places[index], struct.calcsize(formats[index])))
        )
        for index in written
    ]


async def _find_units(machine, layout: str, found: dict) -> None:
    """Keep under units_key(layout) a tile of matrix units that is right here, or None: looked for once."""
    key = units_key(layout)
    if key in found or not machine.options.half or not machine.options.subgroup_matrix:
        return
    found[key] = None
    for tile in (TENSOR_SMALL, replace(TENSOR_SMALL, WIDE=False)):
        sample = Product(layout, *CHECKED)
        if tile.suits(machine.options, *sample.shape) and await agrees(machine, sample, as_choice(tile, 1)):
            found[key] = as_choice(tile, 1)
            return
    LOG.warning("%s: not used here; what they give differs from the plain kernel, or they do not compile", key)


async def probe(machine, tapes: Iterable[Tape], known: dict | None = None, seconds: float = SECONDS) -> dict:
    """What tiles to take for these tapes: `known` and what was measured now. A software adapter is not measured.

    What has most of the work comes first; what the time does not reach keeps its default.
    """
    found = dict(known or {})
    if machine.software:
        return found
    began, measured, right = time.perf_counter(), 0.0, set()
    losers, winners = [], []
    for subject in subjects(tapes):
        key = subject.key(machine.options.precision)
        if key in found:
            continue
        if measured > seconds or time.perf_counter() - began > MOST_SECONDS:
            break
        if isinstance(subject, Product):
            await _find_units(machine, subject.layout, found)
        tape, loadeds = one_kernel(subject.kernel, subject.sizes), []
        for choice in subject.choices(replace(machine.options, tiles=found)):
            loaded = await _load(machine, tape, key, choice)
            if loaded:
                loadeds.append((choice, loaded))
        if not loadeds:
            continue
        repeats = max(2, min(200, int(LEAST_MS / 1e3 * GUESSED_FLOPS / subject.flops)))
        start = time.perf_counter()
        rounds = [await _timed(machine, [loaded for _, loaded in loadeds], repeats) for _ in range(2)]
        measured += time.perf_counter() - start
        times = [min(pair) for pair in zip(*rounds)]
        order = sorted(range(len(times)), key=times.__getitem__)
        if times[order[0]] > (1 - NOISE) * times[0]:
            order.insert(0, 0)
        for best in order:
            choice = loadeds[best][0]
            mark = (subject.sample(), *choice[: -1 if isinstance(subject, Product) else None])
            if mark in right or await agrees(machine, subject, choice):
                right.add(mark)
                break
            LOG.warning("%s: %s gives other numbers than the plain kernel: not used", key, words(choice))
        else:
            continue
        found[key] = choice
        LOG.info(
            "%s: %s in %.1f µs; the default %s in %.1f; %d tried, the slowest %s in %.1f",
            key, words(choice), 1e3 * times[best], words(loadeds[0][0]), 1e3 * times[0], len(times),
            words(loadeds[order[-1]][0]), 1e3 * times[order[-1]],
        )  # fmt: skip
        winners.append(loadeds.pop(best)[1])
        losers += [loaded for _, loaded in loadeds]
    if losers and hasattr(machine, "forget"):
        machine.forget(losers, winners)
    return found
