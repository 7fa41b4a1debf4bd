"""The letters of the open model (of a fresh one where none is open), laid out by the two directions in which their rows differ most."""

import lesson_draw as draw
from dom import button, make

CODE = """
import json
import numpy as np
_model = model if model is not None and model.tokenizer.name == "bytes" else None
_own = None if _model is not None else pt.GPT.create("tiny", seed=42, training=False)
_rows = np.frombuffer(bytes((_model or _own).weight_bytes("wte.weight")), "<f4").reshape((_model or _own).config.vocabulary, -1)
if _own is not None:
    _own.close()
_ids = [*range(97, 123), *range(65, 91)]
_unit = _rows[_ids] / np.linalg.norm(_rows[_ids], axis=1, keepdims=True)
_flat = _unit - _unit.mean(0)
_values, _vectors = np.linalg.eigh(_flat.T @ _flat)
_places = _flat @ _vectors[:, ::-1][:, :2]
_near = (_unit @ _unit.T - 2 * np.eye(len(_ids))).argsort(1)[:, ::-1][:, :5]
json.dumps({"letters": [chr(i) for i in _ids], "places": (_places / np.abs(_places).max()).round(3).tolist(), "near": _near.tolist(),
            "what": "the open model" if _own is None else "a fresh model, since none is open: it is all chance"})
"""


def build(place, settings):
    picture = draw.drawing(480, 320, "Letters laid out by their rows")
    place.appendChild(picture)
    say = draw.said(place)
    state = {"found": None, "at": 0}
    marks = []

    def told(event):
        if event["kind"] == "failed":
            say("This could not be read: " + (event["message"] or "the trainer is not there yet") + " Press Look again.")
            return
        state["found"] = event
        for mark in marks:
            mark.remove()
        marks.clear()
        for letter, (x, y) in zip(event["letters"], event["places"]):
            mark = draw.svg("text", letter, "letter", x=round(240 + 215 * x, 1), y=round(165 - 140 * y, 1), text_anchor="middle")
            picture.appendChild(mark)
            marks.append(mark)
        show(state["at"])

    def show(value):
        state["at"] = int(value)
        found = state["found"]
        if found is None:
            return
        near = found["near"][state["at"]]
        for at, mark in enumerate(marks):
            mark.setAttribute("class", "letter chosen" if at == state["at"] else "letter near" if at in near else "letter")
        say("In " + found["what"] + ", nearest to " + found["letters"][state["at"]] + ": " + " ".join([found["letters"][at] for at in near]) + ".")

    row = make("div", cls="row")
    row.appendChild(button("Look", lambda event: draw.ask("embedding", CODE, told)))
    place.appendChild(row)
    draw.knob(place, "Letter", 0, 51, 1, 4, show, lambda value: (chr(97 + int(value)) if value < 26 else chr(65 + int(value) - 26)))
    state["at"] = 4
    say("Press Look to read the table.")
