"""Inside, One token's way: the real numbers of a position from its embedding to the scores of all tokens, with their shapes."""

import json

from pyscript.js_modules import bridge

import fmt
import inside
import notices
from dom import el, empty, make, text
from inside_attention import percent
from inside_next import fields, signed
from token_tip import visible

WORDS = {
    "embed": "The token’s own numbers plus its position’s",
    "ln_1": "Brought to one scale for attention",
    "attn.q": "What each head looks for (query)",
    "attn.k": "What the token offers to be found by (key)",
    "attn.v": "What it hands on to who finds it (value)",
    "attn.y": "What each head gathered",
    "attn.out": "Attention’s answer",
    "resid_mid": "The stream, with that added",
    "ln_2": "Brought to one scale for the MLP",
    "mlp.pre": "The MLP’s hidden units",
    "mlp.post": "The same after GELU, which silences what is below nothing",
    "mlp.out": "The MLP’s answer",
    "resid_post": "The stream, with that added: on to the next layer",
    "ln_f": "Brought to one scale once more",
    "logits": "A score for each token there is",
}

MOST_FIGURES = 2048  # of GPT-2's 50,257 scores nobody reads all

_event = None


def draw(event):
    global _event
    _event = event
    at = event["position"]
    top = event["top"][0]
    text("flow-says", inside.token(at) + " at position " + str(at) + " goes in; after " + fmt.plural(event["layers"], "layer") + " “" + visible(top[1]) + "” comes out likeliest, at " + percent(top[2]) + ".")
    text("flow-readout", "Point at a strip, tap it, or use the arrow keys for single numbers.")
    el("flow-readout").classList.remove("stays")
    box = el("flow-steps")
    empty(box)
    for row in event["rows"]:
        parts = row["address"].split(".")
        if parts[0] == "blocks":
            layer = int(parts[1])
            place = el("flow-block-" + str(layer)) or _block(box, layer)
            kind = ".".join(parts[2:])
            _step(place, row, kind)
            if kind == "attn.v":
                _looks(place, layer)
        else:
            _step(box, row, row["address"])
    _top(box)


def _block(box, layer):
    made = make("details", cls="plain block")
    made.open = layer == 0
    made.appendChild(make("summary", "Layer " + str(layer)))
    inner = make("div", id="flow-block-" + str(layer))
    made.appendChild(inner)
    box.appendChild(made)
    return inner


def _step(place, row, kind):
    made = make("div", cls="flow-step")
    head = make("div")
    head.appendChild(make("strong", WORDS.get(kind, kind)))
    shape = " × ".join([fmt.count(each) for each in row["shape"]])
    head.appendChild(make("p", row["address"] + " · " + shape, "hint code"))
    made.appendChild(head)
    name = "flow-" + row["address"].replace(".", "-")
    canvas = make("canvas", id=name, tabindex="0", role="application", aria_roledescription="strip of numbers",
                  aria_label=WORDS.get(kind, kind) + ": " + shape + " numbers from " + _number(row["least"]) + " to " + _number(row["most"]) + ". The arrow keys go from number to number.")
    made.appendChild(canvas)
    first = ", ".join([_number(each) for each in row["first"]])
    made.appendChild(make("p", first + ", …", "numbers"))
    made.appendChild(make("p", "from " + _number(row["least"]) + " to " + _number(row["most"]) + ", mean " + _number(row["mean"]) + ", spread " + _number(row["deviation"]), "hint"))
    made.appendChild(_all(name, row))
    place.appendChild(made)
    bridge.insideVector.draw(name, row["address"], _read)


def _all(name, row):
    """All of a strip in figures, made once it is asked for."""
    count = 1
    for size in row["shape"]:
        count *= size
    box = make("details", cls="plain all", id=name + "-all")
    box.appendChild(make("summary", "All " + fmt.count(count) + " in figures" if count <= MOST_FIGURES else "The " + fmt.count(MOST_FIGURES) + " farthest from nothing in figures"))
    scroll = make("div", cls="scroll tall", tabindex="0", role="region", aria_label=row["address"] + " in figures")
    scroll.appendChild(make("table", cls="figures", id=name + "-figures"))
    box.appendChild(scroll)
    box.addEventListener("toggle", lambda event: bridge.insideVector.figures(name + "-figures", row["address"], MOST_FIGURES) if box.open else None)
    return box


def _number(value):
    return signed(value) if fmt.finite(value) else fmt.DASH


def _looks(place, layer):
    """Where each head looks from this position: it gathers the values from there."""
    made = make("div", cls="flow-step words")
    made.appendChild(make("strong", "Where each head looks from here"))
    listed = make("ul", cls="notes")
    for head in range(_event["heads"]):
        found = json.loads(bridge.inside.strongest("inside.flow", "looks", layer * _event["heads"] + head, 2))
        parts = [percent(weight, 0) + " from " + inside.token(to) + " (" + str(to) + ")" for to, weight in found]
        listed.appendChild(make("li", "Head " + str(head) + ": " + ", ".join(parts)))
    made.appendChild(listed)
    place.appendChild(made)


def _top(box):
    made = make("div", cls="flow-step words")
    made.appendChild(make("strong", "The scores as probabilities"))
    listed = make("ol", cls="notes")
    for token, label, share, logit in _event["top"]:
        listed.appendChild(make("li", "“" + visible(label) + "” (no." + fmt.SPACE + str(token) + "): score " + signed(logit) + ", " + percent(share)))
    made.appendChild(listed)
    box.appendChild(made)


def _read(address, index, value, pinned):
    row = [each for each in _event["rows"] if each["address"] == address][0]
    shape = row["shape"]
    place = "head " + str(int(index) // shape[1]) + ", number " + str(int(index) % shape[1]) if len(shape) == 2 else "number " + str(int(index))
    line = address + ", " + place + " of " + fmt.count(shape[-1]) + ": " + signed(value, 4)
    text("flow-readout", line)
    el("flow-readout").classList.add("stays")  # in sight beside the strips; before, it would only cover them
    if pinned:
        notices.announce(line)


def start():
    inside.add("flow", fields, draw)
