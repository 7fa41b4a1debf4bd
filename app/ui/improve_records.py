"""The list of corrections: what was offered, what was kept and the difference, edited, deleted, moved in and out."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
import wire
from dom import button, el, empty, make, on, show, text

WHAT = {"accept": "Accepted", "edit": "Edited", "retry": "Refused", "correct": "Corrected"}
PAGE = 20
LONGEST = 4000  # letters compared with each other

shown = {"rows": [], "total": 0, "fresh": 0, "enough": 8, "saved": True}
_count = PAGE
_asking = None  # (id, "edit" | "delete")
_watchers = []


def watch(handler):
    _watchers.append(handler)


def request():
    if state.ready:
        wire.send("improve.list", {"first": 0, "count": min(_count, 200)}, "records")


def _show(event):
    global shown, _asking
    rows = event.get("rows") or []
    if len(rows) < min(_count, event.get("total") or 0, 200):
        return request()  # a page of the usual length; this list shows more
    if event.get("run_id") != shown.get("run_id"):
        _asking = None
    shown = event
    _draw()
    for handler in _watchers:
        handler()
    return None


def _draw():
    total = shown.get("total") or 0
    lead = "None yet. Under Write, each text has buttons for it." if not total else fmt.plural(total, "correction") + ", the newest first; kept with this run, on this computer."
    if not shown.get("saved", True):
        lead += " This run is not saved, so they are gone when the tab closes: export them."
    if shown.get("note"):
        lead += " " + shown["note"]
    text("records-lead", lead)
    for name in ("export", "clear"):
        el("records-" + name).disabled = not total
    show("records-more", len(shown.get("rows") or []) < min(total, 200))
    if not total:
        show("records-question", False)
    empty("records-list")
    for row in shown.get("rows") or []:
        el("records-list").appendChild(_item(row))


def _item(row):
    item = make("li", id="record-" + row["id"])
    when = str(bridge.localTime(row["created"])) if row.get("created") else ""
    item.appendChild(make("p", " · ".join([each for each in (WHAT.get(row["what"], row["what"]), when, "" if not row.get("version") else "offered by version " + str(row["version"])) if each]), "facts"))
    item.appendChild(_line("Asked", row["prompt"]))
    if _asking == (row["id"], "edit"):
        item.appendChild(_form(row))
        return item
    if row["what"] == "edit":
        item.appendChild(_difference(row["offered"], row["kept"]))
    else:
        if row["offered"] and row["what"] != "accept":
            item.appendChild(_line("Offered", row["offered"], "del"))
        if row["kept"]:
            item.appendChild(_line("Kept", row["kept"], "ins" if row["what"] == "correct" else None))
    item.appendChild(_question(row) if _asking == (row["id"], "delete") else _actions(row))
    return item


def _line(name, words, tag=None):
    line = make("p", cls="prose record-line")
    line.appendChild(make("span", name + " ", "record-name"))
    line.appendChild(make(tag or "span", words))
    return line


def difference(old, new):
    """[(tag, words)]: what both begin and end with stays, the words between were taken out and put in."""
    old, new = old.strip("\n"), new.strip("\n")
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[len(old) - 1 - tail] == new[len(new) - 1 - tail]:
        tail += 1
    while head and head < max(len(old), len(new)) and not old[head - 1].isspace():  # whole words
        head -= 1
    while tail and not old[len(old) - tail].isspace():
        tail -= 1
    parts = [("span", old[:head]), ("del", old[head:len(old) - tail]), ("ins", new[head:len(new) - tail]), ("span", old[len(old) - tail:] if tail else "")]
    return [each for each in parts if each[1]]


def _difference(old, new):
    line = make("p", cls="prose record-line")
    line.appendChild(make("span", "Changed ", "record-name"))
    for tag, words in difference(old, new) if len(old) + len(new) < LONGEST else [("del", old), ("ins", new)]:
        line.appendChild(make(tag, words))
    return line


def _actions(row):
    line = make("div", cls="actions")
    if row["what"] != "retry":
        line.appendChild(button("Edit", lambda event: _ask(row, "edit"), "quiet-button", id="record-" + row["id"] + "-edit", aria_label="Edit the correction of: " + row["prompt"][:60]))
    line.appendChild(button("Delete", lambda event: _ask(row, "delete"), "quiet-button danger", id="record-" + row["id"] + "-delete", aria_label="Delete the correction of: " + row["prompt"][:60]))
    return line


def _ask(row, what):
    global _asking
    _asking = (row["id"], what)
    _draw()
    el("record-" + row["id"] + ("-text" if what == "edit" else "-keep")).focus()


def _asked(row, focus):
    global _asking
    _asking = None
    _draw()
    target = el("record-" + row["id"] + "-" + focus)
    (target or el("records-title")).focus()


def _form(row):
    identity = "record-" + row["id"]
    form = make("div")
    form.appendChild(make("label", "What is kept", **{"for": identity + "-text"}))
    box = make("textarea", id=identity + "-text", rows="4")
    box.value = row["kept"]
    form.appendChild(box)

    def keep(event):
        global _asking
        notices.clear("records")
        words = str(box.value)
        if not words.strip():
            return notices.error("records", "What is kept cannot be empty: delete the correction instead.")
        fields = {"record_id": row["id"], "kept": words}
        if row["what"] == "accept" and words != row["kept"]:
            fields["what"] = "edit"
        _asking = None

        def answered(event):
            if event["kind"] != "failed":
                notices.announce("The correction is changed.")
            target = el(identity + "-edit")
            if target:
                target.focus()

        return wire.send("improve.edit", fields, "records", answered=answered)

    line = make("div", cls="actions")
    line.appendChild(button("Save", keep, id=identity + "-save"))
    line.appendChild(button("Cancel", lambda event: _asked(row, "edit"), "quiet-button"))
    form.appendChild(line)
    return form


def _question(row):
    line = make("div", cls="actions question", role="group", aria_label="Delete this correction?")
    line.appendChild(make("span", "Delete it for good?"))
    line.appendChild(button("Keep it", lambda event: _asked(row, "delete"), id="record-" + row["id"] + "-keep"))

    def delete(event):
        global _asking
        _asking = None
        wire.send("improve.delete", {"record_ids": [row["id"]]}, "records", answered=lambda reply: notices.announce("Deleted.") if reply["kind"] != "failed" else None)
        el("records-title").focus()

    line.appendChild(button("Delete", delete, "danger", id="record-" + row["id"] + "-delete-sure"))
    return line


def _more(event):
    global _count
    _count += PAGE
    request()


def _clear(event):
    show("records-question", True)
    el("records-keep").focus()


def _cleared(sure):
    show("records-question", False)
    if sure:
        wire.send("improve.clear", {}, "records", answered=lambda reply: notices.announce("All corrections are deleted.") if reply["kind"] != "failed" else None)
        el("records-title").focus()
    else:
        el("records-clear").focus()


def _picked(event):
    files = el("records-import").files
    if files.length:
        notices.clear("records")
        wire.send("improve.import", {"name": files.item(0).name}, "records", file=files.item(0), answered=_imported)
    el("records-import").value = ""


def _imported(event):
    if event["kind"] != "failed":
        added = event.get("added") or 0
        notices.announce(fmt.plural(added, "correction") + " imported." if added else "All of these corrections were here already.")
        text("records-lead", fmt.plural(added, "correction") + " imported.")


def start():
    wire.on("improve.records", _show)
    on("records-more", "click", _more)
    on("records-export", "click", lambda event: wire.send("improve.export", {}, "records"))
    on("records-clear", "click", _clear)
    on("records-keep", "click", lambda event: _cleared(False))
    on("records-clear-sure", "click", lambda event: _cleared(True))
    on("records-import", "change", _picked)
