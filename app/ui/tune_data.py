"""What a tune learns from: a second text, prompts with answers, or preferences; typed in, or a file."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
from dom import button, chosen, el, empty, make, on, show, text

HINTS = {
    "text": "Any text in the voice or on the subject it should learn. A few pages are enough to see a change.",
    "pairs": "It learns the answer to each prompt, and is not judged on the prompts. To ask it under Write, end the prompt with a line break.",
    "preferences": "Two answers to each prompt: it learns to prefer the better one (DPO), staying close to the base.",
}
FIELDS = {
    "pairs": (("prompt", "Prompt"), ("response", "Answer")),
    "preferences": (("prompt", "Prompt"), ("chosen", "Better answer"), ("rejected", "Worse answer")),
}
FILES = {
    "text": ("Or a text file (.txt or .md)", ".txt,.md,.markdown,text/plain,text/markdown"),
    "pairs": ("Or a file with prompt and response (.jsonl or .csv)", ".jsonl,.ndjson,.csv,application/jsonl,text/csv"),
    "preferences": ("Or a file with prompt, chosen and rejected (.jsonl or .csv)", ".jsonl,.ndjson,.csv,application/jsonl,text/csv"),
}
LARGEST_FILE_MB = 64
KINDS = {"text": "a text file", "pairs": "a .jsonl or .csv file", "preferences": "a .jsonl or .csv file"}

_files = {"text": None, "pairs": None, "preferences": None}
_rows = {"pairs": [["", ""], ["", ""]], "preferences": [["", "", ""]]}  # as typed, while the other kind is shown
_shown = "text"


def how():
    return chosen("tune-how") or "text"


def request():
    """(fields, file, area) of a tune.start. Raises ValueError with a sentence where there is nothing to learn from."""
    which = how()
    file = _files[which]
    if file is not None:
        return {"how": which, "file_name": file.name}, file, None
    if which == "text":
        if bridge.isBlank("tune-text"):
            raise ValueError("There is nothing to learn from yet: paste a second text, or choose a file.")
        return {"how": which}, None, "tune-text"
    rows = typed(which)
    if not rows:
        raise ValueError("There is nothing to learn from yet: fill in a row, or choose a file.")
    return {"how": which, "rows": rows}, None, None


def typed(which):
    """The rows with anything in them, as dicts. A row that lacks something raises ValueError."""
    _read()
    names = FIELDS[which]
    rows = []
    for number, row in enumerate(_rows[which]):
        if not any(cell.strip() for cell in row):
            continue
        for at, (_, label) in enumerate(names):
            if at and not row[at].strip():
                raise ValueError("Row " + str(number + 1) + " has no “" + label.lower() + "”: fill it in, or remove the row.")
        rows.append({names[at][0]: cell for at, cell in enumerate(row)})
    return rows


def _read():
    """From the fields into _rows."""
    if _shown in FIELDS:
        width = len(FIELDS[_shown])
        boxes = el("tune-rows").querySelectorAll("textarea")
        cells = [str(boxes.item(at).value) for at in range(boxes.length)]
        _rows[_shown] = [cells[at:at + width] for at in range(0, len(cells), width)]


def _draw():
    which = _shown
    show("tune-text-box", which == "text")
    show("tune-rows-box", which != "text")
    text("tune-how-hint", HINTS[which])
    show("tune-beta-box", which == "preferences")
    file = _files[which]
    label, accept = FILES[which]
    text("tune-file-label", label)
    el("tune-file").setAttribute("accept", accept)
    show("tune-file-facts", file is not None)
    if file is not None:
        text("tune-file-name", "It learns from “" + str(file.name) + "”, " + fmt.size(bridge.megabytes(file) * 1e6) + ".")
        show("tune-text-box", False)
        show("tune-rows-box", False)
    if which in FIELDS:
        empty("tune-rows")
        for number, row in enumerate(_rows[which]):
            el("tune-rows").appendChild(_row(which, number, row))


def _row(which, number, row):
    item = make("li")
    for at, (name, label) in enumerate(FIELDS[which]):
        identity = "tune-row-" + str(number) + "-" + name
        item.appendChild(make("label", label, **{"for": identity, "class": "cell-label"}))
        box = make("textarea", row[at], rows="2", spellcheck="false", id=identity, aria_label=label + ", row " + str(number + 1))
        item.appendChild(box)
    item.appendChild(button("Remove", lambda event: _remove(number), "quiet-button", aria_label="Remove row " + str(number + 1),
                            id="tune-row-" + str(number) + "-remove"))
    return item


def _remove(number):
    _read()
    rows = _rows[_shown]
    del rows[number]
    if not rows:
        rows.append([""] * len(FIELDS[_shown]))
    _draw()
    el("tune-rows-add").focus()


def _add(event):
    _read()
    _rows[_shown].append([""] * len(FIELDS[_shown]))
    _draw()
    el("tune-row-" + str(len(_rows[_shown]) - 1) + "-prompt").focus()


def _changed(event=None):
    global _shown
    _read()
    _shown = how()
    notices.clear("tune-data")
    _draw()
    state.changed()


def take(file):
    """Learn from this File. Returns False where it cannot be that."""
    notices.clear("tune-data")
    megabytes = bridge.megabytes(file)
    if megabytes > LARGEST_FILE_MB:
        notices.error("tune-data", "“" + str(file.name) + "” has " + fmt.size(megabytes * 1e6) + "; a tune takes up to " + fmt.size(LARGEST_FILE_MB * 1e6) + ".")
        return False
    name = str(file.name).lower()
    table = name.endswith((".jsonl", ".ndjson", ".csv"))
    which = how()
    if table != (which != "text"):
        notices.error("tune-data", "“" + str(file.name) + "” is not " + KINDS[which] + ": choose one, or another kind of learning above.")
        return False
    _files[which] = file
    _draw()
    el("tune-file-drop").focus()
    return True


def _picked(event):
    files = el("tune-file").files
    if files.length:
        take(files.item(0))
    el("tune-file").value = ""  # so that choosing the same file again counts


def _drop(event):
    _read()
    _files[_shown] = None
    _draw()
    el("tune-file").focus()


def lock(locked):
    el("tune-setup").disabled = locked


def start():
    global _shown
    for name in ("text", "pairs", "preferences"):
        on("tune-how-" + name, "change", _changed)
    on("tune-rows-add", "click", _add)
    on("tune-file", "change", _picked)
    on("tune-file-drop", "click", _drop)
    _shown = how()  # after a reload the browser may have restored another choice
    _draw()
