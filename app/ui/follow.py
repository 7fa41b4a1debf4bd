"""What the worker tells about the run, shown on the Train view."""

import math

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import stats
import tabs
import train
import wire
from dom import el, text

_asked_to_persist = False


def _started(event):
    state.run = event
    state.model = {"run_id": event.get("run_id"), "name": event.get("name"), "step": event.get("step") or 0}
    text("run-title", event.get("name") or "Training")
    bridge.chart.extend(event.get("steps") or 1)
    bridge.chart.guessing((event.get("config") or {}).get("vocabulary") or 256)
    stats.progress(event.get("step") or 0, event.get("steps"))
    if state.phase in ("starting", "idle", "ended"):
        train.enter("running", "Training. The first steps take a moment…")
        if js.document.activeElement.tagName == "BODY":  # the button that had the focus is gone
            el("train-pause").focus()
        notices.announce("Training started.")


def _stepped(event):
    if state.step and event.get("steps") != state.step.get("steps"):
        bridge.chart.extend(event["steps"])
    state.step = event
    stats.step(event)
    if state.model:
        state.model["step"] = event.get("step")
    if state.phase == "starting":
        train.enter("running")
    if state.phase == "running":
        train.running_line()
        train.title()


def _paused(event):
    if state.phase == "pausing" or state.phase == "running":
        train.enter("paused", "Paused at step " + fmt.count(event.get("step")) + ". Write with it meanwhile, or resume.")
        stats.describe(state.step)
        notices.announce("Paused at step " + str(event.get("step")) + ".")


def _resumed(event):
    if state.phase in ("paused", "pausing"):
        train.enter("running")
        train.running_line()


def _saved(event):
    global _asked_to_persist
    if not _asked_to_persist:
        _asked_to_persist = True
        bridge.persist(lambda kept: None)
    if state.busy():
        el("train-progress").title = "Saved at step " + fmt.count(event.get("step"))


def _ended_line(reason, saved=True):
    step = fmt.plural((state.step or {}).get("step") or 0, "step")
    elapsed = (state.step or {}).get("elapsed_seconds")
    took = " in " + fmt.duration(elapsed) if fmt.finite(elapsed) else ""
    line = "Finished " if reason == "finished" else "Stopped after "
    return line + step + took + (". It is saved under Runs." if saved else ". It could not be saved: export it or free some space.")


def _stopped(event):
    if not state.busy():
        return  # what ended has been told already, and something else may have begun
    reason = event.get("reason")
    if not state.run and not state.step and reason not in ("nonfinite", "error"):  # stopped before it began: there is nothing to say of it
        return train.welcome()
    had_steps = state.step is not None
    loss = event.get("validation_loss_nats")
    stats.validation(loss)
    stats.nothing_left()
    if reason in ("finished", "stopped"):
        line = _ended_line(reason, event.get("saved", True))
    else:
        line = "The run has ended early."
        notices.error("train", event.get("message") or "The run ended with an error.")
    train.enter("ended" if had_steps or (state.run and state.run.get("step")) else "idle", line)
    stats.describe(state.step, loss)
    notices.announce(line)
    if js.document.activeElement.tagName == "BODY" and tabs.current == "train":
        el("train-write").focus()


def _opened(event):
    """A saved run is live: show its curve and numbers, ready to go on."""
    if state.busy() and state.phase != "starting":
        return  # an import finished while another run trains: it is in the list, the chart stays
    state.run = event
    stats.reset()
    bridge.showHistory()
    bridge.chart.guessing((event.get("config") or {}).get("vocabulary") or 256)
    state.model = {"run_id": event.get("run_id"), "name": event.get("name"), "step": event.get("step")}
    steps = max((event.get("training") or {}).get("steps") or 0, event.get("step") or 0)
    last = event.get("last")
    state.step = {"step": event.get("step") or 0, "steps": steps, "loss_nats": last[1] if last else None}
    if last:
        loss = last[1]
        stats.losses(loss, math.exp(min(loss, 700)) if fmt.finite(loss) else None, loss / math.log(2) if fmt.finite(loss) else None)
        text("stat-norm", fmt.significant(last[2]))
        text("stat-lr", fmt.significant(last[3]))
    if event.get("last_eval"):
        stats.validation(event["last_eval"][1])
    text("stat-step", fmt.count(event.get("step")) + " of " + fmt.count(steps))
    stats.progress(event.get("step") or 0, steps)
    text("run-title", event.get("name") or "Saved run")
    left = steps - (event.get("step") or 0)
    if left > 0:
        el("train-extend-steps").value = str(left)
    if state.phase != "starting":  # runs.continue opens, then starts
        train.at_rest(event)
    stats.describe(state.step)


def start():
    for kind, handler in (("started", _started), ("step", _stepped), ("eval", stats.evaluation), ("sample", stats.sample),
                          ("saved", _saved), ("paused", _paused), ("resumed", _resumed), ("stopped", _stopped), ("opened", _opened)):
        wire.on(kind, handler)
