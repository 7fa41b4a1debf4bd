"""The Train view's run: from the first press to the last step, as one small state machine (state.phase)."""

import js
from pyscript.js_modules import bridge

import corpus
import fmt
import notices
import recipe
import sizes
import state
import stats
import status_line
import tabs
import tokens
import wire
from dom import el, number, on, show, text

VISIBLE = {  # phase -> buttons shown
    "idle": ("start",),
    "queued": ("cancel",),
    "starting": ("stop",),
    "running": ("pause", "stop", "extend-box"),
    "pausing": ("resume", "stop", "extend-box"),
    "paused": ("resume", "stop", "write", "extend-box"),
    "stopping": (),
    "ended": ("write", "extend-box", "again"),
    "broken": ("again",),  # ended by a fault: no model is live, the last save is
}
WELCOME = "Train a small GPT, right here"

_rest = ("idle", "")  # phase and status line that a press which comes to nothing leads back to


def enter(phase, status=None):
    state.phase = phase
    js.document.body.dataset.phase = phase
    for name in ("start", "cancel", "resume", "pause", "stop", "write", "extend-box", "again"):
        show("train-" + name, name in VISIBLE[phase] and (name != "extend-box" or phase != "ended" or can_go_on(state.run)))
    offer_export()
    show("run-lead", phase in ("idle", "queued"))
    corpus.lock(state.busy())
    bridge.setBusy(state.busy())
    bridge.setQueued(phase == "queued")
    if status:
        status_line.put(status)
    status_line.title()
    state.changed()


def offer_export():
    """What is in memory can be taken out while its newest state is in no save."""
    show("train-export", state.unsaved and bool(state.model) and state.phase in ("running", "pausing", "paused", "ended"))


def _export(event):
    notices.clear("train")
    wire.send("runs.export_live", {}, "train")


def can_go_on(run):
    """Whether a run can be trained further: always one that was just trained; an opened one with its text and AdamW's state."""
    run = run or {}
    return run.get("kind") != "opened" or (run.get("corpus") or {}).get("available", True) and run.get("resumable", True)


def at_rest(opened):
    """An opened run as it lies: what can be done with it."""
    line = "Opened at step " + fmt.count(opened.get("step")) + ". "
    if can_go_on(opened):
        line += "Add steps to train it further, or write with it."
    else:
        line += "It can write. To train it further, choose its text first ({}).".format((opened.get("corpus") or {}).get("name") or "unknown")
    enter("ended", line + (" " + opened["note"] if opened.get("note") else ""))


# ---- what the person asks ------------------------------------------------------------------------------------------------------


def press(event=None):
    notices.clear("train")
    problem = tuning() or corpus.missing() or tokens.missing()
    if problem:
        return notices.error("train", problem)
    if not state.ready:
        if state.lost:
            import engine

            engine.restart()
        return _queue("Training starts as soon as the trainer has loaded.")
    problem = sizes.refusal()
    if problem:
        return notices.error("train", problem)
    if corpus.waiting():  # a text that turns out to be unusable must not be replaced by the one before
        return _queue("Training starts as soon as the text has been read.")
    if tokens.waiting():
        return _queue("Training starts as soon as the tokens are learned.")
    return _begin()


def tuning():
    """Why no run can begin while an adapter is tuned, or None."""
    return "A tune is going. Stop it first; its adapter is saved when it stops." if state.tuning else None


def _queue(sentence):
    _remember()
    enter("queued")
    status_line.idle()
    notices.announce(sentence)
    return el("train-cancel").focus()


def _remember():
    global _rest
    _rest = (state.phase, str(el("run-status").textContent))


def _back():
    """What was pressed comes to nothing: as it was before."""
    phase, line = _rest
    enter(phase, line)
    status_line.idle()


def _begin():
    try:
        fields = sizes.choice()
        fields["training"] = recipe.training()
    except ValueError as problem:
        if state.phase == "queued":
            _back()
        return notices.error("train", str(problem))
    return begin(fields)


def begin(fields):
    """A new run: of the size and settings on the page, or with the weights of a saved model."""
    bridge.resetFlag()
    _fresh()
    enter("starting", "Preparing the model…")
    wire.send("train.start", fields, "train", answered=_start_answered)
    return el("train-stop").focus()


def _fresh():
    state.run = state.step = state.saved = None
    state.unsaved = False
    notices.notice("run", "")
    stats.reset()
    bridge.chart.reset(recipe.steps() or 1)


def _start_answered(event):
    """A run that could not start leaves what there is: the opened run where that much worked, else the first view."""
    if event["kind"] != "failed":
        return
    if (state.run or {}).get("kind") == "opened":
        at_rest(state.run)
    else:
        welcome()


def welcome():
    """The view as it is before any run."""
    text("run-title", WELCOME)
    enter("idle")
    status_line.idle()


def _cancel(event):
    _back()
    el("train-start" if state.phase == "idle" else "train-again").focus()


def _pause(event):
    bridge.flag(1)
    wire.send("train.pause", {}, "train")
    enter("pausing", "Pausing after this step…")
    el("train-resume").focus()


def _resume(event):
    bridge.resetFlag()
    wire.send("train.resume", {}, "train")
    enter("running")
    status_line.running()
    el("train-pause").focus()


def _stop(event):
    bridge.flag(2)
    wire.send("train.stop", {}, "train")
    enter("stopping", "Stopping after this step, and saving…")


def _extend(event):
    more = number("train-extend-steps")
    if more is None or more < 1 or more != int(more):
        return notices.error("train", "How many steps to add needs a whole number above 0.")
    notices.clear("train")
    if tuning():
        return notices.error("train", tuning())
    was = state.phase
    if was == "ended":
        _remember()
        bridge.resetFlag()
        enter("starting", "Going on…")
    return wire.send("train.extend", {"steps": more}, "train", answered=lambda reply: _extend_failed(reply, was))


def _extend_failed(event, was):
    if event["kind"] == "failed" and was == "ended":
        _back()


def resume_run(run_id, steps, name):
    """Continue a saved run by so many steps (Runs view, and the offer on the Train view)."""
    if state.busy():
        return notices.error("runs" if tabs.current == "runs" else "train", "A run is going. Stop it first; it is saved when it stops.")
    tabs.go("train")
    notices.clear("train")
    show("resume-offer", False)
    bridge.resetFlag()
    _fresh()
    text("run-title", name)
    enter("starting", "Opening the saved run…")
    return wire.send("runs.continue", {"run_id": run_id, "steps": steps}, "train", answered=_start_answered)


def _ready(event):
    begin_queued()
    status_line.idle()


def begin_queued():
    """The press that waited goes on once the trainer is there and has read the text."""
    if state.phase != "queued" or not state.ready or corpus.waiting() or tokens.waiting():
        return
    problem = corpus.missing() or tokens.missing() or sizes.refusal()
    if problem:
        _back()
        notices.error("train", problem)
    elif not corpus.waiting() and not tokens.waiting():
        _begin()


def renamed(run_id, name):
    """The run in use has another name now."""
    if (state.model or {}).get("run_id") != run_id or state.model.get("name") == name:
        return
    state.model["name"] = name
    if (state.run or {}).get("run_id") == run_id:
        state.run["name"] = name
        text("run-title", name)
    state.changed()


def deleted(run_id):
    """A run is gone: nothing of it stays on this view, and nothing writes with it."""
    global _rest
    if (state.model or {}).get("run_id") != run_id:
        return
    state.model = None
    _rest = ("idle", "")
    _fresh()
    if state.phase in ("ended", "broken"):
        welcome()
    text("run-title", WELCOME)
    state.changed()


def worker_lost():
    """The worker is gone: nothing is running any more."""
    global _rest
    state.model = None
    state.lost = True
    _rest = ("idle", "")
    welcome()


def start():
    for name, handler in (("start", press), ("cancel", _cancel), ("pause", _pause), ("resume", _resume), ("stop", _stop),
                          ("extend", _extend), ("again", press), ("export", _export), ("write", lambda event: tabs.go("write", focus=True))):
        on("train-" + name, "click", handler)
    wire.on("ready", _ready)
    state.watch(status_line.idle)
    state.watch(begin_queued)
    if bridge.recallQueued():  # pressed before the reload that isolated the page
        enter("queued")
    status_line.idle()
