"""Matmuls through Dawn (the browser's compiler) outside the engine, each checked: matrix units with every tile, and the plain kernels."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from posttrainllm.backends.gpu import subjects
from posttrainllm.backends.gpu.limits import Limits
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.tiles import MatmulTile, TensorTile, as_choice, key_of
from posttrainllm.dims import product

REPO = Path(__file__).resolve().parent.parent
SCRIPT = REPO / "tests" / "gpu" / "modules.mjs"
FLAGS = [
    "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia", "disable-dawn-features=timestamp_quantization", "backend=vulkan",
]  # fmt: skip
LIMITS = Limits(1 << 32, 1 << 31, 49152, 1024)
FIRST = (
    TensorTile(4, 4, 2, 4, 32),
    TensorTile(4, 4, 2, 2, 32, 2),
    TensorTile(4, 4, 2, 2, 32),
    TensorTile(2, 2, 2, 2, 64),
)
MORE = (
    TensorTile(4, 2, 2, 4, 32, 2), TensorTile(2, 2, 2, 2, 32), TensorTile(4, 4, 2, 2, 64), TensorTile(4, 4, 4, 2, 32),
    TensorTile(4, 2, 2, 4, 32), TensorTile(2, 4, 4, 2, 32, 2), TensorTile(4, 8, 2, 2, 32),
)  # fmt: skip
HALVES_IN_MEMORY = TensorTile(4, 4, 2, 2, 32, 1, False)
PLAIN = (MatmulTile(128, 128, 16, 16, 8), MatmulTile(128, 128, 8, 16, 8, BUFFERS=2))
HALF = (*PLAIN[:1], *subjects.HALF)
STEP_SHAPES = [
    (4096, 2304, 768),
    (4096, 768, 3072),
    (768, 3072, 4096),
    (1024, 1152, 384),
    (384, 1536, 1024),
    (512, 5120, 1280),
]
"""Rows, columns and depth of products in the gpt2 shape, mega and behemoth."""


def module(tile, layout: str, shape: tuple[int, int, int], precision: str, chunks: int = 1) -> dict:
    """What modules.mjs takes: the product's first dispatch. Where it is cut, the sums of chunks are not added up or checked."""
    units = ((tile.FRAGMENT,) * 3,) if isinstance(tile, TensorTile) else ()
    tiles = {key_of(layout, *shape, precision): as_choice(tile, chunks)}
    options = Options(LIMITS, precision, units, tiles=tiles)
    dispatch = lower(subjects.one_product(layout, *shape), options).dispatches[0]
    halves = {0, 1} | ({3} if layout == "NN" else {2} if layout == "NT" else set())
    bindings = [
        {"index": index, "bytes": operand.nbytes, "writes": writes, "half": precision == "f16" and index in halves}
        for index, operand, writes in dispatch.bindings
    ]
    out = 3 if layout == "NN" else 2
    checked = {
        "rows": shape[0], "columns": shape[1], "depth": shape[2], "a_along_k": layout[0] == "N", "b_along_k": layout[1] == "T",
        "out": out, "out_half": precision == "f16" and out in halves, "bias": layout == "NN",
    }  # fmt: skip
    return {
        "label": {"layout": layout, "shape": list(shape), "precision": precision, "tile": as_choice(tile, chunks)},
        "source": dispatch.source(), "entry": dispatch.entry, "groups": dispatch.groups, "uniforms": dispatch.uniforms.hex(),
        "bindings": bindings, "product": checked if chunks == 1 else None, "milliseconds": 10, "passes": 3,
    }  # fmt: skip


def turned(tile: TensorTile) -> TensorTile:
    """The same, with operands turned."""
    return replace(tile, TRANSPOSED=True)


def modules(size: int = 4096) -> list[dict]:
    """At size³ what decides comes first: matrix units with operands turned and as they lie, then in NN. Then the probe's at a
    step's shapes, cut too, the plain kernels, and further tiles."""
    cube, made = (size,) * 3, []
    for layout in ("NT", "TN"):
        tiles = (turned(FIRST[0]), turned(FIRST[1]), FIRST[2], *map(turned, FIRST[2:]), HALVES_IN_MEMORY, *FIRST[:2])
        made += [(tile, layout, cube, "f16", 1) for tile in tiles]
    made += [(tile, "NN", cube, "f16", 1) for tile in (*FIRST, HALVES_IN_MEMORY)]
    for shape in STEP_SHAPES if size >= 1024 else []:
        layout = "TN" if shape[2] in (4096, 1024) else "NN"
        made += [
            (turned(tile) if layout == "TN" else tile, layout, shape, "f16", chunks)
            for tile in subjects.TENSOR
            for chunks in (1, 4)
            if tile.groups(*shape[:2]) * chunks < 3000
        ]
    for layout in ("NN", "NT", "TN"):
        made += [(tile, layout, cube, "f32", 1) for tile in PLAIN] + [(tile, layout, cube, "f16", 1) for tile in HALF]
        made += [(tile if layout == "NN" else turned(tile), layout, cube, "f16", 1) for tile in MORE]
    found = []
    for tile, layout, shape, precision, chunks in made:
        memory = tile.memory_bytes(layout) if isinstance(tile, TensorTile) else tile.memory_bytes
        if memory <= LIMITS.workgroup_memory_bytes:
            found.append(module(tile, layout, shape, precision, chunks))
    return found


def ask(dawn: str, node: str, modules: list[dict], seconds: float, flags: list[str] | None = None) -> tuple[list, str]:
    """modules.mjs's answers, the device first, and what it said last on its error output. Who does not end in time is stopped."""
    question = json.dumps({"flags": flags or FLAGS, "modules": modules, "seconds": seconds})
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [node, str(SCRIPT), dawn], stdin=subprocess.PIPE, stdout=out, stderr=errors, text=True
        )
        try:
            process.communicate(question, timeout=seconds + 4)
        except subprocess.TimeoutExpired:  # in the middle of a module
            process.kill()
            process.wait()
        out.seek(0)
        errors.seek(0)
        said = [line for line in out.read().splitlines() if line.startswith("{") and line.endswith("}")]
        return [json.loads(line) for line in said], errors.read()[-600:]


def run(
    dawn: str, node: str = "node", size: int = 4096, flags: list[str] | None = None, seconds: float = 100.0
) -> dict:
    """{"device", "rows"}: milliseconds, TFLOP/s and error (at most about 1 where right) of each module. Ends after `seconds`."""
    began = time.perf_counter()
    asked = modules(size)
    lines, errors = ask(dawn, node, asked, seconds - (time.perf_counter() - began), flags)
    if not lines:
        return {"error": errors or "it said nothing"}
    device, *answers = lines
    rows = []
    for answer in answers:
        row = answer.pop("label") | answer
        if "ms" in row:
            row["tflops"] = round(2 * product(row["shape"]) / row["ms"] / 1e9, 2)
            row["right"] = row["off"] is None or row["off"] <= 4
            row["ms"] = round(row["ms"], 4)
        elif "error" in row:
            row["error"] = row["error"][:300]
        rows.append(row)
    return {"device": device, "rows": rows, "stderr": errors[-300:]}


def words(tile: list) -> str:
    """A tile in a few letters."""
    kind, *numbers = tile
    if kind != "tensor":
        return f"plain {' '.join(str(int(n)) for n in numbers)}"
    m, n, groups_m, groups_n, depth, buffers, wide, _, _, turned, chunks = numbers
    more = (
        [f"{buffers} buffers"] * (buffers > 1)
        + ["halves"] * (not wide)
        + ["turned"] * turned
        + [f"{chunks} chunks"] * (chunks > 1)
    )
    return " ".join([f"{m}x{n} {groups_m}x{groups_n} k{depth}", *more])


def table(rows: list[dict]) -> list[str]:
    """A line a row that was measured or refused, the plain kernels left out; at a step's shapes only the fastest of each."""
    lines, fastest = [], {}
    for row in rows:
        if row["tile"][0] != "tensor":
            continue
        shape = tuple(row["shape"])
        found = f"{row['tflops']:g}" if "tflops" in row else "-"
        judged = row["error"][:90] if "error" in row else "right" if row["right"] else f"off {row['off']:.3g}"
        line = f"{row['layout']} {words(row['tile'])}: {found} {judged}"
        if len(set(shape)) == 1:
            lines.append(line)
        elif row.get("tflops", 0) > fastest.get(shape, ("", 0))[1]:
            fastest[shape] = f"{'x'.join(map(str, shape))} {line}", row["tflops"]
    return [*lines, *(line for line, _ in fastest.values())]


def best(rows: list[dict], precision: str, kind: str) -> dict[str, float]:
    """TFLOP/s of the fastest right tile at a cube, by layout."""
    found: dict[str, float] = {}
    for row in rows:
        if (
            row.get("right")
            and row["precision"] == precision
            and row["tile"][0] == kind
            and len(set(row["shape"])) == 1
        ):
            found[row["layout"]] = max(found.get(row["layout"], 0.0), row["tflops"])
    return found
