"""What the worker tells about the run, shown on the Train view."""

import math

import js
from pyscript.js_modules import bridge

import fmt
import keeping
import notices
import state
import stats
import status_line
import tabs
import train
import wire
from dom import el, text



def _model(event):
    """What Write would use."""
    return {"run_id": event.get("run_id"), "name": event.get("name"), "step": event.get("step") or 0,
            "tokenizer": event.get("tokenizer") or {"name": "bytes", "vocabulary": 256, "sha256": ""}, "parameters": event.get("parameters")}


def _unsaved(unsaved):
    state.unsaved = unsaved
    train.offer_export()


def _failed(event):
    if event.get("code") in ("E-STORE-QUOTA", "E-STORE", "E-STORE-CLOSED", "E-STORE-UNAVAILABLE") and state.model and event.get("reply_to") is None:
        _unsaved(True)  # a save in the middle of a run: what asked for something else says it beside that


def _started(event):
    state.run = event
    state.unsaved = event.get("run_id") is None
    state.model = _model(event)
    stats.run(event)
    text("run-title", event.get("name") or "Training")
    bridge.chart.extend(event.get("steps") or 1)
    bridge.chart.guessing((event.get("config") or {}).get("vocabulary") or 256)
    stats.progress(event.get("step") or 0, event.get("steps"))
    if (event.get("step") or 0) > 0 and (state.saved or {}).get("run_id") != event.get("run_id"):  # it begins at what was saved
        state.saved = {"run_id": event.get("run_id"), "step": event["step"]}
    if state.phase in ("starting", "idle", "ended", "broken"):
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
        status_line.running()
        status_line.title()


def _paused(event):
    if state.phase == "pausing" or state.phase == "running":
        train.enter("paused", "Paused at step " + fmt.count(event.get("step")) + ". Write with it meanwhile, or resume.")
        stats.describe(state.step)
        notices.announce("Paused at step " + str(event.get("step")) + ".")


def _resumed(event):
    if state.phase in ("paused", "pausing"):
        train.enter("running")
        status_line.running()


def _recovered(event):
    """A GPU's fault was survived: the run stands at its last save again, and what came after is trained once more."""
    step, steps = event.get("step") or 0, (state.step or state.run or {}).get("steps")
    before = state.step or {}
    loss, validation_loss = [each for each in bridge.chart.rewind(step)]
    state.step = {"step": step, "steps": steps, "loss_nats": loss, "elapsed_seconds": before.get("elapsed_seconds")}
    stats.back_to(step, steps, loss, validation_loss)
    if state.model:
        state.model["step"] = step
    again = event.get("lost_steps") or 0
    message = event.get("message") or "The GPU had a fault. The run goes on from its last save."
    if again > 0:
        message += " " + fmt.plural(again, "step is", "steps are") + " trained again."
    notices.notice("run", message, ("OK", _understood))
    if state.phase == "paused":
        status_line.put("Paused at step " + fmt.count(step) + ", the last save. Write with it meanwhile, or resume.")
    elif state.phase == "running":
        status_line.running()
        status_line.title()


def _understood(event):
    notices.notice("run", "")
    el("train-stop" if state.busy() else "train-again").focus()


def _saved(event):
    state.saved = event
    _unsaved(False)
    keeping.ask()
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
    if not state.run and not state.step and reason not in ("nonfinite", "spike", "error"):  # stopped before it began: there is nothing to say of it
        return train.welcome()
    had_steps = state.step is not None
    _unsaved(not event.get("saved", True) and had_steps)
    loss = event.get("validation_loss_nats")
    stats.validation(loss, _bits(state.run or {}, loss))
    stats.nothing_left()
    if reason in ("finished", "stopped"):
        line = _ended_line(reason, event.get("saved", True))
    else:
        line = "The run has ended early."
        notices.error("train", event.get("message") or "The run ended with an error.", way_out=_way_on() if reason == "error" else None)
    if reason == "error" and state.run:
        state.model = None  # whatever computed it is not to be trusted any more
        train.enter("broken", line)
    else:
        train.enter("ended" if had_steps or (state.run and state.run.get("step")) else "idle", line)
    stats.describe(state.step, loss)
    notices.announce(line)
    if js.document.activeElement.tagName == "BODY" and tabs.current == "train":
        (el("train-way-out") or el("train-write" if state.phase == "ended" else "train-again")).focus()


def _way_on():
    """The button beside a fault that ended the run: on from the last save, to where the run was to end. None without a save."""
    run, saved = state.run or {}, state.saved or {}
    left = ((state.step or run).get("steps") or 0) - (saved.get("step") or 0)
    if saved.get("run_id") is None or saved["run_id"] != run.get("run_id") or left <= 0:
        return None
    return ("Go on from step " + fmt.count(saved.get("step")), lambda: train.resume_run(run["run_id"], left, run.get("name") or "Saved run"))


def _bits(run, validation_loss_nats):
    """A validation loss as bits per byte; None where the run does not say how long its tokens are."""
    each = run.get("evaluated_bytes_per_token")
    return validation_loss_nats / each / math.log(2) if each and fmt.finite(validation_loss_nats) else None


def _opened(event):
    """A saved run is live: show its curve and numbers, ready to go on."""
    if state.busy() and state.phase != "starting":
        return  # an import finished while another run trains: it is in the list, the chart stays
    state.run = event
    state.unsaved = False
    stats.reset()
    stats.run(event)
    bridge.showHistory()
    bridge.chart.guessing((event.get("config") or {}).get("vocabulary") or 256)
    state.model = _model(event)
    steps = max((event.get("training") or {}).get("steps") or 0, event.get("step") or 0)
    last = event.get("last")
    state.step = {"step": event.get("step") or 0, "steps": steps, "loss_nats": last[1] if last else None}
    if last:
        stats.loss_alone(last[1])
        text("stat-norm", fmt.significant(last[2]))
        text("stat-lr", fmt.significant(last[3]))
    if event.get("last_eval"):
        stats.validation(event["last_eval"][1], _bits(event, event["last_eval"][1]))
    text("stat-step", fmt.count(event.get("step")) + " of " + fmt.count(steps))
    stats.progress(event.get("step") or 0, steps)
    text("run-title", event.get("name") or "Saved run")
    notices.notice("run", event.get("note") or "")
    left = steps - (event.get("step") or 0)
    if left > 0:
        el("train-extend-steps").value = str(left)
    if state.phase != "starting":  # runs.continue opens, then starts
        train.at_rest(event)
    stats.describe(state.step)


def start():
    for kind, handler in (("started", _started), ("step", _stepped), ("eval", stats.evaluation), ("sample", stats.sample),
                          ("saved", _saved), ("paused", _paused), ("resumed", _resumed), ("stopped", _stopped), ("opened", _opened),
                          ("recovered", _recovered), ("failed", _failed)):
        wire.on(kind, handler)
