"""The Tune view's run: from the press to the end of a tune."""

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import tune_data
import tune_settings
import wire
from dom import el, on, show, text, value

run = None  # the last tune.started
step = None  # the last tune.step
stopping = False  # Stop was pressed
_open = ""  # what rest() said last


def enter(going, status=None):
    """A tune begins or ends."""
    global stopping
    had_focus = str(js.document.activeElement.id)
    state.tuning, stopping = going, False
    show("tune-start", not going)
    show("tune-stop", going)
    show("tune-progress", going)
    tune_data.lock(going)
    bridge.setBusy(state.busy())
    if status:
        rest(quietly=True)
        text("tune-status", status)
    if had_focus in ("tune-start", "tune-stop"):
        el("tune-stop" if going else "tune-start").focus()
    state.changed()


def hindrance():
    """Why nothing can be tuned now, or None."""
    if state.phase in ("starting", "running", "pausing", "paused", "stopping"):
        return "A run is being trained. Stop it first; it is saved when it stops."
    if state.improving:
        return "An improvement is going. Stop it first; what was on is then on again."
    if not state.ready:
        return "The trainer is still loading: one moment."
    if not state.model:
        return "There is no model yet. Press Train, or open a saved run under Runs."
    return None


def press(event=None):
    global step
    notices.clear("tune")
    problem = hindrance()
    if problem:
        return notices.error("tune", problem)
    try:
        fields, file, area = tune_data.request()
        fields["adapter"] = tune_settings.adapter()
        fields["training"] = tune_settings.training()
    except ValueError as problem:
        return notices.error("tune", str(problem))
    name = str(value("tune-name")).strip()
    if name:
        fields["name"] = name
    bridge.resetFlag()
    step = None
    show("forgetting", False)
    bar = el("tune-progress")
    bar.removeAttribute("value")  # how far is not known while the base is measured
    enter(True, "Preparing: the model is measured before it changes…")
    wire.send("tune.start", fields, "tune", file=file, area=area, answered=_answered)
    return el("tune-stop").focus()


def _answered(event):
    if event["kind"] == "failed":
        enter(False, "Nothing was tuned.")


def _stop(event):
    global stopping
    if stopping:
        return
    stopping = True
    bridge.flag(2)
    wire.send("tune.stop", {}, "tune")
    text("tune-status", "Stopping after this step, and saving…")


def rest(quietly=False):
    """The status line while nothing is tuned: what is open. What stands there instead stays until that changes."""
    global _open
    if state.tuning:
        return
    model = state.model
    if model:
        line = "Open: " + str(model.get("name") or "the model") + ", at step " + fmt.count(model.get("step"))
        if state.adapter:
            line += ", with the adapter “" + str(state.adapter["name"]) + "”"
        line += "."
    else:
        line = "Train a model, or open a saved run, and it can be tuned here."
    if line != _open and not quietly:
        text("tune-status", line)
    _open = line


def worker_lost():
    if state.tuning:
        enter(False)
    state.adapter = None
    rest()


def start():
    on("tune-start", "click", press)
    on("tune-stop", "click", _stop)
    state.watch(rest)
