"""A text cut into the tokens of the page, by the worker. Setting: text."""

import lesson_draw as draw
import wire
from dom import button, empty, make

COLOURS = 4


def build(place, settings):
    name = "instrument-tokenizer-text"
    label = make("label", "Text")
    label.htmlFor = name
    field = make("input", type="text", id=name, maxlength="200")
    field.value = settings.get("text", "Hello")
    pieces = make("p", cls="token-pieces prose")
    for part in (label, field, pieces):
        place.appendChild(part)
    say = draw.said(place)
    row = make("div", cls="row")
    place.appendChild(row)

    def told(event):
        if event["kind"] == "failed":
            say("The trainer is not there yet. Try again in a moment.")
            return
        empty(pieces)
        tokens = event["pieces"]
        for at, (shown, number) in enumerate(tokens):
            piece = make("span", cls="token-piece shade-" + str(at % COLOURS))
            piece.appendChild(make("span", shown.replace(" ", "␣")))
            piece.appendChild(make("sub", str(number)))
            pieces.appendChild(piece)
        say(str(event["bytes"]) + " bytes, " + str(len(tokens)) + " tokens, by " + event["by"] + ".")

    CODE = """
import json
_t = tokenizer
_s = {text!r}
_ids = list(_t.encode(_s))
json.dumps({{"pieces": [[_t.decode([i]), int(i)] for i in _ids], "bytes": len(_s.encode()), "by": "bytes" if _t.name == "bytes" else str(_t.vocabulary) + " tokens of BPE"}})
"""

    def ask(event=None):
        draw.ask("tokenizer", CODE.format(text=str(field.value)), told)

    row.appendChild(button("Cut it", ask))
    field.addEventListener("change", ask)
    say("Press Cut it.")
