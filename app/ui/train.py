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
import tabs
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
}


def enter(phase, status=None):
    state.phase = phase
    js.document.body.dataset.phase = phase
    for name in ("start", "cancel", "resume", "pause", "stop", "write", "extend-box", "again"):
        show("train-" + name, name in VISIBLE[phase])
    show("run-lead", phase in ("idle", "queued"))
    corpus.lock(state.busy())
    bridge.setBusy(state.busy())
    if status:
        text("run-status", status)
    title()
    state.changed()


def title():
    """The tab's title tells how far the run is, for those who look at another tab meanwhile."""
    state_ = {"paused": "Paused", "ended": "Done"}.get(state.phase)
    if state.phase == "running" and state.step and state.step.get("steps"):
        state_ = str(state.step["step"] * 100 // state.step["steps"]) + " %"
    js.document.title = (state_ + " · " if state_ else "") + "posttrainllm: train a small GPT in this tab"


def idle_status():
    """What a press of Train would do, or what it waits for."""
    if state.phase == "queued":
        return text("run-status", "Training starts by itself as soon as the trainer has loaded. " + state.boot_message + "…")
    if state.phase != "idle":
        return None
    if state.lost:
        return text("run-status", "The trainer has stopped. Train starts it again; what was saved is under Runs.")
    what = (state.corpus or {}).get("name") or {"bundled": "Shakespeare", "paste": "your text", "file": "your file"}[corpus.chosen("corpus")]
    if not state.ready:
        return text("run-status", state.boot_message + "… You can press Train already.")
    plan = state.plan or {}
    line = "Ready: " + str(what) + ", " + sizes.label() + " size"
    if plan.get("parameters"):
        line += ", " + fmt.count(plan["parameters"]) + " parameters"
    if fmt.finite(plan.get("seconds_estimate")):
        line += ", about " + fmt.duration(plan["seconds_estimate"])
    return text("run-status", line + ".")


def running_line():
    if not state.step:
        return text("run-status", "Training…")
    line = "Step " + fmt.count(state.step["step"]) + " of " + fmt.count(state.step["steps"])
    if fmt.finite(state.step.get("eta_seconds")):
        line += ", " + fmt.duration(state.step["eta_seconds"]) + " left"
    return text("run-status", line + ".")


def ended_line(reason):
    step = fmt.plural((state.step or {}).get("step") or 0, "step")
    elapsed = (state.step or {}).get("elapsed_seconds")
    took = " in " + fmt.duration(elapsed) if fmt.finite(elapsed) else ""
    if reason == "finished":
        return "Finished " + step + took + ". It is saved under Runs."
    return "Stopped after " + step + took + ". It is saved under Runs."


# ---- what the person asks ------------------------------------------------------------------------------------------------------


def press(event=None):
    notices.clear("train")
    problem = corpus.missing()
    if problem:
        return notices.error("train", problem)
    if not state.ready:
        if state.lost:
            import engine

            engine.restart()
        bridge.setQueued(True)
        enter("queued")
        idle_status()
        notices.announce("Training starts as soon as the trainer has loaded.")
        return el("train-cancel").focus()
    problem = sizes.refusal()
    if problem:
        return notices.error("train", problem)
    return _begin()


def _begin():
    bridge.setQueued(False)
    try:
        fields = sizes.choice()
        fields["training"] = recipe.training()
    except ValueError as problem:
        if state.phase == "queued":
            enter("idle")
        return notices.error("train", str(problem))
    bridge.resetFlag()
    _fresh()
    enter("starting", "Preparing the model…")
    wire.send("train.start", fields, "train", answered=_start_answered)
    return el("train-stop").focus()


def _fresh():
    state.run = state.step = None
    stats.reset()
    bridge.chart.reset(recipe.steps() or 1)


def _start_answered(event):
    if event["kind"] == "failed":
        enter("idle")
        idle_status()
        text("run-title", "Train a small GPT, right here")


def _cancel(event):
    bridge.setQueued(False)
    enter("idle")
    idle_status()
    el("train-start").focus()


def _pause(event):
    bridge.flag(1)
    wire.send("train.pause", {}, "train")
    enter("pausing", "Pausing after this step…")
    el("train-resume").focus()


def _resume(event):
    bridge.resetFlag()
    wire.send("train.resume", {}, "train")
    enter("running")
    running_line()
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
    was = state.phase
    if was == "ended":
        bridge.resetFlag()
        enter("starting", "Going on…")
    return wire.send("train.extend", {"steps": more}, "train", answered=lambda reply: _extend_failed(reply, was))


def _extend_failed(event, was):
    if event["kind"] == "failed" and was == "ended":
        enter("ended", ended_line("stopped"))


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
    if state.phase == "queued":
        begin_queued()
    idle_status()


def begin_queued():
    """The press that waited: the text was asked for just before, and the worker takes requests in order."""
    problem = corpus.missing() or sizes.refusal()
    if problem:
        bridge.setQueued(False)
        enter("idle")
        notices.error("train", problem)
    else:
        _begin()


def worker_lost():
    """The worker is gone: nothing is running any more."""
    state.model = None
    state.lost = True
    text("run-title", "Train a small GPT, right here")
    enter("idle")


def start():
    for name, handler in (("start", press), ("cancel", _cancel), ("pause", _pause), ("resume", _resume), ("stop", _stop),
                          ("extend", _extend), ("again", press), ("write", lambda event: tabs.go("write", focus=True))):
        on("train-" + name, "click", handler)
    wire.on("ready", _ready)
    state.watch(idle_status)
    if bridge.recallQueued():  # pressed before the reload that isolated the page
        enter("queued")
    idle_status()
