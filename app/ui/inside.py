"""The Inside view: a text, a position in it, and which of its views is shown. Each view is a module of its own (inside_*.py)."""

import json

from pyscript.js_modules import bridge

import fmt
import inside_making
import notices
import state
import tabs
import wire
from dom import chosen, on, show, text, value
from token_tip import visible

_views = {}  # name -> (fields(), draw(event), moved())
position = None  # in the text; None is its last token
labels = []  # the text's tokens as shown
_latest = 0
_timer = None
_seen = None  # (run, adapter) of what is shown
_due = True  # something has changed since


def add(name, fields, draw, moved=None, result=None):
    """A view: what its request takes beside the text, how an answer is shown, what to do when another position is chosen (None: ask
    anew), and the id of what goes away without an answer (None: all of it), so that its own controls stay. fields None: it asks
    nothing of the text; draw(None) shows what it has."""
    _views[name] = (fields, draw, moved, result)


def at():
    """The chosen position."""
    return len(labels) - 1 if position is None else min(position, len(labels) - 1)


def token(index):
    """A token as it is written in a sentence."""
    return "“" + visible(labels[index]) + "”"


def elsewhere(event, before):
    """A sentence where something was learned from another text than the model was: `before` is how it begins."""
    if event.get("own_text", True):
        return ""
    return " " + before + " “" + str(event["text"]) + "”, the text under Text: the one that the model learned from is not here."


def look(event=None):
    """Ask for the view that is shown."""
    global _due
    bridge.cancel(_timer)
    notices.clear("inside")
    if not state.model:
        text("inside-status", "Train a model, or open a saved run, and you can look inside it here.")
        if event is not None:
            notices.error("inside", "There is no model yet. Press Train, or open a saved run under Runs." if state.ready else "The trainer is still loading: one moment.")
        return
    name = chosen("inside-view")
    if _views[name][0] is None:
        return _own(name)
    if not value("inside-text"):
        _await(0)
        _nothing()
        notices.error("inside", "Type a text to look at first.")
        return
    _due = False
    text("inside-status", "Looking…")
    _await(wire.send("inside." + name, _views[name][0](), "inside", area="inside-text", answered=_answered))
    if name == "change":
        inside_making.asked()


def _await(request):
    """Only the answer to this one is shown. A map that was in the making before it is stopped."""
    global _latest
    inside_making.done()
    _latest = request
    bridge.inside.expect(request)


def _answered(event):
    global labels, _seen
    if event["reply_to"] != _latest:
        return
    if event["kind"] == "inside.progress":
        for other in _views:
            show("inside-" + other, other == "change")
        return inside_making.draw(event)
    inside_making.done(False)
    if event["kind"] == "inside.stopped":
        text("inside-status", "Stopped: there is no map.")
        return _nothing()
    if event["kind"] == "failed":
        text("inside-status", "Nothing could be shown.")
        return _nothing()
    name = event["kind"][len("inside."):]
    labels = event["labels"]
    _seen = _model()
    step = event.get("step")
    line = str((state.model or {}).get("name") or "The model") + (", at step " + fmt.count(step) if step is not None else "")
    line += ": " + fmt.plural(event["layers"], "layer") + ", " + fmt.plural(event["heads"], "head") + " in each, " + fmt.plural(len(labels), "token") + " of text."
    text("inside-status", line)
    show("inside-strip-box", True)
    bridge.inside.strip("inside-strip", json.dumps(labels), at(), move)
    for other in _views:
        show("inside-" + other, other == name)
    if _views[name][3]:
        show(_views[name][3], True)
    _views[name][1](event)


def _own(name):
    """Show a view that the text is nothing to."""
    global _due, _seen
    _await(0)
    _due, _seen = False, _model()
    text("inside-status", str(state.model.get("name") or "The model"))
    show("inside-strip-box", False)
    for other in _views:
        show("inside-" + other, other == name)
    _views[name][1](None)


def _nothing():
    """There is no answer to show."""
    show("inside-strip-box", False)
    for name in _views:
        result = _views[name][3]
        show("inside-" + name, bool(result or _views[name][0] is None) and bool(state.model) and name == chosen("inside-view"))
        if result:
            show(result, False)


def move(index):
    """Choose another position."""
    global position
    position = None if index == len(labels) - 1 else int(index)
    bridge.inside.mark("inside-strip", at())
    moved = _views[chosen("inside-view")][2]
    if moved:
        moved()
    else:
        _soon(150)


def _soon(milliseconds):
    global _timer
    bridge.cancel(_timer)
    _timer = bridge.later(milliseconds, look)


def _typed(event):
    global position, _due
    position, _due = None, True
    if state.model:
        _soon(400)


def _model():
    model, adapter = state.model or {}, state.adapter or {}
    return (model.get("run_id"), model.get("name"), adapter.get("adapter_id"), adapter.get("strength")) if state.model else None


def _changed():
    """Another model is open: what is shown is not its own. A run that goes on is looked at anew when the person asks."""
    global _seen, _due
    if state.lost:
        inside_making.done(False)
    if _model() != _seen:
        _seen, _due = _model(), True
        if _seen is None:
            _nothing()
        _shown()


def _shown():
    if tabs.current == "inside" and _due:
        look()


def start():
    on("inside-look", "click", look)
    inside_making.start()
    on("inside-text", "input", _typed)
    for name in _views:
        on("inside-view-" + name, "change", lambda event: look())
    state.watch(_changed)
    tabs.watch(_shown)
