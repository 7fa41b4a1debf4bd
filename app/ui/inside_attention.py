"""Inside, Attention: a layer's heads as heat maps, one head's lines between tokens, and heads that have a known habit."""

import json

from pyscript.js_modules import bridge

import fmt
import inside
import notices
import wire
from dom import button, el, empty, make, on, show, text

NAMES = {"previous": "previous token", "first": "first token", "duplicate": "same token", "induction": "induction"}

_layer = _head = 0
_event = None
_heads = None  # the last inside.heads


def percent(share, places=1):
    if not fmt.finite(share):
        return fmt.DASH
    return fmt.fixed(100 * share, places) + fmt.SPACE + "%"


def fields():
    return {"layer": _layer}


def _choose(name):
    """Radio chips of numbered things: which one of `name` a person takes."""

    def chose(event):
        global _layer, _head
        number = int(event.target.value)
        if name == "layer":
            _layer = number
            inside.look()
        else:
            _head = number
            draw_head()

    return chose


def draw(event):
    global _event, _head, _layer
    _event = event
    _head = min(_head, event["heads"] - 1)
    _layer = event["layer"]
    _chips(event["layers"])
    box = el("attention-heads")
    empty(box)
    for head in range(event["heads"]):
        label = make("label")
        entry = make("input", type="radio", name="attention-head", id="attention-head-" + str(head), value=str(head))
        entry.checked = head == _head
        entry.addEventListener("change", _choose("head"))
        label.appendChild(entry)
        picture = make("canvas", id="attention-small-" + str(head), aria_hidden="true", data_head=str(head))
        label.appendChild(picture)
        label.appendChild(make("span", "Head " + str(head)))
        label.appendChild(make("small", "", id="attention-habit-" + str(head)))
        box.appendChild(label)
        bridge.insideDraw.thumbnail("attention-small-" + str(head), head)
    draw_head()
    if _heads is None or _heads.get("step") != event.get("step") or _heads.get("of") != inside._model():
        wire.send("inside.heads", {}, "inside", answered=_named)
    else:
        _habits()


def _chips(layers):
    box = el("attention-layers")
    had_focus = box.contains(el("attention-layer-" + str(_layer)) or None) if el("attention-layer-" + str(_layer)) else False
    if box.children.length != layers:
        empty(box)
        for layer in range(layers):
            label = make("label")
            entry = make("input", type="radio", name="attention-layer", id="attention-layer-" + str(layer), value=str(layer))
            entry.addEventListener("change", _choose("layer"))
            label.appendChild(entry)
            label.appendChild(make("span", str(layer)))
            box.appendChild(label)
    el("attention-layer-" + str(_layer)).checked = True


def draw_head():
    """The chosen head: its map, its lines, and what it is known for."""
    bridge.insideDraw.heat(_head, inside.at())
    here = "layer " + str(_layer) + ", head " + str(_head)
    el("attention-map").setAttribute("aria-label", here[0].upper() + here[1:] + ". The arrow keys go from square to square; “Show as table” has the same in words.")
    moved()
    _say()
    if el("attention-table-box").open:
        _table()


def moved():
    """Another position is looked from."""
    at = inside.at()
    bridge.insideDraw.heat(_head, at)
    bridge.insideDraw.lines(_head, at, inside.move)
    text("attention-from", "From " + inside.token(at) + " at position " + str(at) + " it takes " + _looks(at, 4) + ".")


def _looks(row, most):
    wide = len(inside.labels)
    found = json.loads(bridge.inside.strongest("inside.attention", "pattern", _head * wide + row, most))
    parts = [percent(weight) + " from " + (inside.token(to) + " (" + str(to) + ")" if to != row else "itself") for to, weight in found if weight >= 0.01 or weight == found[0][1]]
    return ", ".join(parts)


def _say():
    mine = [each for each in (_heads or {}).get("named", []) if each["layer"] == _layer and each["head"] == _head]
    if not _heads:
        return text("attention-says", "")
    if mine:
        kind = mine[0]["kind"]
        line = "Layer " + str(_layer) + ", head " + str(_head) + " " + mine[0]["meaning"] + ": " + percent(mine[0]["score"], 0) + " of what it takes, against "
        return text("attention-says", line + percent(_heads["chance"][kind], 1) + " by chance.")
    return text("attention-says", "Layer " + str(_layer) + ", head " + str(_head) + " has none of the known habits.")


def _read(row, column, weight, pinned):
    line = "Head " + str(_head) + ": " + inside.token(row) + " at position " + str(row) + " takes " + percent(weight, 2) + " from "
    line += inside.token(column) + " at position " + str(column) + "."
    text("attention-readout", line)
    if pinned:
        notices.announce(line)


def _table():
    empty("attention-rows")
    for row in range(len(inside.labels)):
        line = make("tr")
        line.appendChild(make("th", str(row) + " " + inside.token(row), scope="row"))
        line.appendChild(make("td", _looks(row, 3)))
        el("attention-rows").appendChild(line)


def _named(event):
    global _heads
    if event["kind"] == "failed":
        return
    _heads = event
    event["of"] = inside._model()
    _habits()
    _say()


def _habits():
    empty("attention-named")
    for each in _heads["named"]:
        item = make("li")
        words = "Layer " + str(each["layer"]) + ", head " + str(each["head"])
        item.appendChild(button(words, lambda event, each=each: _go(each), cls="quiet-button"))
        item.appendChild(make("span", each["meaning"] + ": " + percent(each["score"], 0), "hint"))
        el("attention-named").appendChild(item)
        place = el("attention-habit-" + str(each["head"]))
        if each["layer"] == _layer and place:
            text(place, NAMES.get(each["kind"], each["kind"]))
    if not _heads["named"]:
        el("attention-named").appendChild(make("li", "No head is beyond the thresholds yet. Habits form with training.", "hint"))
    show("attention-scores-box", True)
    kinds = list(_heads["scores"])
    head = make("tr")
    for words in ["Head"] + [NAMES.get(kind, kind) for kind in kinds]:
        head.appendChild(make("th", words, scope="col"))
    empty("attention-scores-head")
    el("attention-scores-head").appendChild(head)
    empty("attention-scores")
    for layer in range(_heads["layers"]):
        for number in range(_heads["heads"]):
            _score_row(str(layer) + "." + str(number), [_heads["scores"][kind][layer][number] for kind in kinds])
    _score_row("by chance", [_heads["chance"][kind] for kind in kinds])


def _score_row(name, scores):
    line = make("tr")
    line.appendChild(make("th", name, scope="row"))
    for score in scores:
        line.appendChild(make("td", percent(score)))
    el("attention-scores").appendChild(line)


def _go(each):
    global _layer, _head
    _layer, _head = each["layer"], each["head"]
    inside.look()


def start():
    inside.add("attention", fields, draw, moved)
    bridge.insideDraw.watchHeat(_read)
    on("attention-table-box", "toggle", lambda event: _table() if el("attention-table-box").open and _event else None)
