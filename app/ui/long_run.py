"""Runs of hours: a notification at the end, heat and power, the screen, and what happened while the tab was hidden."""

import json

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import tabs
import train
import wire
from dom import el, on, show, text

SLOW = 0.8  # of the best speed of the run, before anything is said of heat
LOW = 0.2  # of the battery
DENIED = "This browser does not let this page notify you. Its settings for this site can change that."

_pressure = "nominal"
_best = 0.0  # tokens a second of the run that goes, as good as it was
_slow_since = 0  # events in a row that were slow
_warm = False
_low = False
_back = None  # the run that was going when the browser discarded the page


# ---- a word at the end ----------------------------------------------------------------------------------------------------------


def _notify_state(permission):
    """The box and what is said below it."""
    box = el("notify")
    if permission == "missing":
        show("notify-box", False)
        return _note("notify", "This browser cannot show notifications. The tab’s title says when a run is done.")
    show("notify-box", True)
    box.checked = permission == "granted" and bridge.longRun.keptChoice("notify")
    return _note("notify", DENIED if permission == "denied" else "")


def _note(name, words):
    text(name + "-note", words)
    show(name + "-note", bool(words))


def _notify_changed(event):
    if not event.target.checked:
        return bridge.longRun.keepChoice("notify", False)
    bridge.longRun.keepChoice("notify", True)
    permission = str(bridge.longRun.notifying())
    if permission == "default":
        return bridge.longRun.askToNotify(_asked)  # in the person's own click, as browsers want it
    return _notify_state(permission)


def _asked(permission):
    permission = str(permission)
    _notify_state(permission)
    if permission == "default":
        _note("notify", "The browser’s question was not answered, so nothing will be shown.")


def _ended(event):
    """A run or a tune has ended: said outside the page where the person asked for it and looks elsewhere."""
    global _best
    _best = 0.0
    bridge.longRun.remember(None)
    _heat()
    if not el("notify").checked or not bridge.longRun.elsewhere() or str(bridge.longRun.notifying()) != "granted":
        return
    tune = event["kind"] == "tune.stopped"
    name = str(event.get("name") or (state.run or {}).get("name") or ("The tune" if tune else "The run"))
    reason, steps = event.get("reason"), fmt.plural(event.get("step") or 0, "step")
    loss, validation = (state.step or {}).get("loss_nats"), event.get("validation_loss_nats")
    figure = validation if fmt.finite(validation) else None if tune else loss
    said = ", loss " + fmt.fixed(figure, 3) if fmt.finite(figure) else ""
    if reason in ("finished", "stopped"):
        title, body = ("Finished: " if reason == "finished" else "Stopped: ") + name + said, steps + ". It is saved under Runs."
        if not event.get("saved", True):
            body = steps + ". It could not be saved: open the page."
    else:
        title, body = "Ended early: " + name + said, event.get("message") or "It ended with an error after " + steps + "."
    bridge.longRun.notify(title, body, _notified)


def _notified(shown):
    if not shown:
        _note("notify", "The browser did not show the last notification.")


# ---- heat and power -------------------------------------------------------------------------------------------------------------


def _stepped(event):
    """A busy processor is what training is; that it got slower besides is what is worth a word."""
    global _best, _slow_since
    rate = event.get("tokens_per_second")
    if not fmt.finite(rate) or not rate:
        return
    _best = max(_best, rate)
    _slow_since = _slow_since + 1 if rate < SLOW * _best else 0
    _heat(rate)


def _heat(rate=0.0):
    global _warm
    warm = state.busy() and _best > 0 and _pressure in ("serious", "critical") and (_slow_since >= 10 or _warm and _slow_since > 0)
    if warm and not _warm:
        notices.notice("heat", "This computer is warm or has much else to do: training is slower, at " + fmt.count(100 * rate / _best)
                       + " % of this run’s best speed. Give it air, plug it in, close other programs, or pause for a while.",
                       ("OK", lambda click: notices.notice("heat", "")))
    elif _warm and not warm:
        notices.notice("heat", "")
    _warm = warm


def _another_engine(event):
    """Its speed is another matter."""
    global _best, _slow_since
    _best, _slow_since = 0.0, 0
    _heat()


def _pressed(event):
    global _pressure
    _pressure = event.get("state") or "nominal"
    _heat()


def _battery(event):
    global _low
    level = event.get("level")
    draining = not event.get("charging") and fmt.finite(level)
    _note("power", "On battery, at " + fmt.count(100 * level) + " %. Training uses much power." if draining else "")
    _low = bool(draining and level < LOW)
    _power()


def _power():
    if _low and state.busy():
        notices.notice("battery", "The battery is nearly empty: plug this computer in. The run is saved every minute, and goes on from there.")
    else:
        notices.notice("battery", "")


# ---- the screen -----------------------------------------------------------------------------------------------------------------


def _awake(event):
    _note("keep-awake", "The browser did not keep the screen on, perhaps to save the battery." if event.get("refused") else "")


# ---- hidden tabs ----------------------------------------------------------------------------------------------------------------


def _going(event):
    """Kept by the tab, for the case that the browser discards it."""
    if event.get("run_id"):
        kept = {"run_id": event["run_id"], "name": event.get("name"), "steps": event.get("steps")}
        bridge.longRun.remember(json.dumps(kept))


def _longer(event):
    run, steps = state.run or {}, event.get("steps")
    if state.phase == "running" and run.get("run_id") and steps and run.get("kept_steps") != steps:
        run["kept_steps"] = steps
        _going({"run_id": run["run_id"], "name": run.get("name"), "steps": steps})


def _resumed(event):
    seconds = event.get("seconds") or 0
    if not state.busy() or seconds < 1:
        return
    where = " at step " + fmt.count((state.step or {}).get("step")) if (state.step or {}).get("step") else ""
    notices.notice("back", "The browser had halted this tab for " + fmt.duration(seconds) + " while it was hidden. Nothing is lost: training goes on exactly where it was"
                   + where + ".", ("OK", lambda click: notices.notice("back", "")))


def _discarded(event):
    global _back
    _back = event.get("going")
    if _back:
        notices.notice("back", "The browser had closed this tab to save memory while “" + str(_back.get("name")) + "” was training. It goes on from its last save…")


def _go_back(event):
    """Once the trainer has told of the runs: on from the save that was made when the tab was hidden."""
    global _back
    was, _back = _back, None
    if not was:
        return
    for run in event.get("runs") or []:
        if run["run_id"] == was.get("run_id") and run.get("resumable") and not run.get("corrupt"):
            left = (was.get("steps") or 0) - (run.get("step") or 0)
            said = "The browser had closed this tab to save memory while “" + str(run.get("name")) + "” was training. "
            if left > 0:
                notices.notice("back", said + "It goes on exactly from step " + fmt.count(run.get("step")) + ", where it was saved when the tab was hidden.",
                               ("OK", lambda click: notices.notice("back", "")))
                return train.resume_run(run["run_id"], left, run.get("name"))
            return notices.notice("back", said + "It was done by then, and is under Runs.", ("Show it", lambda click: tabs.go("runs", focus=True)))
    return notices.notice("back", "The browser had closed this tab to save memory before “" + str(was.get("name")) + "” was saved, so it is lost. A longer run is saved every minute.",
                          ("OK", lambda click: notices.notice("back", "")))


def start():
    for kind, handler in (("stopped", _ended), ("tune.stopped", _ended), ("started", _going), ("step", _longer), ("step", _stepped), ("ready", _go_back), ("engine", _another_engine),
                          ("page.pressure", _pressed), ("page.battery", _battery), ("page.awake", _awake), ("page.resumed", _resumed), ("page.discarded", _discarded)):
        wire.on(kind, handler)
    on("notify", "change", _notify_changed)
    _notify_state(str(bridge.longRun.notifying()))
    if not hasattr(js.navigator, "wakeLock"):
        _note("keep-awake", "This browser cannot keep the screen on: set the computer itself not to sleep for a long run.")
    bridge.longRun.watchBattery()
    state.watch(_power)
