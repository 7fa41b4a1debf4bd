"""Improving from corrections on the Tune view: what would be used, the run, its verdict, the versions, and beginning by itself."""

import js
from pyscript.js_modules import bridge

import fmt
import improve_gate
import improve_records
import notices
import state
import wire
from dom import button, el, empty, make, on, sentences, show, swap, text

PHASES = {"measure": "Measuring what it knows before", "sft": "Learning your answers", "dpo": "Learning what you prefer", "gate": "Testing what it learned"}
IDLE_SECONDS = 120
LOOK_MS = 5000

_stopping = False
_by_itself = False
_plan = {}
_versions = {"versions": [], "in_use": None, "on": None}
_open = None
_touched = 0.0
_learned = 0


def _enter(going):
    global _stopping
    state.improving, _stopping = going, False
    swap(going, "improve-start", "improve-stop")
    show("improve-progress", going)
    bridge.setBusy(state.busy())
    state.changed()


def hindrance():
    if state.phase in ("starting", "running", "pausing", "paused", "stopping"):
        return "A run is being trained. Stop it first; it is saved when it stops."
    if state.tuning:
        return "A tune is going. Stop it first; its adapter is saved when it stops."
    if not state.ready:
        return "The trainer is still loading: one moment."
    if not state.model:
        return "There is no model yet. Press Train, or open a saved run under Runs."
    return None


def _press(event=None, by_itself=False):
    notices.clear("improve")
    problem = hindrance() or _plan.get("problem")
    if problem:
        return None if by_itself else notices.error("improve", problem)
    bridge.resetFlag()
    improve_gate.draw(None)
    text("improve-note", "")
    el("improve-progress").removeAttribute("value")
    _enter(True)
    text("improve-status", "Preparing…")
    fields = {"settings": {}}
    if by_itself:
        fields["by_itself"] = True
    return wire.send("improve.start", fields, "improve", answered=_answered)


def _answered(event):
    if event["kind"] == "failed":
        _enter(False)
        text("improve-status", "Nothing was changed.")


def _stop(event=None):
    global _stopping
    if _stopping or not state.improving:
        return
    _stopping = True
    bridge.flag(2)
    wire.send("improve.stop", {}, "improve")
    text("improve-status", "Stopping…")


# ---- beforehand ------------------------------------------------------------------------------------------------------------------


def _ask_plan():
    if state.ready and state.model and not state.improving:
        wire.send("improve.plan", {}, "improve")


def _planned(event):
    global _plan
    _plan = event
    dropped = event.get("dropped") or []
    if event.get("problem"):
        line = event["problem"] if event.get("total") else ""
    else:
        line = ("It would learn from " + fmt.plural(event["learned"], "answer")
                + (", and from " + fmt.plural(event["preferences"], "choice") + " between two" if event.get("preferences") else "")
                + ". " + fmt.count(event["held_out"]) + " others are held out to test it by. Passages of the model’s own text are mixed in, so that it does not forget.")
    text("improve-plan", line)
    notes = list(event.get("notes") or []) + [each["why"] for each in dropped]
    show("improve-dropped-box", bool(notes))
    text("improve-dropped-title", fmt.plural(len(dropped), "correction") + " left out, and why" if dropped else "What to know")
    counted = []
    for note in notes:
        plain = note.split(" (")[0].rstrip(".") + "."
        if plain not in counted:
            counted.append(plain)
    sentences("improve-dropped", [(fmt.count(len([1 for note in notes if note.split(" (")[0].rstrip(".") + "." == plain])) + " × " if dropped else "") + plain for plain in counted])


# ---- while it goes ---------------------------------------------------------------------------------------------------------------


def _started(event):
    global _by_itself, _learned
    _by_itself, _learned = bool(event.get("by_itself")), 0
    if not state.improving:
        _enter(True)
    show("improve-chart-box", False)
    notices.announce("Improving began" + (" by itself." if _by_itself else "."))


def _curated(event):
    global _learned
    _learned = event.get("learned") or 0


def _phase(event):
    name = event.get("phase")
    if name == "sft":
        show("improve-chart-box", True)
        bridge.tuneChart.improving.reset(event.get("steps") or 1)
    if name not in ("sft", "dpo"):
        el("improve-progress").removeAttribute("value")
    if not _stopping:
        text("improve-status", PHASES.get(name, "Working") + "…")


def _stepped(event):
    bar = el("improve-progress")
    bar.max = max(event.get("steps") or 1, 1)
    bar.value = event.get("step") or 0
    if not _stopping:
        line = PHASES.get(event.get("phase"), "Learning") + ": step " + fmt.count(event.get("step")) + " of " + fmt.count(event.get("steps"))
        if fmt.finite(event.get("eta_seconds")):
            line += ", " + fmt.duration(event["eta_seconds"]) + " left"
        text("improve-status", line + ".")


def _ended(event):
    reason = event.get("reason")
    had_focus = str(js.document.activeElement.id) in ("improve-start", "improve-stop")
    _enter(False)
    if reason == "finished":
        line = ("Promoted: version " + fmt.count(event.get("version")) + " is on. It learned from " + fmt.plural(_learned, "answer") + "." if event.get("promoted")
                else "Kept aside: version " + fmt.count(event.get("version")) + " did not pass. What was on is still on.")
    else:
        line = event.get("message") or "It has ended."
        if reason == "error":
            notices.error("improve", line)
            line = "It ended early. What was on is still on."
    text("improve-status", ("While you were away: " if event.get("by_itself") and reason == "finished" else "") + line)
    bridge.tuneChart.improving.describe(line)
    notices.announce(line)
    if had_focus and reason == "finished":
        el("improve-verdict-title").focus()
    _ask_plan()


# ---- versions --------------------------------------------------------------------------------------------------------------------


def _versions_told(event):
    global _versions
    _versions = event
    if event.get("unfinished") and not state.improving:
        when = str(bridge.localTime(event["unfinished"]))
        text("improve-note", "The improvement that began" + (" on " + when if when else "") + " was cut off before its test. Nothing was changed by it; press Improve to do it again.")
    elif event.get("note"):
        text("improve-note", event["note"])
    _draw_versions()


def _draw_versions():
    focused = str(js.document.activeElement.id)
    empty("versions-list")
    versions = _versions.get("versions") or []
    for each in versions:
        el("versions-list").appendChild(_version(each))
    if versions:
        base = make("li", cls="run-item", id="version-0")
        base.appendChild(_head("The base alone", 0, not _versions.get("on"), True))
        el("versions-list").appendChild(base)
    else:
        el("versions-list").appendChild(make("li", "None yet.", "hint"))
    if focused.startswith("version-"):
        (el(focused) or el("versions-title")).focus()


def _head(name, number, on_, can):
    line = make("div", cls="run-line")
    line.appendChild(make("strong", name))
    if on_:
        line.appendChild(make("span", "on", "badge"))
    elif can:
        line.appendChild(button("Put on", lambda event: _use(number, name), "quiet-button", id="version-" + str(number) + "-use", aria_label="Put on: " + name))
    return line


def _version(each):
    item = make("li", cls="run-item", id="version-" + str(each["number"]))
    item.appendChild(_head("Version " + str(each["number"]), each["number"], _versions.get("on") == each["number"], each.get("promoted")))
    figures = each.get("figures") or {}
    parts = ["promoted" if each.get("promoted") else "kept aside", str(bridge.localTime(each["created"])),
             "learned from " + fmt.plural(len(each.get("learned") or {}), "correction"), "tested on " + fmt.count(len(each.get("held_out") or {})),
             "after version " + str(each["parent"]) if each.get("parent") else "from the base"]
    if fmt.finite(figures.get("held_out_after_nats")):
        parts.append("loss on those " + fmt.fixed(figures.get("held_out_before_nats"), 2) + " → " + fmt.fixed(figures["held_out_after_nats"], 2))
    item.appendChild(make("p", " · ".join([part for part in parts if part]), "facts"))
    for reason in each.get("reasons") or []:
        item.appendChild(make("p", reason, "hint"))
    more = make("details", cls="plain")
    more.appendChild(make("summary", "What it learned from"))
    names = make("ul", cls="notes")
    rows = {row["id"]: row for row in improve_records.shown.get("rows") or []}
    gone = 0
    for identity in each.get("learned") or {}:
        if identity in rows:
            names.appendChild(make("li", rows[identity]["prompt"] + " → " + (rows[identity]["kept"] or "(refused)")))
        else:
            gone += 1
    if gone:
        names.appendChild(make("li", fmt.plural(gone, "correction") + " more, not in the list above: further down in it, or deleted since."))
    more.appendChild(names)
    item.appendChild(more)
    return item


def _use(number, name):
    notices.clear("versions")
    if state.improving:
        return notices.error("versions", "An improvement is going. Stop it first.")
    return wire.send("improve.use", {"version": number}, "versions",
                     answered=lambda reply: notices.announce(name + " is on.") if reply["kind"] != "failed" else None)


# ---- by itself -------------------------------------------------------------------------------------------------------------------


def _acted(event=None):
    global _touched
    _touched = js.performance.now()
    if state.improving and _by_itself:
        _stop()


def _idle_seconds():
    told = js.document.body.getAttribute("data-idle-seconds")
    return float(told) if told else IDLE_SECONDS


def _look():
    enough = (improve_records.shown.get("fresh") or 0) >= (improve_records.shown.get("enough") or 8)
    if el("improve-idle").checked and enough and not state.busy() and not hindrance() and not js.document.querySelector("#write-stop:not([hidden]), #compare-stop:not([hidden])"):
        if js.performance.now() - _touched > 1000 * _idle_seconds():
            _press(by_itself=True)
    bridge.later(LOOK_MS, _look)


def _choose_idle(event=None):
    on_ = bool(el("improve-idle").checked)
    bridge.longRun.keepChoice("improve-idle", on_)
    if state.ready:
        wire.send("improve.idle", {"on": on_}, "improve")


# ---- the model changes -----------------------------------------------------------------------------------------------------------


def _changed():
    global _open
    now = ((state.model or {}).get("run_id"), bool(state.ready), bool(state.model))
    if now == _open:
        return
    _open = now
    text("improve-note", "")
    improve_gate.draw(None)
    show("improve-chart-box", False)
    text("improve-status", "Open: " + str(state.model.get("name") or "the model") + "." if state.model else "Open a model, and its corrections are listed here.")
    if state.ready and state.model:
        improve_records.request()
        wire.send("improve.history", {}, "versions")


def _ready(event):
    if el("improve-idle").checked:
        wire.send("improve.idle", {"on": True}, "improve")


def worker_lost():
    if state.improving:
        _enter(False)
        text("improve-status", "It was cut off. What was on before is still in use; press Improve to do it again.")


def start():
    on("improve-start", "click", _press)
    on("improve-stop", "click", _stop)
    on("improve-idle", "change", _choose_idle)
    el("improve-idle").checked = bool(bridge.longRun.keptChoice("improve-idle"))
    for kind, handler in (("improve.planned", _planned), ("improve.started", _started), ("improve.curated", _curated), ("improve.phase", _phase),
                          ("improve.step", _stepped), ("improve.gate", improve_gate.draw), ("improve.ended", _ended), ("improve.versions", _versions_told), ("ready", _ready)):
        wire.on(kind, handler)
    improve_records.watch(_ask_plan)
    improve_records.watch(_draw_versions)
    state.watch(_changed)
    for kind in ("pointerdown", "keydown", "wheel", "touchstart"):
        js.window.addEventListener(kind, _acted)
    _acted()
    _look()
    _draw_versions()
