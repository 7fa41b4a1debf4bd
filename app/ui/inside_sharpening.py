"""Inside, layer by layer: how the lens sharpened over training, from the snapshots that a run kept."""

import fmt
import wire
from dom import el, empty, make, on, show, text

_latest = 0


def renewed(event):
    """The lens was drawn anew: what is here is of another text or step."""
    global _latest
    _latest = 0
    _clear()
    show("lens-sharpened-box", len(event["labels"]) > 1)
    if len(event["labels"]) > 1:
        _ask()


def _clear():
    text("lens-sharpened-says", "")
    show("lens-sharpened", False)


def _ask(event=None):
    global _latest
    if el("lens-sharpened-box").open and not el("lens-sharpened-box").hidden and not _latest:
        text("lens-sharpened-says", "Looking back…")
        _latest = wire.send("inside.sharpening", {}, "inside", area="inside-text", answered=_answered)


def _answered(event):
    global _latest
    if event["reply_to"] != _latest:
        return
    if event["kind"] == "failed":
        _latest = 0
        return _clear()
    _draw(event["steps"], event["rows"], event["loss_nats"], event["damaged"], event.get("adapter"))


def _draw(steps, rows, losses, damaged, adapter):
    """adapter: whether the last step is that of a base with one on, which the others are not."""
    line = ""
    of_base = len(steps) - 1 if adapter else len(steps)
    if of_base > 1:
        first, last = losses[0], losses[of_base - 1]
        line = "From step " + fmt.count(steps[0]) + " to step " + fmt.count(steps[of_base - 1]) + " the loss on this text went from " + fmt.fixed(first[-1], 2) + " to " + fmt.fixed(last[-1], 2)
        line += " nats after the last layer, and from " + fmt.fixed(first[0], 2) + " to " + fmt.fixed(last[0], 2) + " at the embedding."
    elif not of_base or not adapter:
        line = "This run keeps no snapshots: it was trained before there were any, was imported, its model is large, or there was no room."
    if adapter and of_base:
        line += " With the adapter it is " + fmt.fixed(losses[-1][-1], 2) + " now; no snapshots are kept while an adapter is tuned."
    if damaged:
        line += " Left out as damaged: " + ", ".join(["step " + fmt.count(step) for step in damaged]) + "."
    text("lens-sharpened-says", line)
    show("lens-sharpened", len(steps) > 1)
    empty("lens-sharpened-head")
    el("lens-sharpened-head").appendChild(make("th", "Loss, nats", scope="col"))
    for at in range(len(steps)):
        words = "Now, with the adapter" if adapter and at == of_base else "Step " + fmt.count(steps[at])
        el("lens-sharpened-head").appendChild(make("th", words, scope="col"))
    empty("lens-sharpened-rows")
    there = [each for row in losses for each in row if fmt.finite(each)]
    most, least = (max(there), min(there)) if there else (0, 0)
    for layer in range(len(rows)):
        made = make("tr")
        made.appendChild(make("th", "Embedding" if rows[layer] == "embed" else "Layer " + rows[layer][len("blocks."):], scope="row"))
        for row in losses:
            cell = make("td", fmt.fixed(row[layer], 2), "cell")
            if fmt.finite(row[layer]) and most > least:
                cell.style.setProperty("--share", str((most - row[layer]) / (most - least)))
            made.appendChild(cell)
        el("lens-sharpened-rows").appendChild(made)


def start():
    on("lens-sharpened-box", "toggle", _ask)
