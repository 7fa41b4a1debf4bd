"""The walk of a workgroup's tile along the sum, with the tile that the engine would take. Setting: size."""

import js

import lesson_draw as draw
from dom import button, make

SIDE = 150
LEFT, TOP = 40, 30
GAP = 20
CODE = """
import json
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.tiles import matmul_tile
_options = getattr(getattr(model, "machine", None), "options", None) or Options()
_found = []
for _n in (128, 256, 512, 1024, 2048, 4096):
    _tile, _chunk = matmul_tile("NN", _n, _n, _n, _options)
    _share = [getattr(_tile, "THREAD_M", 16), getattr(_tile, "THREAD_N", 16)]
    _found.append([_n, _tile.TILE_M, _tile.TILE_N, _tile.TILE_K, _share, _tile.threads, _chunk])
json.dumps({"tiles": _found, "device": "the open model's GPU" if getattr(model, "machine", None) is not None and hasattr(model.machine, "options") else "any WebGPU device"})
"""


def build(place, settings):
    state = {"tiles": None, "at": 3, "slice": 0, "timer": None, "device": ""}
    picture = draw.drawing(2 * SIDE + GAP + LEFT + 10, 2 * SIDE + GAP + TOP + 10, "Two matrices and their product, with the tile being made")
    place.appendChild(picture)
    right, low = LEFT + SIDE + GAP, TOP + SIDE + GAP
    for name, x, y in (("a", LEFT, low), ("b", right, TOP), ("a · b", right, low)):
        picture.appendChild(draw.svg("rect", cls="matrix-box", x=x, y=y, width=SIDE, height=SIDE))
        picture.appendChild(draw.svg("text", name, "name", x=x + SIDE / 2, y=y - 5, text_anchor="middle"))

    def box(cls):
        made = draw.svg("rect", cls=cls, x=0, y=0, width=0, height=0)
        picture.appendChild(made)
        return made

    need_a, need_b, got_a, got_b, out, share = box("tile-need"), box("tile-need"), box("tile-got"), box("tile-got"), box("tile-out"), box("tile-share")
    say = draw.said(place)

    def put(rect, x, y, width, height):
        for name, value in (("x", x), ("y", y), ("width", max(width, 1.5)), ("height", max(height, 1.5))):
            rect.setAttribute(name, str(round(value, 2)))

    def show():
        if state["tiles"] is None:
            return
        n, tile_m, tile_n, tile_k, each, threads, chunk = state["tiles"][state["at"]]
        unit = SIDE / n
        wide, high, deep = min(tile_n, n) * unit, min(tile_m, n) * unit, min(tile_k, n) * unit
        column, line = (n // tile_n // 3) * tile_n * unit, (n // tile_m // 3) * tile_m * unit
        slices = max(1, chunk // tile_k)
        along = (state["slice"] % slices) * deep
        put(need_a, LEFT, low + line, chunk * unit, high)
        put(need_b, right + column, TOP, wide, chunk * unit)
        put(got_a, LEFT + along, low + line, deep, high)
        put(got_b, right + column, TOP + along, wide, deep)
        put(out, right + column, low + line, wide, high)
        put(share, right + column, low + line, each[1] * unit, each[0] * unit)
        groups = max(1, n // tile_m) * max(1, n // tile_n)
        cut = "" if chunk >= n else " The sum is cut into pieces of " + str(chunk) + ", so that there is work for " + str(groups * -(-n // chunk)) + " workgroups."
        say(
            str(n) + " by " + str(n) + " on " + state["device"] + ": " + str(groups) + " tiles of " + str(tile_m) + " × " + str(tile_n)
            + ", fetched " + str(tile_k) + " deep; slice " + str(state["slice"] % slices + 1) + " of " + str(slices) + ". " + str(threads)
            + " threads, " + str(each[0]) + " × " + str(each[1]) + " sums each." + cut
        )  # fmt: skip

    def told(event):
        if event["kind"] == "failed":
            say("The trainer is not there yet. Try again in a moment.")
            return
        state["tiles"], state["device"] = event["tiles"], event["device"]
        show()

    def step(*event):
        if not place.isConnected:
            stop()
            return
        if state["tiles"] is None:
            draw.ask("tiling", CODE, told)
            return
        state["slice"] += 1
        show()

    def stop():
        if state["timer"] is not None:
            js.clearInterval(state["timer"])
            state["timer"] = None
        play.textContent = "Play"

    def toggle(event=None):
        if state["timer"] is not None:
            stop()
            return
        if state["tiles"] is None:
            draw.ask("tiling", CODE, told)
        state["timer"] = js.setInterval(step, 250)
        play.textContent = "Pause"

    def resize(value):
        state["at"], state["slice"] = int(value), 0
        show()

    row = make("div", cls="row")
    play = button("Play", toggle)
    for each in (play, button("Next slice", step)):
        row.appendChild(each)
    place.appendChild(row)
    sizes = (128, 256, 512, 1024, 2048, 4096)
    wanted = int(settings.get("size", "1024"))
    state["at"] = sizes.index(wanted) if wanted in sizes else 3
    draw.knob(place, "Size", 0, len(sizes) - 1, 1, state["at"], resize, lambda value: str(sizes[int(value)]))
    say("Press Play: the tiles are read from the engine.")
