"""Inside, What if: a map of what taking each part away, or swapping in a second text's, does to the model's choice and to its loss."""

import json

from pyscript.js_modules import bridge

import fmt
import inside
import notices
from dom import el, on, show, text, value
from inside_attention import percent
from inside_next import signed
from token_tip import visible

DONE = {"zero": "without it", "mean": "with its average there", "swap": "with the second text’s there"}
LAYERS = {"attention": "its attention", "mlps": "its MLP"}
PLACES = {"residual": "the stream", "attention by position": "attention", "mlps by position": "the MLP"}

_event = None
_own = False  # the second text is the person's


def fields():
    found = {"what": value("change-what"), "how": value("change-how")}
    if found["how"] == "swap":
        found["source"] = value("change-source")
    if inside.position is not None:
        found["position"] = inside.position
    return found


def draw(event):
    global _event
    _event = event
    _draw()


def _draw():
    event = _event
    answer, other = "“" + visible(event["answer"]) + "”", "“" + visible(event["other"]) + "”"
    at, before = event["position"], event["before"]
    line = "After " + inside.token(at) + " at position " + str(at) + " the score of " + answer + " is " + fmt.fixed(abs(before[0])) + (" above" if before[0] >= 0 else " below") + " that of " + other + "."
    if event.get("source"):
        line += " After the second text it is " + fmt.fixed(abs(event["source"][0])) + (" above." if event["source"][0] >= 0 else " below.")
    if fmt.finite(before[1]):
        line += " The loss is " + fmt.fixed(before[1]) + " nats."
    text("change-says", line)
    measure = value("change-measure")
    bridge.inside.measure(measure)
    names = ["Layer " + str(layer) for layer in range(event["layers"])]
    columns = ["Head " + name[1:] if event["what"] == "heads" else "whole" if name == "layer" and event["what"] in LAYERS else visible(name) for name in event["columns"]]
    bridge.inside.table("change-cells", "inside.change", json.dumps(columns), json.dumps(names), "[]", "", _read)
    layer, column, most = json.loads(bridge.inside.extreme("inside.change", measure))
    if event["how"] == "swap" and value("change-source") == value("inside-text"):
        return text("change-most", "Both texts are the same, so nothing changes. Change a word of the second, and keep its length.")
    bridge.inside.reveal("change-cells", layer, column)
    what = "that difference" if measure == "change" else "the loss"
    return text("change-most", "Blue: " + what + " goes up; orange: it goes down. Most for " + _part(layer, column) + ": " + signed(most) + " " + DONE[event["how"]] + ".")


def _part(layer, column):
    where = "layer " + str(int(layer))
    if _event["what"] == "heads":
        return where + ", head " + str(int(column))
    if _event["what"] in LAYERS:
        return where + ", " + LAYERS[_event["what"]]
    return where + ", " + PLACES[_event["what"]] + " at " + inside.token(int(column)) + " (position " + str(int(column)) + ")"


def _read(told, pinned):
    cell = json.loads(told)
    before = _event["before"]
    line = _part(cell["layer"], cell["column"])
    line = line[0].upper() + line[1:] + ", " + DONE[_event["how"]] + ": the difference goes from " + signed(before[0]) + " to " + signed(before[0] + cell["change"])
    if fmt.finite(before[1]):
        line += ", the loss from " + fmt.fixed(before[1]) + " to " + fmt.fixed(before[1] + cell["loss"]) + " nats"
    source = _event.get("source")
    if source and abs(source[0] - before[0]) > 1e-6:
        line += "; that is " + percent(cell["change"] / (source[0] - before[0]), 0) + " of the way to the second text’s"
    text("change-readout", line + ".")
    if pinned:
        notices.announce(line + ".")


def _chose(event):
    swap = value("change-how") == "swap"
    show("change-source-box", swap)
    if swap and event.target.id == "change-how" and not _own and len(value("change-source")) != len(value("inside-text")):
        el("change-source").value = value("inside-text")  # of the same length, to change a word in
    inside.look()


def _typed(event):
    global _own
    _own = True


def start():
    inside.add("change", fields, draw, result="change-result")
    for name in ("change-what", "change-how", "change-source"):
        on(name, "change", _chose)
    on("change-source", "input", _typed)
    on("change-measure", "change", lambda event: _draw() if _event else None)
    show("change-source-box", value("change-how") == "swap")
