"""Loading, the engine that runs and why, isolation, updates, and the end of the worker."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
import train
import wire
import write
from dom import document, el, empty, make, on, show, text

_update = None  # None | "waiting" | "outdated"
_isolation = {}


def _boot(event):
    bar = el("boot-bar")
    bar.value = max(0.02, min(1, event.get("fraction") or 0))
    state.boot_message = event.get("message") or "Loading the trainer"
    text("engine-name", "Loading…")
    text("engine-why", state.boot_message + "…")
    state.changed()


def _ready(event):
    state.ready = event
    show("boot-bar", False)
    el("engine").classList.add("ready")
    text("version", event.get("version") or "")
    engines = event.get("engines") or []
    chosen = next((engine for engine in engines if engine.get("chosen")), {})
    threads = event.get("threads") or 1
    text("engine-name", str(chosen.get("description") or chosen.get("name") or "CPU") + ", " + fmt.plural(threads, "thread"))
    text("engine-why", "Runs on: " + str(chosen.get("description") or chosen.get("name")) + ". " + (chosen.get("why") or ""))
    empty("engine-list")
    for engine in engines:
        if not engine.get("chosen"):
            el("engine-list").appendChild(make("li", str(engine.get("description") or engine.get("name")) + ": " + str(engine.get("why") or "")))
    storage = event.get("storage") or {}
    used = fmt.size(storage.get("bytes")) + " of saved runs here. " if storage.get("bytes") else ""
    text("engine-storage", used + ("The browser keeps them until you delete them." if storage.get("persistent") else
                                   "The browser may delete them when space runs short; export what matters."))
    bridge.ready()


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
    if not event.get("fatal"):
        return
    message = event.get("message") or "The trainer has stopped."
    state.ready = None
    el("engine").classList.remove("ready")
    text("engine-name", "Stopped")
    text("engine-why", message)
    show("boot-bar", False)
    train.worker_lost()
    write.worker_lost()
    notices.error("page", message)
    box = el("page-error")
    again = make("button", "Start the trainer again", type="button", id="restart")
    again.addEventListener("click", _restart)
    box.insertBefore(again, box.lastChild)


def _restart(event):
    notices.clear("page")
    show("boot-bar", True)
    el("boot-bar").value = 0.02
    text("engine-name", "Loading…")
    state.boot_message = "Loading the trainer"
    wire.forget()
    state.changed()
    bridge.restart()


def _close(event):
    """The panel closes when attention goes elsewhere, as menus do."""
    panel = el("engine")
    if panel.open and (event.type == "keydown" and event.key == "Escape" or event.type == "click" and not panel.contains(event.target)):
        panel.open = False
        if event.type == "keydown":
            panel.firstElementChild.focus()


def start():
    on(document, "click", _close)
    on(document, "keydown", _close)
    for kind, handler in (("boot", _boot), ("ready", _ready), ("failed", _failed), ("page.isolation", _isolated), ("page.reload_helps", _offer_reload),
                          ("page.update", _update_ready), ("page.outdated", _outdated), ("page.offline", _offline)):
        wire.on(kind, handler)
    wire.on("page.update_refused", lambda event: notices.notice("update", "Another tab is training. The update waits until it is done."))
    state.watch(_changed)
