"""What a model would say after each position, layer by layer: the open one, or a tiny one that learns for a moment. Setting: text."""

import fmt
import lesson_draw as draw
from dom import button, empty, make

CODE = """
import json
_text, _own = {text!r}, None
if model is None:
    _own = pt.GPT.create("tiny", seed=42)
    for _ in pt.train(_own, pt.Corpus.shakespeare(), steps=400, warmup_steps=20):
        pass
_found = await pt.study.logit_lens_async(_own or model, list((_own or model).tokenizer.encode(_text))[:24], top=3)
if _own is not None:
    _own.close()
json.dumps({{"rows": _found.layers, "labels": _found.labels, "guesses": [[_row[0] for _row in _layer] for _layer in _found.top_labels],
            "shares": _found.top_probability[:, :, 0].round(3).tolist(), "came": (_found.rank == 0).tolist(), "losses": [round(float(_each), 2) for _each in _found.loss_nats],
            "what": "the open model" if _own is None else "a tiny model after 400 steps, since none is open"}})
"""


def build(place, settings):
    name = "instrument-lens-text"
    label = make("label", "Text")
    label.htmlFor = name
    field = make("input", type="text", id=name, maxlength="24")
    field.value = settings.get("text", "the king and the")
    row = make("div", cls="row")
    box = make("div", cls="lens-box", tabindex="0", role="region", aria_label="Guesses by layer and position")
    for part in (label, field, row, box):
        place.appendChild(part)
    state = {"found": None, "at": 0, "columns": []}

    def clear(letter):
        return letter.replace(" ", "␣").replace("\n", "⏎")

    def told(event):
        if event["kind"] == "failed":
            say("This could not be read: " + (event["message"] or "the trainer is not there yet") + " Press Look again.")
            return
        state["found"] = event
        empty(box)
        table, columns = make("table", cls="lens-grid"), [[] for _ in event["labels"]]
        head = make("tr")
        head.appendChild(make("th", "text"))
        for at, letter in enumerate(event["labels"]):
            cell = make("th", clear(letter))
            columns[at].append(cell)
            head.appendChild(cell)
        table.appendChild(head)
        for layer in range(len(event["rows"]) - 1, -1, -1):
            line = make("tr")
            line.appendChild(make("th", event["rows"][layer].replace("blocks.", "block ")))
            for at in range(len(event["labels"])):
                came = event["came"][layer][at]
                cell = make("td", clear(event["guesses"][layer][at]), cls="lens-came" if came else "lens-missed")
                cell.style.opacity = str(0.45 + 0.55 * event["shares"][layer][at])
                columns[at].append(cell)
                line.appendChild(cell)
            table.appendChild(line)
        box.appendChild(table)
        state["columns"] = columns
        slider.max = str(len(columns) - 1)
        show(min(state["at"], len(columns) - 1))

    def show(value):
        state["at"] = int(value)
        found = state["found"]
        if found is None:
            return
        for at, cells in enumerate(state["columns"]):
            for cell in cells:
                if at == state["at"]:
                    cell.classList.add("lens-now")
                else:
                    cell.classList.remove("lens-now")
        parts = []
        for layer, name in enumerate(found["rows"]):
            parts.append(name.replace("blocks.", "block ") + " " + clear(found["guesses"][layer][state["at"]]) + " (" + draw.percent(found["shares"][layer][state["at"]]) + ")")
        before = "".join([clear(letter) for letter in found["labels"][: state["at"] + 1]])
        losses = ", ".join([fmt.fixed(loss, 2) for loss in found["losses"]])
        say("In " + found["what"] + ", after “" + before + "”: " + ", ".join(parts) + ". Loss of the whole text by layer, in nats: " + losses + ".")

    def ask(event=None):
        say("Asking … (where no model is open, a tiny one learns first: some seconds)")
        draw.ask("lens", CODE.format(text=str(field.value) or " "), told)

    row.appendChild(button("Look", ask))
    slider = draw.knob(place, "Position", 0, 23, 1, 0, show, lambda value: str(int(value) + 1))
    say = draw.said(place)
    say("Press Look. Green cells came true; faint ones were unsure.")
