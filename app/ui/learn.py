"""Learn, as far as the page loads it at once: the rest (lesson/, instruments/) is fetched when the view is first shown.

A lesson's address is #learn/NAME; what follows a question mark sets the Train view up (preset, steps, learning rate, text), for a
teacher's link. It carries settings only.
"""

import js
from pyscript.js_modules import bridge

import notices
import tabs

PARTS = ("lesson_kept", "lesson_draw", "lesson_words", "lesson_question", "lesson_cell", "lesson_nodes", "lesson_settings", "lesson_page")
_state = {"asked": False, "ready": False}


def module(path, name, done):
    """Fetch a module of the page's Python and import it once: done(module), or done(None) where it does not come."""
    import sys

    if name in sys.modules:
        done(sys.modules[name])
        return

    def came(text):
        if text is None:
            done(None)
            return
        with open(name + ".py", "w") as file:
            file.write(str(text))
        try:
            done(__import__(name))
        except Exception as problem:  # in a callback from JavaScript it would vanish
            js.console.error(path + ": " + repr(problem))
            notices.error("learn", "A part of this lesson could not be shown. The rest of it works.")

    bridge.learn.get(path, came)


def _load(at=0):
    if at == len(PARTS):
        _state["ready"] = True
        _show()
        return

    def came(found):
        if found is None:
            _state["asked"] = False
            notices.error("learn", "The lessons could not be fetched: the network cannot be reached. What you looked at before works offline.")
        else:
            _load(at + 1)

    module("lesson/" + PARTS[at] + ".py", PARTS[at], came)


def _show():
    if tabs.current != "learn":
        return
    if _state["ready"]:
        __import__("lesson_page").show(str(js.location.hash))
    elif not _state["asked"]:
        _state["asked"] = True
        _load()


def start():
    tabs.watch(_show)
    js.window.addEventListener("hashchange", lambda event: _show())
    if tabs.current == "learn":
        _show()
