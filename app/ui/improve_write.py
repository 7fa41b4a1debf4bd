"""Under a written text: accept, edit, try again or correct it. Each is kept as a record that the model can learn from."""

import notices
import wire
import write
from dom import el, on, show, text, value

SAID = {"accept": "Accepted.", "edit": "Your edit is kept.", "retry": "Refused.", "correct": "Your answer is kept."}

_mode = None  # "edit" or "correct" while the box is open
_judged = False


def _offered():
    return str(el("write-text").textContent)


def draw():
    """Shown once a text stands there, and nothing writes."""
    ready = write.finished() and bool(_offered().strip())
    show("verdict", ready)
    if not ready:
        _close()
    for name in ("accept", "retry"):
        el("verdict-" + name).disabled = _judged and name == "accept"


def fresh():
    """Another text begins."""
    global _judged
    _judged = False
    text("verdict-said", "")
    notices.clear("verdict")
    _close()
    show("verdict", False)


def _close(focus=None):
    global _mode
    _mode = None
    show("verdict-box", False)
    if focus:
        el(focus).focus()


def _open(mode):
    global _mode
    _mode = mode
    text("verdict-text-name", "The text as it should be" if mode == "edit" else "Your own answer")
    el("verdict-text").value = _offered().strip("\n") if mode == "edit" else ""
    show("verdict-box", True)
    el("verdict-text").focus()


def _send(what, kept=None, then=None):
    notices.clear("verdict")
    prompt = str(el("write-echo").textContent)
    fields = {"what": what, "prompt": prompt, "offered": _offered()}
    if kept is not None:
        fields["kept"] = kept

    def answered(event):
        global _judged
        if event["kind"] == "failed":
            return
        _judged = True
        line = SAID[what] + ("" if event.get("saved", True) else " This run is not saved, so it is gone when the tab closes: export it under Tune.")
        text("verdict-said", line)
        _close("verdict-" + what if _mode else None)
        draw()
        if then:
            then()

    wire.send("improve.record", fields, "verdict", answered=answered)


def _keep(event=None):
    kept = str(value("verdict-text"))
    if not kept.strip():
        notices.error("verdict", "There is nothing to keep: write the answer first.")
        return el("verdict-text").focus()
    if _mode == "edit" and kept.strip("\n") == _offered().strip("\n"):
        return _send("accept")
    return _send(_mode, kept)


def _key(event):
    if event.key == "Escape":
        _close("verdict-" + (_mode or "edit"))
    elif event.key == "Enter" and (event.ctrlKey or event.metaKey):
        event.preventDefault()
        _keep()


def start():
    on("verdict-accept", "click", lambda event: _send("accept"))
    on("verdict-retry", "click", lambda event: _send("retry", then=write.again))
    on("verdict-edit", "click", lambda event: _open("edit"))
    on("verdict-correct", "click", lambda event: _open("correct"))
    on("verdict-keep", "click", _keep)
    on("verdict-cancel", "click", lambda event: _close("verdict-" + (_mode or "edit")))
    on("verdict-text", "keydown", _key)
    write.watch(draw, fresh)
