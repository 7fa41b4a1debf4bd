"""A cell of a lesson, and a command to run natively: the code, and what it prints."""

import notices
from dom import button, make
from pyscript.js_modules import bridge


def cell(found, lesson, index):
    """The code and the output to expect."""
    box = make("div", cls="cell")
    box.appendChild(_code(found["code"], "Cell " + str(index + 1)))
    box.appendChild(_expected(found["output"]))
    return box


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
