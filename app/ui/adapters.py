"""The adapters of the open model: choose one or none, how strongly it counts, and what can be done with each."""

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import wire
from dom import button, el, empty, make, on, text, value

HOW = {"text": "a text", "pairs": "answers", "preferences": "preferences", "imported": "imported", "corrections": "corrections"}
LARGEST_IMPORT_MB = 500

_shown = {"adapters": [], "chosen": None, "strength": 1.0, "run_id": None}  # the last `adapters` event
_asking = None  # (adapter_id, "rename" | "delete")
_timer = None


def _show(event):
    global _shown
    _shown = event
    state.adapter = None
    for each in event.get("adapters") or []:
        if each["adapter_id"] == event.get("chosen"):
            state.adapter = {"adapter_id": each["adapter_id"], "name": each.get("name"), "how": each.get("how"), "strength": event.get("strength", 1.0)}
    _draw()
    state.changed()


def _draw():
    focused = str(js.document.activeElement.id)
    empty("adapters-list")
    el("adapters-list").appendChild(_item(None))
    for each in _shown.get("adapters") or []:
        el("adapters-list").appendChild(_item(each))
    _strength()
    if focused.startswith("adapter-") and el(focused):
        el(focused).focus()


def _strength():
    on_ = state.adapter is not None and not state.tuning
    slider = el("strength")
    slider.disabled = not on_
    shown = _shown.get("strength", 1.0) if state.adapter else 1.0
    if js.document.activeElement.id != "strength":
        slider.value = str(shown)
        text("strength-value", fmt.fixed(shown))


def _item(each):
    """One line of the list; None is the base without an adapter."""
    identity = each["adapter_id"] if each else "none"
    item = make("li", cls="run-item", id="adapter-item-" + identity, role="presentation")  # of a group of radio buttons, not a list
    head = make("div", cls="run-line")
    radio = make("input", type="radio", name="adapter", id="adapter-" + identity, value=identity)
    radio.checked = (_shown.get("chosen") or "none") == identity
    radio.disabled = state.tuning or not state.model or bool(each and not each.get("fits", True))
    radio.addEventListener("change", lambda event: _use(each))
    head.appendChild(radio)
    if each and _asking == (identity, "rename"):
        head.appendChild(_rename_form(each))
    else:
        head.appendChild(make("label", each.get("name") or identity if each else "None: the base alone", **{"for": "adapter-" + identity}))
    item.appendChild(head)
    if each:
        radio.setAttribute("aria-describedby", "adapter-" + identity + "-facts")
        item.appendChild(make("p", _facts(each), "facts", id="adapter-" + identity + "-facts"))
        if each.get("note"):
            item.appendChild(make("p", each["note"], "hint"))
        item.appendChild(_question(each) if _asking == (identity, "delete") else _actions(each))
    return item


def _facts(each):
    parts = []
    if each.get("rank"):
        parts.append("rank " + fmt.count(each["rank"]))
    if each.get("how"):
        parts.append("from " + HOW.get(each["how"], each["how"]) if each["how"] != "imported" else "imported")
    if each.get("steps"):
        parts.append("step " + fmt.count(each.get("step")) + " of " + fmt.count(each["steps"]))
    if fmt.finite(each.get("validation_loss_nats")):
        parts.append("loss " + fmt.fixed(each["validation_loss_nats"], 3))
    if each.get("parameters"):
        parts.append(fmt.count(each["parameters"]) + " parameters")
    if each.get("bytes"):
        parts.append(fmt.size(each["bytes"]))
    when = str(bridge.localTime(each["updated"])) if each.get("updated") else ""
    if when:
        parts.append("saved " + when)
    return " · ".join(parts)


def _actions(each):
    row = make("div", cls="actions")

    def add(label, what, handler, cls="quiet-button"):
        row.appendChild(button(label, handler, cls, id="adapter-" + each["adapter_id"] + "-" + what, aria_label=label + ": " + str(each.get("name"))))

    if each.get("fits", True):
        add("Merge", "merge", lambda event: _act("adapters.merge", each, answered=_merged))
    add("Export", "export", lambda event: _act("adapters.export", each))
    if not each.get("kept", True):
        return row
    add("Rename", "rename", lambda event: _ask(each, "rename"))
    add("Delete", "delete", lambda event: _ask(each, "delete"), "quiet-button danger")
    return row


def _act(kind, each, fields=None, answered=None):
    notices.clear("adapters")
    message = {"adapter_id": each["adapter_id"]}
    message.update(fields or {})
    wire.send(kind, message, "adapters", answered=answered)


def _use(each):
    notices.clear("adapters")
    name = str(each.get("name")) if each else "none"
    wire.send("adapters.use", {"adapter_id": each["adapter_id"] if each else ""}, "adapters", answered=lambda reply: _used(reply, name))


def _used(event, name):
    if event["kind"] == "failed":
        _draw()  # as it was
    else:
        notices.announce("The base alone writes now." if name == "none" else "The adapter “" + name + "” is on.")


def _merged(event):
    if event["kind"] != "failed":
        text("adapters-lead", "Merged into a new run, “" + str(event.get("name")) + "”. It is saved under Runs.")
        notices.announce("Merged into a new run, " + str(event.get("name")) + ".")


# ---- strength ------------------------------------------------------------------------------------------------------------------


def _moved(event):
    global _timer
    text("strength-value", fmt.fixed(float(value("strength"))))
    bridge.cancel(_timer)
    _timer = bridge.later(60, _send_strength)


def _send_strength():
    if state.adapter:
        state.adapter["strength"] = float(value("strength"))
        wire.send("adapters.strength", {"strength": float(value("strength"))}, "adapters")
        state.changed()


# ---- questions in place, as in the list of runs --------------------------------------------------------------------------------


def _ask(each, what):
    global _asking
    _asking = (each["adapter_id"], what)
    _draw()
    el("adapter-" + each["adapter_id"] + ("-name" if what == "rename" else "-keep")).focus()


def _asked(each, focus):
    global _asking
    _asking = None
    _draw()
    target = el("adapter-" + each["adapter_id"] + "-" + focus)
    if target:
        target.focus()


def _rename_form(each):
    identity = "adapter-" + each["adapter_id"]
    form = make("span", cls="rename")
    form.appendChild(make("label", "New name", "visually-hidden", **{"for": identity + "-name"}))
    box = make("input", type="text", id=identity + "-name", maxlength="80", value=each.get("name") or "")

    def keep(event=None):
        name = str(box.value).strip()
        if not name:
            notices.error("adapters", "An adapter needs a name.")
            return box.focus()
        if name != each.get("name"):
            _act("adapters.rename", each, {"name": name})
        return _asked(each, "rename")

    def key(event):
        if event.key == "Enter":
            event.preventDefault()
            keep()
        elif event.key == "Escape":
            _asked(each, "rename")

    box.addEventListener("keydown", key)
    form.appendChild(box)
    form.appendChild(button("Save", keep, id=identity + "-rename-save"))
    form.appendChild(button("Cancel", lambda event: _asked(each, "rename"), "quiet-button"))
    return form


def _question(each):
    row = make("div", cls="actions question", role="group", aria_label="Delete this adapter?")
    row.appendChild(make("span", "Delete “" + str(each.get("name")) + "” for good?"))
    row.appendChild(button("Keep it", lambda event: _asked(each, "delete"), id="adapter-" + each["adapter_id"] + "-keep"))

    def delete(event):
        global _asking
        _asking = None
        _act("adapters.delete", each)
        _draw()
        el("adapter-none").focus()

    row.appendChild(button("Delete", delete, "danger", id="adapter-" + each["adapter_id"] + "-delete-sure"))
    return row


# ---- import --------------------------------------------------------------------------------------------------------------------


def import_file(file):
    notices.clear("adapters")
    megabytes = bridge.megabytes(file)
    if megabytes > LARGEST_IMPORT_MB:
        return notices.error("adapters", "“" + str(file.name) + "” has " + fmt.size(megabytes * 1e6) + ": that is more than an adapter of this page can have.")
    if not state.model:
        return notices.error("adapters", "There is no model open that it could be for. Train one, or open a saved run.")
    return wire.send("adapters.import", {"name": file.name}, "adapters", file=file,
                     answered=lambda reply: notices.announce("The adapter has been imported.") if reply["kind"] != "failed" else None)


def _picked(event):
    files = el("adapters-import").files
    if files.length:
        import_file(files.item(0))
    el("adapters-import").value = ""


_seen = None


def _changed():
    """What can be chosen depends on whether a tune goes, and on whether a model is open."""
    global _seen
    now = (state.tuning, bool(state.model))
    if now != _seen:
        _seen = now
        _draw()


def start():
    wire.on("adapters", _show)
    on("strength", "input", _moved)
    on("adapters-import", "change", _picked)
    on("tab-tune", "click", lambda event: wire.send("adapters.list", {}, "adapters") if state.ready else None)
    state.watch(_changed)
    _draw()
