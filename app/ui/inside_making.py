"""Inside, What if: a map in the making, how far it is, and its Stop."""

import js

import fmt
import wire
from dom import el, on, show, text

_going = False  # told of
_asked = False  # and not answered


def asked():
    """A map is asked for: it is in the making from now on, told of or not."""
    global _asked
    _asked = True


def draw(event):
    """An inside.progress."""
    global _going
    if not _going:
        show("change-result", False)  # what is there is of other settings
        for name in _SHOWN:
            show(name, True)
    _going = True
    bar = el("change-progress")
    bar.max = event["total"]
    bar.value = event["done"]
    text("change-progress-says", fmt.count(event["done"]) + " of " + fmt.plural(event["total"], "run") + " made")


def done(unwanted=True):
    """It is made; or nobody waits for it any more, and the trainer stops it."""
    global _asked, _going
    if _asked and unwanted:
        wire.send("inside.stop", {}, "inside")
    _asked = False
    if not _going:
        return
    _going = False
    had_focus = str(js.document.activeElement.id) == "change-stop"
    for name in _SHOWN:
        show(name, False)
    if had_focus:
        el("change-what").focus()


_SHOWN = ("change-stop", "change-progress", "change-progress-says")


def start():
    on("change-stop", "click", lambda event: wire.send("inside.stop", {}, "inside"))
