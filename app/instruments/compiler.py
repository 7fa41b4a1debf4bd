"""The five stages of the compiler on a small graph, by the real compiler in the worker. Setting: stage (0 to 4)."""

import lesson_draw as draw
from dom import button, make

STAGES = ("trace", "differentiate", "place", "record", "replay")
SAYS = {
    "trace": "The model's code ran once, on values that have a name and a shape. Nothing was computed.",
    "differentiate": "Each operation's backward was added, the last one first. Only what is trained gets a gradient.",
    "place": "For each value the first and the last operation that needs it, and its bytes. Rows that share bytes are never needed at the same time.",
    "record": "Every call as 32 words of 8 bytes: kernel, sizes, addresses. This is all that an engine gets.",
    "replay": "The reference engine walked over the tape, again and again; after each walk the weights were moved against their gradients.",
}
CODE = """
import json
import struct
import numpy as np
from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.compile.arena import place
from posttrainllm.compile.differentiate import differentiate
from posttrainllm.compile.graph import Graph, Value
from posttrainllm.compile.tape import address, decode, record

def _row(node):
    return [node.kernel.name, ", ".join(v.name for v in node.read()), ", ".join(v.name for v in node.written())]

_R, _I, _H, _V = 8, 4, 16, 5
_at, _made = 0, {}
for _name, _shape in (("w1", (_I, _H)), ("b1", (_H,)), ("w2", (_H, _V)), ("b2", (_V,)), ("x", (_R, _I))):
    _made[_name] = Value(_name, _shape, region="params", offset_bytes=_at)
    _at += -(-_made[_name].nbytes // 256) * 256
_targets = Value("targets", (_R,), "i32", "inputs", 0)
_loss, _dloss = Value("loss", (2,), region="metrics", offset_bytes=0), Value("dloss", (1,), region="slots", offset_bytes=512)
_graph = Graph()
_h = _graph.call("linear", {"R": _R, "I": _I, "O": _H}, out="h", x=_made["x"], weight=_made["w1"], bias=_made["b1"]).arg("y")
_g = _graph.call("gelu", {"N": _R * _H}, out="g", x=_h).arg("y")
_l = _graph.call("linear", {"R": _R, "I": _H, "O": _V}, out="logits", x=_g, weight=_made["w2"], bias=_made["b2"]).arg("y")
_graph.call("cross_entropy", {"R": _R, "V": _V}, out="losses", logits=_l, targets=_targets, loss=_loss)
_found = {"trace": [_row(node) for node in _graph.nodes]}
differentiate(_graph, _loss, _dloss, {"w1", "b1", "w2", "b2"})
_found["differentiate"] = [_row(node) for node in _graph.nodes]
_plan = place(_graph)
_found["place"] = [[each.value.name, str(each.first) + " to " + str(each.last), str(each.value.offset_bytes) + " to " + str(each.value.offset_bytes + each.value.nbytes - 1)] for each in _plan.arena]
_tape = record(_plan)
_found["record"] = [[each.kernel.name, " ".join(k + "=" + str(v) for k, v in each.sizes.items()), " ".join(region + "+" + str(offset) for region, offset in each.operands)] for each in decode(_tape)]
_machine, _random = ReferenceMachine(), np.random.default_rng(0)
_machine.allocate(_plan.region_bytes)
_values = {name: (0.5 * _random.standard_normal(v.shape)).astype("<f4") for name, v in _made.items()}
for _name, _value in _values.items():
    _machine.upload(address(_made[_name]), _value.tobytes())
_machine.upload(address(_targets), np.array([0, 1, 2, 3, 4, 0, 1, 2], "<i4").tobytes())
_machine.upload(address(_dloss), struct.pack("<f", 1.0))
_loaded, _found["replay"] = _machine.load(_tape), []
for _turn in range(41):
    _machine.upload(1 << 56, bytes(_plan.region_bytes["grads"]))
    _machine.replay(_loaded)
    if _turn % 8 == 0:
        _found["replay"].append(["replay " + str(_turn + 1), "loss", f"{_machine.download_f64(address(_loss), 8)[0]:.4f}"])
    for _name in ("w1", "b1", "w2", "b2"):
        _v = _made[_name]
        _slope = np.frombuffer(_machine.download((1 << 56) + _v.offset_bytes, _v.nbytes), "<f4").reshape(_v.shape)
        _values[_name] = _values[_name] - 0.5 * _slope
        _machine.upload(address(_v), _values[_name].tobytes())
_machine.close()
json.dumps(_found)
"""
HEADS = {
    "trace": ("kernel", "reads", "writes"),
    "differentiate": ("kernel", "reads", "writes"),
    "place": ("value", "needed by operations", "bytes of the arena"),
    "record": ("kernel", "sizes", "addresses"),
    "replay": ("", "", ""),
}


def build(place, settings):
    state = {"found": None, "at": int(settings.get("stage", "0"))}
    row = make("div", cls="row")
    box = make("div", cls="stage-table")
    tabs = []

    def show():
        stage = STAGES[state["at"]]
        for at, tab in enumerate(tabs):
            tab.setAttribute("aria-pressed", "true" if at == state["at"] else "false")
        if state["found"] is None:
            return
        table = make("table")
        head = make("tr")
        for each in HEADS[stage]:
            head.appendChild(make("th", each))
        if HEADS[stage][0]:
            table.appendChild(head)
        forward = len(state["found"]["trace"])
        for at, cells in enumerate(state["found"][stage]):
            line = make("tr", cls="added" if stage == "differentiate" and at >= forward else "")
            for cell in cells:
                line.appendChild(make("td", cell))
            table.appendChild(line)
        box.replaceChildren(table)
        say(SAYS[stage])

    def told(event):
        if event["kind"] == "failed":
            say("This could not be compiled: " + (event["message"] or "the trainer is not there yet") + " Try again in a moment.")
            return
        state["found"] = event
        show()

    def choose(at):
        def pressed(event=None):
            state["at"] = at
            show()
            if state["found"] is None:
                say("Compiling …")
                draw.ask("compiler", CODE, told)

        return pressed

    for at, stage in enumerate(STAGES):
        tab = button(str(at + 1) + " " + stage[0].upper() + stage[1:], choose(at))
        tabs.append(tab)
        row.appendChild(tab)
    place.appendChild(row)
    place.appendChild(box)
    say = draw.said(place)
    show()
    say("Press a stage: the worker compiles a product, a GELU, a product and a loss.")
