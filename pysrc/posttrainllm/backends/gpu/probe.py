"""Which tile multiplies fastest on this device, measured: products and attention of the tapes to come, a few tiles each, for
a bounded time. What is found is JSON (see tiles.key_of and as_choice), to be kept by adapter and used by every later lowering.

A tile of the matrix units must also give the plain kernel's numbers before it is taken: names and units of that WGSL differ
between browsers, and some take what they then compute otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from ...compile.tape import REGION_SHIFT, Tape
from ...dims import product
from ...errors import DeviceError, DeviceLostError
from ...ops import kernel
from ...ops.spec import WRITTEN
from .subjects import Attention, Product, one_kernel, subjects, words
from .tiles import of_choice, units_key

LOG = logging.getLogger("posttrainllm.gpu")
SECONDS = 3.0
"""Of all of it, once on a device: a person waits. Nearly all goes into making pipelines."""
MOST_SUBJECTS = 8
"""The heaviest that are measured; others of a layout take over what was found for one alike."""
AT_ONCE, ONE_BY_ONE = 4, 3
"""Tiles tried for each: where the device's compiler works on several at once, and where not."""
COMPILED_BESIDE, LEAST_BEGUN = 3, 5
"""How many subjects' tiles compile in the time of one's, where several do; and how many are begun in any case."""
LEAST_MS = 1.0
"""A measurement repeats a kernel for about so long: a browser may round its clock to 0.1 ms."""
GUESSED_FLOPS = 2e13
NOISE = 0.03
"""The default stays where another is not faster by more than this share."""
ALIKE = 1 / 200
"""How far results of matrix units may be from the plain kernel's, over the largest: half precision, summed in another order."""


async def _do(machine, method: str, *arguments):
    """machine.method, awaited where the host has it so."""
    waiting = getattr(machine, f"{method}_async", None)
    return await waiting(*arguments) if waiting else getattr(machine, method)(*arguments)


async def _load(machine, tape: Tape, key: str, choice: list):
    """(choice, the tape with that tile); None where the device or its compiler refuses."""
    tried = copy(machine)  # the same buffers and pipelines; only the options are its own, for several load at once
    tried.options = replace(machine.options, tiles={key: choice})
    try:
        return choice, await _do(tried, "load", tape)
    except DeviceLostError:
        raise
    except DeviceError as error:
        LOG.info("%s: %s is refused: %s", key, words(choice), str(error)[:200])
        return None


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


async def agrees(machine, subject: Product | Attention, choice: list, default: list) -> bool:
    """Whether a choice needs no check, or gives what the default (or a plain tile) gives on a small sample with edges."""
    compared = subject.to_check(choice, default)
    sample, results = subject.sample(), []
    for each in compared:
        tape = one_kernel(sample.kernel, sample.sizes)
        loaded = await _load(machine, tape, sample.key(machine.options.precision), each)
        if loaded is None:
            return False
        results.append(await _results(machine, loaded[1], kernel(sample.kernel), sample.sizes))
    if not compared:
        return True
    right, other = results
    most = [max(map(abs, part)) for part in right]
    return all(most) and all(
        abs(a - b) <= most[i] * ALIKE for i, part in enumerate(other) for a, b in zip(right[i], part)
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


def kind_of(choice: list) -> tuple | None:
    """Of which kind the WGSL of a product by matrix units is: a device that refuses one tile of it refuses all. None of others."""
    tile = of_choice(choice)[0] if choice[0] == "tensor" else None
    return (tile.WIDE, tile.COOPERATIVE) if tile else None


def in_turn(todo: list) -> list:
    """The heaviest product, the heaviest of each entry of attention (which has most to gain: see docs/log.md), the heaviest of
    the other layouts, then what is left."""
    heads = list({getattr(each, "layout", getattr(each, "entry", "")): each for each in reversed(todo)}.values())[::-1]
    first = next((each for each in heads if isinstance(each, Product)), None)
    return sorted(todo, key=lambda each: (each != first, each not in heads, each in heads and isinstance(each, Product)))


class Probe:
    """One probe of a machine: what is known, and how long it may go on."""

    def __init__(self, machine, known: dict, seconds: float) -> None:
        self.machine, self.found, self.stop = machine, known, time.perf_counter() + seconds
        self.precision = machine.options.precision
        self.at_once = hasattr(machine, "load_async")
        self.right: set = set()
        self.tried: dict = {}
        self.refused: set = set()
        self.losers: list = []
        self.winners: list = []

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.stop - time.perf_counter()

    async def run(self, all_subjects: list) -> None:
        """Measure what is not known and not alike to a heavier one, then share what was found."""
        todo: list = []
        for subject in all_subjects:
            if subject.key(self.precision) not in self.found and not any(subject.alike(other) for other in todo):
                todo.append(subject)
        todo, began = todo[:MOST_SUBJECTS], time.perf_counter()
        if self.at_once:  # what compiles when the time is over goes on, and the step's own pipelines wait behind it
            todo = in_turn(todo)
            await self._measure_all(todo[:1])  # says how long it takes, and which kind of WGSL is refused
            took = max(1e-3, time.perf_counter() - began)
            todo = todo[1 : 1 + max(LEAST_BEGUN, int(COMPILED_BESIDE * self.left / took))]
        await self._measure_all(todo)
        for subject in all_subjects:
            key = subject.key(self.precision)
            like = next((o for o in all_subjects if subject.alike(o) and o.key(self.precision) in self.found), None)
            if (
                key not in self.found
                and like
                and subject.takes(self.found[like.key(self.precision)], self.machine.options)
            ):
                self.found[key] = self.found[like.key(self.precision)]
        if self.losers and hasattr(self.machine, "forget"):
            self.machine.forget(self.losers, self.winners)

    async def _measure_all(self, todo: list) -> None:
        todo = todo if self.left > 0 else []
        begun = {subject: self._begin(subject) for subject in todo if self.at_once}
        for subject in todo:
            loadeds = await self._loaded(begun.get(subject) or self._begin(subject))
            came = {kind_of(choice) for choice, _ in loadeds}
            self.refused |= {kind for kind in self.tried.pop(subject) if kind and self.left > 0 and kind not in came}
            if len(loadeds) > 1:
                await self._measure(subject, loadeds)

    def _begin(self, subject) -> list:
        """Its choices with the default first, on their way: as tasks where compilers work side by side, else not begun.

        All tasks have their memory before one of them waits: what grew later would take away what the others are bound to.
        """
        options = replace(self.machine.options, tiles=self.found)
        choices = [choice for choice in subject.choices(options) if kind_of(choice) not in self.refused]
        choices = choices[: AT_ONCE if self.at_once else ONE_BY_ONE]
        tape, key = one_kernel(subject.kernel, subject.sizes), subject.key(self.precision)
        self.tried[subject] = {kind_of(choice) for choice in choices}
        if not self.at_once:
            return [(_load, self.machine, tape, key, choice) for choice in choices]
        loop = asyncio.get_running_loop()
        return [asyncio.Task(_load(self.machine, tape, key, c), loop=loop, eager_start=True) for c in choices]

    async def _loaded(self, tries: list) -> list[tuple]:
        """What came in time of one subject's tries; nothing without the default."""
        results = []
        if self.at_once:
            _, late = await asyncio.wait(tries, timeout=max(0.0, self.left))  # what is ready is measured in any case
            for task in late:
                task.cancel()
            results = [None if task in late else task.result() for task in tries]
        else:
            for method, *arguments in tries:
                if self.left > 0:
                    results.append(await method(*arguments))
        return [result for result in results if result] if results and results[0] else []

    async def _measure(self, subject, loadeds: list[tuple]) -> None:
        """Keep the fastest of these that is right."""
        machine, key = self.machine, subject.key(self.precision)
        tapes = [loaded for _, loaded in loadeds]
        repeats = max(2, min(200, int(LEAST_MS / 1e3 * GUESSED_FLOPS / subject.flops)))
        once = await _timed(machine, tapes, repeats)
        repeats = max(2, min(500, int(LEAST_MS / max(min(once), LEAST_MS / 500))))
        times = await _timed(machine, tapes, repeats)
        order = sorted(range(len(times)), key=times.__getitem__)
        if times[order[0]] > (1 - NOISE) * times[0]:
            order.insert(0, 0)
        for best in order:
            choice = loadeds[best][0]
            mark = (subject.sample(), *choice[: -1 if isinstance(subject, Product) else None])
            if mark in self.right or await agrees(machine, subject, choice, loadeds[0][0]):
                self.right.add(mark)
                break
            LOG.warning("%s: %s gives other numbers than the plain kernel: not used", key, words(choice))
        else:
            return
        self.found[key] = choice
        if choice[0] == "tensor":
            self.found.setdefault(units_key(subject.layout), choice)
        LOG.info(
            "%s: %s in %.1f µs; the default %s in %.1f; %d tried, the slowest %s in %.1f",
            key, words(choice), 1e3 * times[best], words(loadeds[0][0]), 1e3 * times[0], len(times),
            words(loadeds[order[-1]][0]), 1e3 * times[order[-1]],
        )  # fmt: skip
        self.winners.append(tapes.pop(best))
        self.losers += tapes


async def probe(machine, tapes: Iterable[Tape], known: dict | None = None, seconds: float = SECONDS) -> dict:
    """What tiles to take for these tapes: `known` and what was measured now. A software adapter is not measured.

    What has most of the work comes first; what the time does not reach keeps its default.
    """
    found = dict(known or {})
    if not machine.software:
        await Probe(machine, found, seconds).run(subjects(tapes))
    return found
