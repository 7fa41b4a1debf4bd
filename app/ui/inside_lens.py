"""Inside, layer by layer: the logit lens as a table of layers by positions."""

import json

from pyscript.js_modules import bridge

import fmt
import inside
import inside_sharpening
import inside_tuned
import notices
from dom import el, empty, make, text
from inside_attention import percent
from token_tip import visible


_last = 0  # the lowest row: what the model really says


def layer_name(row):
    """A row of the lens in words."""
    return "the embedding" if row == "embed" else "layer " + row[len("blocks."):]


def draw(event):
    global _last
    _last = len(event["rows"]) - 1
    names = ["Embedding" if row == "embed" else "Layer " + row[len("blocks."):] for row in event["rows"]]
    labels = [visible(each) for each in event["labels"]]
    foot = ["Then came"] + labels[1:] + ["?"]
    bridge.inside.table("lens-cells", "inside.lens", json.dumps(labels), json.dumps(names), json.dumps(foot), "After", _read)
    empty("lens-losses")
    for name, loss in zip(names, event["loss_nats"]):
        line = make("tr")
        line.appendChild(make("th", name, scope="row"))
        line.appendChild(make("td", fmt.fixed(loss, 2)))
        el("lens-losses").appendChild(line)
    first, last = event["loss_nats"][0], event["loss_nats"][-1]
    if fmt.finite(first) and fmt.finite(last):
        verb = "falls from " if last < first else "goes from "
        text("lens-says", "On this text the loss " + verb + fmt.fixed(first, 2) + " nats at the embedding to " + fmt.fixed(last, 2) + " after the last layer.")
    else:
        text("lens-says", "With one token nothing came next, so there is no loss to tell.")
    inside_sharpening.renewed(event)


def _moved():
    bridge.inside.point("lens-cells", _last, inside.at())


def _read(told, pinned):
    cell = json.loads(told)
    likely = ", ".join(["“" + visible(label) + "” " + percent(share) for label, share in cell["top"]])
    line = "After “" + visible(cell["label"]) + "” at position " + str(cell["position"]) + ", " + layer_name(cell["layer"]) + " says: " + likely + "."
    if cell["next"] is not None:
        rank = int(cell["rank"]) + 1
        line += " “" + visible(cell["next"]) + "” came, which it has at " + percent(cell["probability"], 2) + ", in place " + fmt.count(rank) + "."
    text("lens-readout", line)
    if pinned:
        notices.announce(line)


def start():
    inside_sharpening.start()
    inside.add("lens", inside_tuned.fields, draw, _moved, "lens-result")
