"""The line under the run's title, and the tab's title: what a run does, or what a press of Train would do."""

import js

import corpus
import fmt
import sizes
import state
from dom import el, text

_before = None  # the line as it was before something else took its place for a while


def title():
    """The tab's title tells how far the run is, for those who look at another tab meanwhile."""
    state_ = {"paused": "Paused", "ended": "Done", "broken": "Ended early"}.get(state.phase)
    if state.phase == "running" and state.step and state.step.get("steps"):
        state_ = str(state.step["step"] * 100 // state.step["steps"]) + " %"
    js.document.title = (state_ + " · " if state_ else "") + "posttrainllm: train a small GPT in this tab"


def idle():
    """What a press of Train would do, or what it waits for."""
    if state.phase == "queued":
        if state.ready:
            return text("run-status", "Training starts by itself as soon as the text has been read…")
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
        line += ", " + fmt.about(plan["seconds_estimate"])
    return text("run-status", line + ".")


def put(line):
    """What the run does now; whatever stood there meanwhile is over."""
    global _before
    _before = None
    text("run-status", line)


def meanwhile(line):
    """Something else takes the status line until as_before()."""
    global _before
    if _before is None:
        _before = str(el("run-status").textContent)
    text("run-status", line)


def as_before():
    global _before
    if _before is not None:
        line, _before = _before, None
        text("run-status", line)
        if state.phase == "running":
            running()


def running():
    if _before is not None:
        return None
    if not state.step:
        return text("run-status", "Training…")
    line = "Step " + fmt.count(state.step["step"]) + " of " + fmt.count(state.step["steps"])
    if fmt.finite(state.step.get("eta_seconds")):
        line += ", " + fmt.duration(state.step["eta_seconds"]) + " left"
    return text("run-status", line + ".")
