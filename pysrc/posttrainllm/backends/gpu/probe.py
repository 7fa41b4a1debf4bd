"""Which tile multiplies fastest on this device, measured: a few products of the tapes to come, each tile that suits, for a
bounded time. What is found is JSON (see tiles.key_of and as_choice), to be kept by adapter and used by every later lowering.

A tile of the matrix units must also give the plain kernel's numbers before it is taken: names and units of that WGSL differ
between browsers, and some take what they then compute otherwise.
"""

from __future__ import annotations

import logging
import struct
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ...compile import Graph, Value, place, record
from ...compile.tape import REGION_SHIFT, Tape, decode
from ...dims import product, round_up
from ...errors import DeviceError, DeviceLimitError, DeviceLostError
from ...ops import kernel
from .dispatch import ceil_div
from .options import Options
from .tiles import (
    LAYOUTS,
    LEAST_CHUNK,
    MIDDLE,
    SMALL,
    TENSOR_SMALL,
    MatmulTile,
    TensorTile,
    as_choice,
    key_of,
    matmul_tile,
    of_choice,
    units_key,
)

LOG = logging.getLogger("posttrainllm.gpu")
SECONDS = 0.3
"""Of measuring; making pipelines comes on top, and ends at MOST_SECONDS in all."""
MOST_SECONDS = 4.0
LEAST_MS = 0.4
"""A measurement repeats a product for about so long."""
GUESSED_TFLOPS = 8.0
PLAIN = (
    MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 128, 16, 8, 8), MatmulTile(128, 64, 16, 8, 8), MIDDLE, SMALL,
    MatmulTile(32, 32, 32, 4, 4),
)  # fmt: skip
HALF = (MatmulTile(128, 128, 32, 16, 8, True, True), MatmulTile(128, 128, 32, 8, 8, True, True))
TENSOR = (
    TensorTile(4, 4, 2, 4, 32), TensorTile(4, 4, 2, 2, 32, 2), TensorTile(4, 4, 2, 2, 32), TensorTile(4, 2, 2, 4, 32, 2),
    TENSOR_SMALL, TensorTile(2, 2, 2, 2, 64),
)  # fmt: skip
CHUNKS = (1, 2, 4, 8, 16)
FEWEST_GROUPS, MOST_GROUPS = 24, 3000
MOST_SCRATCH_BYTES = 128 << 20
KERNELS = {"NN": ("linear", "ROI"), "NT": ("linear_backward_input", "RIO"), "TN": ("linear_backward_weight", "IOR")}
"""Layout to the kernel that is timed for it, and its letters for rows, columns and depth."""
LETTERS = {
    "linear": "ROI", "linear_backward_input": "RIO", "linear_backward_weight": "IOR",
    "unembed": "RVC", "unembed_backward_input": "RCV", "unembed_backward_weight": "VCR",
}  # fmt: skip
CHECKED = (264, 264, 264)  # rows, columns and depth of the product that a tile is checked on: no multiple of any tile


def products(tapes: Iterable[Tape]) -> list[tuple[str, int, int, int]]:
    """(layout, rows, columns, depth) of the tapes' products, those with most of the work first."""
    work: Counter = Counter()
    for tape in tapes:
        for each in decode(tape):
            if each.kernel.name in LETTERS:
                shape = tuple(each.sizes[letter] for letter in LETTERS[each.kernel.name])
                work[LAYOUTS[each.kernel.name], *shape] += product(shape)
    return [shape for shape, _ in work.most_common()]


def candidates(options: Options, layout: str, rows: int, columns: int, depth: int) -> list[tuple]:
    """(tile, chunks) worth a measurement, the one taken without a measurement first."""
    shape = (layout, rows, columns, depth)
    units = (options.tiles or {}).get(units_key(layout))
    tile, chunk = matmul_tile(*shape, replace(options, tiles={units_key(layout): units}))
    found, tiles = [(tile, ceil_div(depth, chunk))], []
    if units:
        tiles = [replace(tile, WIDE=of_choice(units)[0].WIDE) for tile in TENSOR]
    tiles = [tile for tile in tiles if tile.suits(options, *shape)]
    tiles += [tile for tile in (PLAIN[:1] if tiles else (*PLAIN, *HALF)) if tile.suits(options, *shape)]
    for tile in tiles:
        groups = tile.groups(rows, columns)
        largest = not any(other.TILE_M * other.TILE_N > tile.TILE_M * tile.TILE_N for other in tiles)
        for chunks in CHUNKS:
            scratch = chunks * rows * columns * 4 * (chunks > 1)
            if chunks > 1 and (depth // chunks < LEAST_CHUNK or scratch > MOST_SCRATCH_BYTES):
                break
            if groups * chunks < FEWEST_GROUPS or (groups * chunks > MOST_GROUPS and not (largest and chunks == 1)):
                continue
            if (tile, chunks) not in found:
                found.append((tile, chunks))
    return found


def one_product(layout: str, rows: int, columns: int, depth: int) -> Tape:
    """A tape of one product with everything in the arena, so that a host gives it memory by itself."""
    name, sizes = KERNELS[layout][0], _sizes(layout, rows, columns, depth)
    graph, at, values = Graph(), 0, {}
    for argument in kernel(name).args:
        shape = kernel(name).shape(argument, sizes)
        values[argument.name] = Value(argument.name, shape, "f32", "arena", at)
        at += round_up(product(shape) * 4, 256)
    graph.call(name, sizes, **values)
    return record(place(graph))


def _sizes(layout: str, *shape: int) -> dict[str, int]:
    return dict(zip(KERNELS[layout][1], shape))


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
    except (DeviceLimitError, DeviceError) as error:
        LOG.info("%s: %s is refused: %s", key, _words(choice), str(error)[:200])
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


async def agrees(machine, layout: str, tile: TensorTile) -> bool:
    """Whether a tile gives what the plain kernel gives, on a small product with edges, cut and uncut."""
    options, shape = machine.options, (layout, *CHECKED)
    tape, made_of = one_product(*shape), kernel(KERNELS[layout][0])
    numbers = [((i * 7919) % 257 - 128) / 128 for i in range(CHECKED[0] * CHECKED[1])]
    results = []
    for choice in (as_choice(MIDDLE, 1), as_choice(tile, 1), as_choice(tile, 2)):
        loaded = await _load(machine, tape, key_of(*shape, options.precision), choice)
        if loaded is None:
            return False
        for dispatch in loaded.lowered.dispatches:  # by buffer: as values of the tape, halves are not to be had
            for index, operand, _ in dispatch.bindings:
                if index >= len(made_of.args):
                    continue
                size = options.element_bytes(made_of.name, made_of.args[index].name)
                count = product(made_of.shape(made_of.args[index], _sizes(*shape)))
                place_of = operand.region << REGION_SHIFT | operand.offset_bytes
                machine.upload(place_of, struct.pack(f"<{count}{'e' if size == 2 else 'f'}", *numbers[:count]))
                if made_of.args[index].name in ("y", "dx", "dweight"):
                    result = place_of, count * size, f"<{count}{'e' if size == 2 else 'f'}"
        machine.replay(loaded)
        data = await _do(machine, "download", *result[:2])
        results.append(struct.unpack(result[2], bytes(data)))
    most = max(map(abs, results[0]))
    return most > 0 and all(
        abs(a - b) <= most / 200 for other in results[1:] for a, b in zip(results[0], other)
    )  # NaN is not


async def _find_units(machine, layout: str, found: dict) -> None:
    """Keep under units_key(layout) a tile of matrix units that is right here, or None: looked for once."""
    key = units_key(layout)
    if key in found or not machine.options.half or not machine.options.subgroup_matrix:
        return
    found[key] = None
    for tile in (TENSOR_SMALL, replace(TENSOR_SMALL, WIDE=False)):
        if tile.suits(machine.options, layout, *CHECKED) and await agrees(machine, layout, tile):
            found[key] = as_choice(tile, 1)
            return
    LOG.warning("%s: not used here; what they give differs from the plain kernel, or they do not compile", key)


async def probe(machine, tapes: Iterable[Tape], known: dict | None = None, seconds: float = SECONDS) -> dict:
    """What tiles to take for these tapes: `known` and what was measured now, by tiles.key_of. A software adapter is not
    measured. The products with most of the work come first; what the time does not reach keeps its default.
    """
    found = dict(known or {})
    if machine.software:
        return found
    began, measured, right = time.perf_counter(), 0.0, set()
    losers, winners = [], []
    for shape in products(tapes):
        key = key_of(*shape, machine.options.precision)
        if key in found:
            continue
        if measured > seconds or time.perf_counter() - began > MOST_SECONDS:
            break
        await _find_units(machine, shape[0], found)
        loadeds = await _candidates_loaded(machine, shape, found)
        if not loadeds:
            continue
        repeats = max(2, min(200, int(LEAST_MS / (2 * product(shape[1:]) / GUESSED_TFLOPS / 1e9))))
        start = time.perf_counter()
        rounds = [await _timed(machine, [loaded for _, loaded in loadeds], repeats) for _ in range(2)]
        measured += time.perf_counter() - start
        times = [min(pair) for pair in zip(*rounds)]
        order = sorted(range(len(times)), key=times.__getitem__)
        if times[order[0]] >= 0.97 * times[0]:  # the default, but for more than the noise
            order.insert(0, 0)
        for best in order:
            tile = of_choice(loadeds[best][0])[0]
            checked = not isinstance(tile, TensorTile) or (shape[0], tile) in right
            if checked or await agrees(machine, shape[0], tile):
                right.add((shape[0], tile))
                break
            LOG.warning("%s: %s gives other numbers than the plain kernel: not used", key, _words(loadeds[best][0]))
        else:
            continue
        found[key] = loadeds[best][0]
        LOG.info(
            "%s: %s in %.1f µs; the default %s in %.1f; %d tried, the slowest %s in %.1f",
            key, _words(found[key]), 1e3 * times[best], _words(loadeds[0][0]), 1e3 * times[0], len(times),
            _words(loadeds[order[-1]][0]), 1e3 * times[order[-1]],
        )  # fmt: skip
        winners.append(loadeds.pop(best)[1])
        losers += [loaded for _, loaded in loadeds]
    if losers and hasattr(machine, "forget"):
        machine.forget(losers, winners)
    return found


async def _candidates_loaded(machine, shape: tuple, found: dict) -> list[tuple]:
    """(choice, loaded) of each candidate that the device takes."""
    tape, key = one_product(*shape), key_of(*shape, machine.options.precision)
    loadeds = []
    for tile, chunks in candidates(replace(machine.options, tiles=found), *shape):
        loaded = await _load(machine, tape, key, as_choice(tile, chunks))
        if loaded:
            loadeds.append((as_choice(tile, chunks), loaded))
    return loadeds


def _words(choice: list) -> str:
    tile, chunks = of_choice(choice)
    kind = "matrix units, " if isinstance(tile, TensorTile) else ""
    return f"{kind}{tile.TILE_M}×{tile.TILE_N}×{tile.TILE_K} ({' '.join(str(int(v)) for v in choice[1:-1])}), {chunks} chunks"
