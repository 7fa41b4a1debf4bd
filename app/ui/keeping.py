"""What this device keeps, and how firmly: the saved runs against a browser short of space, and the version of the page before this one."""

from pyscript.js_modules import bridge

import notices
import state
import wire
from dom import el, on, show, text

ANSWERS = {True: "Asked to keep the saved runs for good, it said yes.",
           False: "Asked to keep the saved runs for good, it made no promise."}

_asked = False
_versions = {}


def ask():
    """Ask for lasting storage, once there is something of the person's time to keep. A browser may ask the person in turn."""
    global _asked
    if _asked:
        return
    _asked = True
    bridge.persist(_answered)


def _answered(kept):
    show("engine-kept", True)
    text("engine-kept", ANSWERS[bool(kept)])


def _draw():
    back, undone = bool(_versions.get("previous")), bool(_versions.get("undone"))
    show("version-box", back or undone)
    show("version-back", back)
    show("version-forget", back)
    show("version-forward", undone)
    if undone:
        text("version-note", "You went back to the version of this page before the last update. It stays until there is a newer one. Runs that the newer version saved may not open here; nothing of them is lost.")
    elif back:
        text("version-note", "If the last update broke something, you can have the version before it again. It is still on this device. Runs that this version saves may not open there.")


def _told(event):
    global _versions
    _versions = event
    _draw()


def _turn(back):
    if state.busy():
        notices.error("engine", "A run is in progress. Stop it first: changing the version loads the page anew.")
    else:
        notices.clear("engine")
        bridge.turnVersion(back)


def _forget(event):
    bridge.forgetVersion()
    notices.announce("The version before is deleted.")
    el("engine").querySelector("summary").focus()


def _refused(event):
    notices.error("engine", "A tab of this page is training. Stop it first: changing the version loads every tab anew.")


def start():
    wire.on("page.versions", _told)
    wire.on("page.turn_refused", _refused)
    on("version-back", "click", lambda event: _turn(True))
    on("version-forward", "click", lambda event: _turn(False))
    on("version-forget", "click", _forget)
    bridge.persisted(lambda kept: _answered(True) if kept else None)
