"""Tags and notes on the runs in the list, and finding runs by them. What a run says of itself is only ever shown as text."""

import notices
import wire
from dom import button, el, empty, make, on, show, text, value

redraw = None  # draws the list anew; runs.py sets it
ask = None  # opens the form on a run
MOST_LETTERS = 1000

_tag = ""  # in lower case: only runs that have it are listed


def tags(run):
    return [str(tag) for tag in (run.get("marks") or {}).get("tags") or []]


def note(run):
    return str((run.get("marks") or {}).get("note") or "")


def wanted(runs):
    """The runs that are looked for, in the order that is asked for; draws what there is to look by."""
    global _tag
    known = {}
    for run in runs:
        for tag in tags(run):
            known.setdefault(tag.lower(), tag)
    if _tag not in known:
        _tag = ""
    _offer(known)
    show("runs-find", len(runs) > 1)
    words = str(value("runs-search")).strip().lower() if len(runs) > 1 else ""
    found = [run for run in runs if (not _tag or _tag in [tag.lower() for tag in tags(run)]) and words in _everything(run)]
    order = str(value("runs-sort"))
    if order == "name":
        found = sorted(found, key=lambda run: str(run.get("name")).lower())
    elif order == "loss":
        found = sorted(found, key=_loss)
    elif order == "steps":
        found = sorted(found, key=lambda run: -(run.get("step") or 0))
    text("runs-none", "" if found or not runs else "No run is like that.")
    return found


def _loss(run):
    loss = run.get("validation_loss_nats")
    return 1e9 if loss is None else loss


def _everything(run):
    return " ".join([str(run.get("name")), note(run)] + tags(run)).lower()


def _offer(known):
    """A button for each tag there is; the pressed one is what the list is limited to."""
    focused = str(el("runs-tags").ownerDocument.activeElement.id)
    empty("runs-tags")
    for number, lower in enumerate(sorted(known)):
        el("runs-tags").appendChild(button(known[lower], _press(lower), id="runs-tag-" + str(number), dir="auto",
                                           aria_pressed="true" if lower == _tag else "false"))
    if focused.startswith("runs-tag-") and el(focused):
        el(focused).focus()


def _press(lower):
    def press(event):
        global _tag
        _tag = "" if _tag == lower else lower
        redraw()

    return press


def put(run, item):
    """Tags and note of a run, below its facts."""
    if tags(run):
        row = make("ul", cls="tags", aria_label="Tags")
        for tag in tags(run):
            row.appendChild(make("li", tag, dir="auto"))
        item.appendChild(row)
    if note(run):
        item.appendChild(make("p", note(run), "own-note", dir="auto"))


def form(run, done):
    """Fields for tags and note; `done()` puts the list back."""
    run_id = run["run_id"]
    place = make("div", cls="mark-form", role="group", aria_label="Tags and note of " + str(run.get("name") or run_id))
    words = make("input", type="text", id="run-" + run_id + "-tags", maxlength="500", autocomplete="off", value=", ".join(tags(run)))
    lines = make("textarea", note(run), rows="4", id="run-" + run_id + "-note", maxlength=str(MOST_LETTERS))
    for label, field in (("Tags, with commas between them", words), ("Note", lines)):
        box = make("div", cls="field")
        box.appendChild(make("label", label, **{"for": str(field.id)}))
        box.appendChild(field)
        place.appendChild(box)

    def keep(event=None):
        notices.clear("runs")
        wire.send("runs.mark", {"run_id": run_id, "tags": str(words.value).split(","), "note": str(lines.value)}, "runs", answered=kept)

    def kept(event):
        if event["kind"] != "failed":
            done()
            notices.announce("Kept.")

    def key(event):
        if event.key == "Escape":
            done()
        elif event.key == "Enter" and event.target.tagName == "INPUT":
            event.preventDefault()
            keep()

    place.addEventListener("keydown", key)
    row = make("div", cls="actions")
    row.appendChild(button("Keep", keep, id="run-" + run_id + "-marks-save"))
    row.appendChild(button("Cancel", lambda event: done(), "quiet-button"))
    place.appendChild(row)
    return place


def start(draw):
    global redraw
    redraw = draw
    on("runs-search", "input", lambda event: redraw())
    on("runs-sort", "change", lambda event: redraw())
