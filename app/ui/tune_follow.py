"""What the worker tells about a tune, shown on the Tune view."""

import math

from pyscript.js_modules import bridge

import fmt
import notices
import state
import tune
import wire
from dom import el, show, text

LOSS_NOTES = {
    "text": "How surprised the model is by the next token of the second text, in nats.",
    "pairs": "How surprised the model is by the answers, in nats; the prompts do not count.",
    "preferences": "How far it is from preferring the better answers: 0.69 is no preference, towards 0 it always prefers them.",
}
SAME_NATS = 0.02  # a change of the loss that nobody would see in the text


def _started(event):
    tune.run, tune.step = event, None
    show("tune-accuracy-box", event.get("how") == "preferences")
    for name in ("loss", "validation", "accuracy", "step", "speed", "eta"):
        text("tune-" + name, fmt.DASH)
    show("tune-chart-box", True)
    bridge.tuneChart.reset(event.get("steps") or 1)
    text("tune-loss-note", LOSS_NOTES.get(event.get("how"), ""))
    notes = event.get("notes") or []
    text("tune-status", "Tuning. The first steps take a moment…" + (" " + " ".join(notes) if notes else ""))
    if not state.tuning:  # another window of the same trainer, or after a reload of the page's Python
        tune.enter(True)
    notices.announce("Tuning started: " + fmt.plural(event.get("trainable") or 0, "trainable parameter") + ".")


def _stepped(event):
    tune.step = event
    text("tune-loss", fmt.fixed(event.get("loss_nats"), 3))
    text("tune-step", fmt.count(event.get("step")) + " of " + fmt.count(event.get("steps")))
    if fmt.finite(event.get("accuracy")):
        text("tune-accuracy", fmt.fixed(100 * event["accuracy"], 0) + " %")
    text("tune-speed", fmt.count(event.get("tokens_per_second")))
    text("tune-eta", fmt.duration(event.get("eta_seconds")))
    bar = el("tune-progress")
    bar.max = max(event.get("steps") or 1, 1)
    bar.value = event.get("step") or 0
    if state.tuning and not tune.stopping:
        line = "Step " + fmt.count(event.get("step")) + " of " + fmt.count(event.get("steps"))
        if fmt.finite(event.get("eta_seconds")):
            line += ", " + fmt.duration(event["eta_seconds"]) + " left"
        text("tune-status", line + ".")


def _evaluated(event):
    loss = event.get("validation_loss_nats")
    if fmt.finite(loss):
        text("tune-validation", fmt.fixed(loss, 3))
        bridge.tuneChart.validation(event.get("step"), loss)


def _stopped(event):
    if not state.tuning:
        return
    reason, done = event.get("reason"), fmt.plural(event.get("step") or 0, "step")
    text("tune-eta", fmt.DASH)
    if reason in ("finished", "stopped"):
        line = ("Finished " if reason == "finished" else "Stopped after ") + done
        if not event.get("adapter_id"):
            line += "."
        elif event.get("saved", True):
            line += ". The adapter “" + str(event.get("name")) + "” is saved, and on."
        else:
            line += ". The adapter is on, but could not be saved: export it or free some space."
    else:
        line = "The tune has ended early, after " + done + "."
        notices.error("tune", event.get("message") or "The tune ended with an error.")
    tune.enter(False, line)
    _forgetting(event.get("forgetting"))
    if tune.step:
        bridge.tuneChart.describe("Loss " + fmt.fixed(tune.step.get("loss_nats"), 2) + " after " + done + " of tuning.")
    notices.announce(line)


def _forgetting(measured):
    """The base text's loss before and after, in words and figures."""
    show("forgetting", bool(measured))
    if not measured:
        return
    if measured.get("note"):
        text("forgetting-verdict", measured["note"])
    else:
        text("forgetting-verdict", verdict(measured["before_nats"], measured["after_nats"], measured.get("text") or "its first text"))
    for when in ("before", "after"):
        text("forgetting-" + when, fmt.fixed(measured.get(when + "_nats"), 3))
        text("forgetting-" + when + "-bits", fmt.fixed(measured.get(when + "_bits_per_byte"), 3))


def verdict(before, after, name):
    """One sentence on what a change from `before` to `after` nats means."""
    if not fmt.finite(before) or not fmt.finite(after):
        return "It could not be measured on " + str(name) + "."
    change = after - before
    if change < -SAME_NATS:
        return "It forgot nothing: on " + str(name) + " it even does a little better than before."
    if change < SAME_NATS:
        return "It forgot next to nothing: on " + str(name) + " it does as well as before."
    among = math.exp(min(change, 20))
    much = "a little" if change < 0.1 else "something" if change < 0.4 else "a lot"
    line = "It forgot " + much + ": on " + str(name) + " it hesitates among " + fmt.significant(among, 3) + " times as many tokens as before."
    return line + (" A lower strength, fewer steps or a lower learning rate keep more." if change >= 0.1 else "")


def _saved(event):
    if state.tuning:
        el("tune-progress").title = "Saved at step " + fmt.count(event.get("step"))


def _recovered(event):
    notices.announce(event.get("message") or "The GPU had a fault. The tune goes on from its last save.")
    text("tune-status", event.get("message") or "The tune goes on from its last save.")


def start():
    for kind, handler in (("tune.started", _started), ("tune.step", _stepped), ("tune.eval", _evaluated), ("tune.stopped", _stopped),
                          ("tune.saved", _saved), ("tune.recovered", _recovered)):
        wire.on(kind, handler)
