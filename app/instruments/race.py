"""One product done in five ways on this machine, in the worker. Setting: size."""

import fmt
import lesson_draw as draw
from dom import button, make

WAYS = (
    ("loops", "Loops"), ("tiled", "In tiles"), ("simd", "SIMD"), ("threads", "Threads"), ("gpu", "GPU"),
)  # fmt: skip
START = """
import json
import posttrainllm_host as _host
_n = {n}
_race = await _host.race()
"""
ENGINE = """
from posttrainllm.backends.wasm import open_wasm
_machine = await open_wasm(16 << 20, {threads})
_seconds = _machine._engine.benchGemm(0, _n, _n, _n, 7)
_what = str(_machine.threads) + (" thread" if _machine.threads == 1 else " threads")
_machine.close()
"""
GPU = """
import time
from posttrainllm.backends.webgpu_browser import open_webgpu
from posttrainllm.compile.arena import place
from posttrainllm.compile.graph import Graph, Value
from posttrainllm.compile.tape import address, record
_machine = await open_webgpu()
try:
    _graph = Graph()
    _x, _w = Value("x", (_n, _n), region="params", offset_bytes=0), Value("w", (_n, _n), region="params", offset_bytes=4 * _n * _n)
    _b, _y = Value("b", (_n,), region="params", offset_bytes=8 * _n * _n), Value("y", (_n, _n), region="grads", offset_bytes=0)
    _turns = 2 if _machine.software else 40
    for _ in range(_turns):
        _graph.call("linear", {"R": _n, "I": _n, "O": _n}, x=_x, weight=_w, bias=_b, y=_y)
    _plan = place(_graph)
    _machine.allocate(_plan.region_bytes)
    _tape = (await _machine.load_all_async([record(_plan)]))[0]
    _seconds = 1e9
    for _ in range(2):
        await _machine.download_async(address(_y), 4)
        _start = time.perf_counter()
        _machine.replay(_tape)
        await _machine.download_async(address(_y), 4)
        _seconds = min(_seconds, (time.perf_counter() - _start) / _turns)
    _what = _machine.description.replace("WebGPU, ", "") + (", played by the processor" if _machine.software else "")
finally:
    _machine.close()
"""
END = """
json.dumps({"seconds": float(_seconds), "what": _what})
"""


def code(way, n):
    """The cell of a contestant."""
    start = START.replace("{n}", str(n))
    if way == "loops":
        return start + "_seconds, _what = _race.naive(_n, 2), 'one result after another'" + END
    if way == "tiled":
        return start + "_seconds, _what = _race.tiled(_n, 3), 'squares of 64, 4 by 4 sums at a time'" + END
    if way == "simd":
        return start + ENGINE.replace("{threads}", "1") + END
    if way == "threads":
        return start + ENGINE.replace("{threads}", "None") + END
    return start + GPU + END


def build(place, settings):
    n = int(settings.get("size", "512"))
    rates = [0.0] * len(WAYS)
    told = [""] * len(WAYS)
    state = {"gpu": ""}
    update = draw.bars(place, [("", 0, "") for _ in WAYS])
    say = draw.said(place)

    def show():
        most = max(rates)
        update([(name, rate / most if most else 0, words) for (_, name), rate, words in zip(WAYS, rates, told)])

    def run(at):
        if at == len(WAYS):
            go.disabled = False
            done = [(rate, name) for (_, name), rate in zip(WAYS, rates) if rate]
            if rates[0] and len(done) > 1:
                rate, name = max(done)
                say(name + " won: " + fmt.significant(rate / rates[0], 2) + " times as fast as plain loops. Billions of operations a second, a product of " + str(n) + " by " + str(n) + "." + state["gpu"])
            return
        say("Now running: " + WAYS[at][1] + " …")
        draw.ask("race", code(WAYS[at][0], n), lambda event: came(at, event))

    def came(at, event):
        if event["kind"] == "failed":
            if at == 0:
                go.disabled = False
                say("The trainer is not there yet. Try again in a moment.")
                return
            told[at] = "none"
        else:
            rates[at] = 2 * n * n * n / event["seconds"] / 1e9
            told[at] = fmt.significant(rates[at], 3)
            if WAYS[at][0] == "gpu":
                state["gpu"] = " The GPU is " + event["what"] + "."
        show()
        run(at + 1)

    def start(event=None):
        go.disabled = True
        for at in range(len(WAYS)):
            rates[at], told[at] = 0.0, ""
        show()
        run(0)

    go = button("Race", start)
    row = make("div", cls="row")
    row.appendChild(go)
    place.appendChild(row)
    show()
    say("Press Race. It takes a few seconds; a run in progress makes everything slower.")
