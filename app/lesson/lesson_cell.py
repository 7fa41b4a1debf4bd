"""A cell of a lesson (or the scratch pad): an editor, Run, Stop, what it printed; and a command to run natively."""

import json

import js
from pyscript.js_modules import bridge

import notices
import wire
from dom import button, empty, make, show

_running = {}  # request id -> Cell
_asking = {}  # request id -> what a completion's answer goes to


class Cell:
    """An editor with its code, and what came of running it. `space` is where its names live in the worker."""

    def __init__(self, code, space, label, expected=None, scratch=False):
        self.code, self.space, self.label, self.scratch = code.rstrip("\n"), space, label, scratch
        self.editor, self.request = None, None
        self.box = make("div", cls="cell")
        place = make("div", cls="cell-code")
        area = make("textarea", cls="code", spellcheck="false", autocapitalize="off", aria_label=label + ". Shift and Enter run it.")
        area.value = self.code
        place.appendChild(area)
        self.box.appendChild(place)
        self.run_button = button("Run", self.run, "primary run-cell", aria_label="Run " + label)
        self.stop_button = button("Stop", self.stop, aria_label="Stop " + label)
        row = make("div", cls="row cell-buttons")
        row.appendChild(self.run_button)
        row.appendChild(self.stop_button)
        if scratch:
            row.appendChild(button("Forget all names", self.reset, "quiet-button"))
        else:
            row.appendChild(button("Reset", self.reset, "quiet-button", aria_label="Reset " + label + " to the lesson's code"))
            row.appendChild(button("To the scratch pad", self.to_scratch, "quiet-button", aria_label="To the scratch pad: " + label))
        self.state = make("span", cls="hint", role="status")
        row.appendChild(self.state)
        self.box.appendChild(row)
        show(self.stop_button, False)
        self.out = make("div", cls="cell-out", role="log", aria_label="Output of " + label)
        self.out.hidden = True
        self.box.appendChild(self.out)
        if expected is not None:
            self.box.appendChild(_expected(expected))
        self.place = place

    def mount(self):
        """Once it stands on the page: the editor itself."""
        bridge.editor.mount(self.place, self.label, self.run, self.complete, self._mounted)

    def _mounted(self, editor):
        self.editor = editor

    def text(self):
        return str(self.editor.value()) if self.editor is not None else self.code

    def run(self, event=None):
        if self.request is not None:
            return
        if self.scratch:
            bridge.editor.keepScratch(self.text())
        empty(self.out)
        self.out.hidden = False
        self.request = wire.send("cells.run", {"code": self.text(), "space": self.space, "cell": self.label}, "learn", answered=self._refused)
        _running[self.request] = self
        self.state.textContent = "Waiting for the trainer…"
        show(self.stop_button, True)
        show(self.run_button, False)

    def _refused(self, event):
        if event["kind"] == "failed":
            self.ended({"ok": False, "message": "", "line": None, "stopped": False, "seconds": 0})

    def stop(self, event=None):
        if not bridge.interrupt():
            notices.error("learn", "This page is not isolated, so a cell cannot be stopped alone. Starting the trainer again ends it; what was saved is safe.",
                          way_out=("Start the trainer again", self._restart))

    def _restart(self):
        bridge.restart()
        self.ended({"ok": False, "message": "Stopped: the trainer was started again.", "line": None, "stopped": True, "seconds": 0})

    def reset(self, event=None):
        if not self.scratch and self.editor is not None:
            self.editor.set(self.code)
        empty(self.out)
        self.out.hidden = True
        if self.scratch:
            wire.send("cells.reset", {"space": self.space}, "learn")
            self.state.textContent = "All names are forgotten."

    def to_scratch(self, event=None):
        before = str(bridge.editor.keptScratch()).rstrip()
        bridge.editor.keepScratch((before + "\n\n" if before else "") + self.text())
        js.location.hash = "#learn/scratch"

    def complete(self, before, answer):
        asked = wire.send("cells.complete", {"code": str(before), "space": self.space}, "learn", answered=_completed)
        _asking[asked] = answer

    # What comes back

    def printed(self, text, stream):
        last = self.out.lastElementChild
        wanted = "output " + stream
        if last is None or str(last.className) != wanted:
            last = make("pre", cls=wanted)
            self.out.appendChild(last)
        last.append(text)

    def value(self, event):
        if "table" in event:
            self.out.appendChild(_table(event["table"]))
        elif "picture" in event:
            self.out.appendChild(_picture(event["picture"]))
        else:
            self.out.appendChild(make("pre", event["text"], "output value"))

    def ended(self, event):
        _running.pop(self.request, None)
        self.request = None
        had_focus = js.document.activeElement is not None and js.document.activeElement.isSameNode(self.stop_button)
        show(self.run_button, True)
        show(self.stop_button, False)
        if had_focus:
            self.run_button.focus()
        if event["message"]:
            self.out.appendChild(make("pre", event["message"], "output err"))
        if event["line"] and self.editor is not None:
            self.editor.line(event["line"])
        took = "{:.1f} s".format(event["seconds"])
        self.state.textContent = "Stopped." if event["stopped"] else "Done in " + took + "." if event["ok"] else "It ended with an error" + (" in line " + str(event["line"]) if event["line"] else "") + "."


def cell(found, lesson, index):
    """The cell of a lesson."""
    return Cell(found["code"], "lesson:" + lesson, "Cell " + str(index + 1), found["output"])


def command(found):
    """A command with a button that copies it."""
    box = make("div", cls="cell command")
    box.appendChild(_code(found["code"], "Command"))
    box.appendChild(button("Copy", lambda event: bridge.copy(found["code"].strip(), _copied), "quiet-button copy", aria_label="Copy the command"))
    box.appendChild(_expected(found["output"]))
    return box


def _copied(done):
    notices.announce("Copied." if done else "The browser did not let the page copy it: select the text instead.")


def _code(code, label):
    made = make("pre", cls="code", tabindex="0", role="region", aria_label=label)
    made.appendChild(make("code", code.rstrip("\n")))
    return made


def _expected(output):
    folded = make("details", cls="plain expected")
    folded.appendChild(make("summary", "What it prints"))
    made = make("pre", cls="output", tabindex="0", role="region", aria_label="Expected output")
    made.appendChild(make("code", output.rstrip("\n")))
    folded.appendChild(made)
    return folded


def _table(found):
    box = make("div", cls="scroll", tabindex="0", role="region", aria_label="Table")
    table = make("table", cls="figures")
    head, row = make("thead"), make("tr")
    for name in found["columns"]:
        row.appendChild(make("th", name, scope="col"))
    head.appendChild(row)
    table.appendChild(head)
    body = make("tbody")
    for line in found["rows"]:
        row = make("tr")
        for each in line:
            row.appendChild(make("td", each))
        body.appendChild(row)
    table.appendChild(body)
    box.appendChild(table)
    if found["more"]:
        box.appendChild(make("p", "… " + str(found["more"]) + " more rows", "hint"))
    return box


def _picture(found):
    box = make("figure", cls="cell-picture")
    words = str(found["rows"]) + " × " + str(found["columns"]) + ", from " + "{:.4g}".format(found["least"]) + " (blank) to " + "{:.4g}".format(found["most"]) + " (full)"
    canvas = make("canvas", role="img", aria_label="Picture of an array, " + words)
    bridge.editor.paint(canvas, found["rows"], found["columns"], found["pixels"])
    box.appendChild(canvas)
    box.appendChild(make("figcaption", words, "hint"))
    return box


def _to(method):
    def handle(event):
        running = _running.get(event.get("reply_to"))
        if running is not None:
            method(running, event)

    return handle


def _completed(event):
    answer = _asking.pop(event.get("reply_to"), None)
    if answer is not None:
        answer(event.get("start", 0), json.dumps(event.get("items", [])))


def _started(running, event):
    running.state.textContent = "Running…"


wire.on("cell.started", _to(_started))
wire.on("cell.output", _to(lambda running, event: running.printed(event["text"], event["stream"])))
wire.on("cell.value", _to(lambda running, event: running.value(event)))
wire.on("cell.ended", _to(lambda running, event: running.ended(event)))
wire.on("cell.changed_model", lambda event: notices.notice("learn", event["message"]))
