"""Loading, isolation, updates, and the end of the worker."""

import js
from pyscript.js_modules import bridge

import compare
import device
import fmt
import improve
import memorise
import notices
import state
import train
import tune
import wire
import write
from dom import button, document, el, on, show, text

_update = None  # None | "waiting" | "outdated"
_isolation = {}
_boot_timer = 0
BOOT_PATIENCE_MS = 60000


def _watch_boot():
    """A start that makes no progress says so, whatever the reason; slow networks get a long time."""
    global _boot_timer
    bridge.cancel(_boot_timer)
    _boot_timer = bridge.later(BOOT_PATIENCE_MS, _slow) if not state.ready else 0


def _slow():
    if not state.ready:
        _stopped_short("The trainer has not got further for a minute (" + state.boot_message + "). The network may be slow, or a file missing.")


def _stopped_short(message):
    """A message for the whole page, with the way out beside it."""
    notices.error("page", message, lasting=True)
    box = el("page-error")
    box.insertBefore(button("Start the trainer again", restart, id="restart"), box.lastChild)


def _boot(event):
    _watch_boot()
    bar = el("boot-bar")
    bar.value = max(0.02, min(1, event.get("fraction") or 0))
    state.boot_message = event.get("message") or "Loading the trainer"
    text("engine-name", "Loading…")
    text("engine-why", state.boot_message + "…")
    state.changed()


def _ready(event):
    state.ready = event
    bridge.cancel(_boot_timer)
    if el("restart"):  # it was slow, not lost
        notices.clear("page")
    show("boot-bar", False)
    el("engine").classList.add("ready")
    text("version", event.get("version") or "")
    _storage(event)
    bridge.ready()


def _storage(event):
    """What is kept, and how long: `ready` and `runs` both tell."""
    storage = event.get("storage")
    if not storage:
        return
    if storage.get("persistent"):
        used = fmt.size(storage["bytes"]) + " of saved runs. " if storage.get("bytes") else ""
        text("engine-storage", used + "A browser short of space may delete what sites have stored: export what matters.")
    else:
        text("engine-storage", "This browser stores nothing for this page (perhaps a private window).")
        text("runs-lead", "This browser stores nothing for this page: runs last until the tab is closed. Export what you want to keep.")


def _isolated(event):
    global _isolation
    _isolation = event
    show("engine-isolation", not event.get("isolated"))
    if not event.get("isolated"):
        text("engine-isolation", "It runs on one core: " + str(event.get("why")) + ".")
        if event.get("reload_helps"):
            _offer_reload()


def _offer_reload(event=None):
    if _isolation.get("isolated"):
        return
    if state.busy():
        notices.notice("isolation", "Training runs on one core this time. After the next reload it can use all of them.")
    else:
        notices.notice("isolation", "This page runs on one core. Loaded once more, it can use all of them.",
                       ("Reload", lambda click: bridge.reload()), ("Not now", lambda click: notices.notice("isolation", "")))


def _watch_update():
    if _update == "waiting":
        if state.busy():
            notices.notice("update", "An update is ready. It waits until this run is done.")
        else:
            notices.notice("update", "An update is ready.", ("Use it now", lambda click: bridge.applyUpdate()))
    elif _update == "outdated":
        if state.busy():
            notices.notice("update", "Another tab has updated this page. Reload when this run is done.")
        else:
            notices.notice("update", "Another tab has updated this page.", ("Reload", lambda click: bridge.reload()))


_phase_seen = None


def _changed():
    """Notices depend on whether a run is going."""
    global _phase_seen
    if state.busy() == _phase_seen:
        return
    _phase_seen = state.busy()
    _watch_update()
    if _isolation and not _isolation.get("isolated") and el("isolation-notice").classList.contains("shown"):
        _offer_reload()


def _update_ready(event):
    global _update
    _update = "waiting"
    _watch_update()


def _outdated(event):
    global _update
    _update = "outdated"
    _watch_update()


def _offline(event):
    if event.get("complete"):
        text("offline-state", "Stored on this device: it works offline. Nothing is sent anywhere.")
    elif event.get("possible"):
        text("offline-state", "Not yet stored for use offline. Nothing is sent anywhere.")


def _failed(event):
    if not event.get("fatal") or state.lost:  # a second message from a lost trainer stands below the first, which says why
        return
    message = event.get("message") or "The trainer has stopped."
    state.ready = None
    el("engine").classList.remove("ready")
    device.lost()
    text("engine-name", "Stopped")
    text("engine-why", message)
    show("boot-bar", False)
    train.worker_lost()
    for view in (write, tune, compare, memorise, improve):
        view.worker_lost()
    bridge.cancel(_boot_timer)
    _stopped_short(message)


def restart(event=None):
    notices.clear("page")
    show("boot-bar", True)
    el("boot-bar").value = 0.02
    text("engine-name", "Loading…")
    state.boot_message = "Loading the trainer"
    wire.forget()
    state.ready = None
    state.lost = False
    state.changed()
    bridge.restart()
    _watch_boot()


def _close(event):
    """The panel closes when attention goes elsewhere, as menus do."""
    panel = el("engine")
    if panel.open and (event.type == "keydown" and event.key == "Escape" or event.type == "click" and not event.composedPath().includes(panel)):
        panel.open = False
        if event.type == "keydown":
            panel.firstElementChild.focus()


def start():
    on(document, "click", _close)
    on(document, "keydown", _close)
    for kind, handler in (("boot", _boot), ("ready", _ready), ("runs", _storage), ("failed", _failed), ("page.isolation", _isolated), ("page.reload_helps", _offer_reload),
                          ("page.update", _update_ready), ("page.outdated", _outdated), ("page.offline", _offline)):
        wire.on(kind, handler)
    wire.on("page.update_refused", lambda event: notices.notice("update", "Another tab is training. The update waits until it is done."))
    state.watch(_changed)
    show("keep-awake-box", hasattr(js.navigator, "wakeLock"))
    on("keep-awake", "change", lambda event: bridge.setKeepAwake(event.target.checked))
    _watch_boot()
