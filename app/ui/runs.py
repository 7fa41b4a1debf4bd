"""The Runs view: what is saved in this browser, and what can be done with each run."""

import js
from pyscript.js_modules import bridge

import fmt
import imports
import notices
import run_marks
import runs_compare
import state
import tabs
import train
import wire
from dom import button, el, empty, make, on, show, text

MORE_STEPS = 500  # what "train more" adds to a finished run

_runs = []
_asking = None  # (run_id, "rename" | "marks" | "export" | "delete") while a question is open in the list
FORMATS = [("safetensors", "Whole run", "one .safetensors, with what training needs to go on"),
           ("hf", "For Hugging Face", "a .zip whose folder transformers opens"),
           ("gguf", "GGUF", "one file, as llama.cpp reads models; weights and tokenizer")]


def _show(event):
    global _runs
    _runs = event.get("runs") or []
    for run in _runs:
        train.renamed(run["run_id"], run.get("name") or run["run_id"])
    _draw()
    _offer()


def _draw():
    focused = js.document.activeElement.id
    empty("runs-list")
    show("runs-empty", not _runs)
    runs_compare.keep(_runs)
    for run in run_marks.wanted(_runs):
        el("runs-list").appendChild(_item(run))
    again = el(focused) if focused else None
    if focused and str(focused).startswith("run-") and again:
        again.focus()


def _steps_left(run):
    return (run.get("steps") or 0) - (run.get("step") or 0)


def _item(run):
    run_id = run["run_id"]
    item = make("li", cls="run-item", id="run-" + run_id, data_run=run_id)
    head = make("div", cls="run-line")
    if _asking == (run_id, "rename"):
        head.appendChild(_rename_form(run))
    else:
        head.appendChild(make("h2", run.get("name") or run_id))
    if run.get("live"):
        head.appendChild(make("span", "in use", "badge"))
    if run.get("corrupt"):
        head.appendChild(make("span", "damaged", "badge bad"))
    if runs_compare.offered(run, _runs):
        head.appendChild(runs_compare.box(run))
    item.appendChild(head)
    item.appendChild(make("p", _facts(run), "facts"))
    run_marks.put(run, item)
    if run.get("corrupt"):
        item.appendChild(make("p", "Its saved files cannot be read any more. Other runs are not affected.", "hint"))
    if run.get("note"):
        item.appendChild(make("p", run["note"], "hint"))
    asked = _asking[1] if _asking and _asking[0] == run_id else None
    if asked == "marks":
        item.appendChild(run_marks.form(run, lambda: _asked(run, "marks")))
    else:
        item.appendChild(_question(run) if asked == "delete" else _formats(run) if asked == "export" else _actions(run))
    return item


def _facts(run):
    parts = []
    if run.get("preset"):
        parts.append(str(run["preset"]))
    if run.get("parameters"):
        parts.append(fmt.count(run["parameters"]) + " parameters")
    if run.get("tokenizer") == "bpe":
        parts.append("BPE, " + fmt.count(run.get("vocabulary")) + " tokens")
    if run.get("step") is not None:
        parts.append("step " + fmt.count(run["step"]) + (" of " + fmt.count(run["steps"]) if run.get("steps") else ""))
    if fmt.finite(run.get("validation_loss_nats")):
        bits = run.get("bits_per_byte")
        parts.append("validation loss " + fmt.fixed(run["validation_loss_nats"], 3)
                     + (" (" + fmt.fixed(bits, 3) + " bits per byte)" if run.get("tokenizer") == "bpe" and fmt.finite(bits) else ""))
    elif fmt.finite(run.get("loss_nats")):
        parts.append("loss " + fmt.fixed(run["loss_nats"], 3))
    if run.get("bytes"):
        parts.append(fmt.size(run["bytes"]))
    if run.get("adapters"):
        parts.append(fmt.plural(run["adapters"], "adapter"))
    when = _when(run.get("updated"))
    if when:
        parts.append("saved " + when)
    return " · ".join(parts)


def _when(updated):
    """Seconds (or milliseconds) since 1970, or an ISO text, in the reader's own format."""
    if not updated:
        return ""
    if not isinstance(updated, str):
        updated = updated * 1000.0 if updated < 1e11 else float(updated)  # as a float: whole numbers cross to JavaScript in 32 bits
    return str(bridge.localTime(updated))


def _actions(run):
    run_id = run["run_id"]
    row = make("div", cls="actions")

    def add(label, what, handler, cls=None):
        row.appendChild(button(label, lambda event: handler(run), cls, id="run-" + run_id + "-" + what,
                               aria_label=label + ": " + str(run.get("name") or run_id)))

    if not run.get("corrupt"):
        add("Open", "open", _open)
        if run.get("resumable", True):
            left = _steps_left(run)
            add("Continue" if left > 0 else "Train " + str(MORE_STEPS) + " more", "continue", _continue)
        else:
            add("Train it further", "base", imports.train_on)
        add("Rename", "rename", lambda run: _ask(run, "rename"), "quiet-button")
        add("Tags and note", "marks", lambda run: _ask(run, "marks"), "quiet-button")
        add("Duplicate", "duplicate", lambda run: _act("runs.duplicate", run), "quiet-button")
        add("Export", "export", lambda run: _ask(run, "export"), "quiet-button")
        add("History", "history", lambda run: _act("runs.history", run), "quiet-button")
    add("Delete", "delete", lambda run: _ask(run, "delete"), "quiet-button danger")
    return row


def _act(kind, run, fields=None, answered=None):
    notices.clear("runs")
    message = {"run_id": run["run_id"]}
    message.update(fields or {})
    wire.send(kind, message, "runs", answered=answered)


def _open(run):
    place = tabs.current if tabs.current == "runs" else "train"
    if state.busy():
        return notices.error(place, "A run is going. Stop it first; it is saved when it stops.")
    notices.clear(place)
    notices.announce("Opening " + str(run.get("name")) + "…")
    return wire.send("runs.open", {"run_id": run["run_id"]}, place, answered=_open_answered)


def _open_answered(event):
    if event["kind"] == "opened":
        tabs.go("train", focus=True)


def _continue(run):
    left = _steps_left(run)
    train.resume_run(run["run_id"], left if left > 0 else MORE_STEPS, run.get("name") or "Saved run")


# ---- questions in place --------------------------------------------------------------------------------------------------------


def _ask(run, what):
    global _asking
    _asking = (run["run_id"], what)
    _draw()
    el("run-" + run["run_id"] + {"rename": "-name", "marks": "-tags", "export": "-as-safetensors", "delete": "-keep"}[what]).focus()


def _asked(run, focus):
    global _asking
    _asking = None
    _draw()
    target = el("run-" + run["run_id"] + "-" + focus)
    if target:
        target.focus()


def _rename_form(run):
    run_id = run["run_id"]
    form = make("span", cls="rename")
    form.appendChild(make("label", "New name", "visually-hidden", **{"for": "run-" + run_id + "-name"}))
    box = make("input", type="text", id="run-" + run_id + "-name", maxlength="80", value=run.get("name") or "")

    def keep(event=None):
        name = str(box.value).strip()
        if not name:
            notices.error("runs", "A run needs a name.")
            return box.focus()
        if name != run.get("name"):
            _act("runs.rename", run, {"name": name})
        return _asked(run, "rename")

    def key(event):
        if event.key == "Enter":
            event.preventDefault()
            keep()
        elif event.key == "Escape":
            _asked(run, "rename")

    box.addEventListener("keydown", key)
    form.appendChild(box)
    form.appendChild(button("Save", keep, id="run-" + run_id + "-rename-save"))
    form.appendChild(button("Cancel", lambda event: _asked(run, "rename"), "quiet-button"))
    return form


def _formats(run):
    run_id = run["run_id"]
    row = make("div", cls="actions", role="group", aria_label="Export " + str(run.get("name") or run_id) + " as")

    def add(name, label, hint):
        def export(event):
            _asked(run, "export")
            _act("runs.export", run, {} if name == "safetensors" else {"format": name}, answered=_exported)

        way = make("span", cls="format")
        way.appendChild(button(label, export, id="run-" + run_id + "-as-" + name, aria_describedby="run-" + run_id + "-about-" + name))
        way.appendChild(make("span", hint, "hint", id="run-" + run_id + "-about-" + name))
        row.appendChild(way)

    for name, label, hint in FORMATS:
        add(name, label, hint)
    row.appendChild(button("Cancel", lambda event: _asked(run, "export"), "quiet-button"))
    row.addEventListener("keydown", lambda event: _asked(run, "export") if event.key == "Escape" else None)
    return row


def _exported(event):
    """What should be known of the file."""
    notices.notice("runs", event.get("note") or "" if event["kind"] == "exported" else "")


def _question(run):
    run_id = run["run_id"]
    row = make("div", cls="actions question", role="group", aria_label="Delete this run?")
    also = " and its " + fmt.plural(run["adapters"], "adapter") if run.get("adapters") else ""
    row.appendChild(make("span", "Delete “" + str(run.get("name") or run_id) + "”" + also + " for good?"))
    row.appendChild(button("Keep it", lambda event: _asked(run, "delete"), id="run-" + run_id + "-keep"))

    def delete(event):
        global _asking
        _asking = None
        _act("runs.delete", run, answered=lambda reply: train.deleted(run_id) if reply["kind"] != "failed" else None)
        _draw()
        el("runs-list").setAttribute("tabindex", "-1")
        el("runs-list").focus()

    row.appendChild(button("Delete", delete, "danger", id="run-" + run_id + "-delete-sure"))
    return row


# ---- the way back in ------------------------------------------------------------------------------------------------------------


def _offer():
    """On the Train view, before anything is done: go on where the last run stopped."""
    good = [run for run in _runs if not run.get("corrupt") and run.get("resumable", True) and run.get("step")]
    if state.phase != "idle" or state.model or not good:
        return show("resume-offer", False)
    unfinished = [run for run in good if _steps_left(run) > 0]
    run = (unfinished or good)[0]
    line = "“" + str(run.get("name")) + "” is saved at step " + fmt.count(run["step"])
    text("resume-offer-text", line + (" of " + fmt.count(run["steps"]) + "." if unfinished else "."))
    text("resume-offer-go", "Continue it" if unfinished else "Open it")
    el("resume-offer").dataset.run = run["run_id"]
    return show("resume-offer", True)


def _take_offer(event):
    wanted = el("resume-offer").dataset.run
    for run in _runs:
        if run["run_id"] == wanted:
            return _continue(run) if _steps_left(run) > 0 else _open(run)
    return None


def start():
    run_marks.start(_draw)
    runs_compare.start()
    wire.on("runs", _show)
    wire.on("ready", _show)
    on("resume-offer-go", "click", _take_offer)
    on("tab-runs", "click", lambda event: wire.send("runs.list", {}, "runs") if state.ready else None)
    state.watch(_offer)
