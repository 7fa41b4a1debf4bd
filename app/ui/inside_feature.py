"""One feature: where it fires, as shaded text with its numbers, which tokens it promotes, and writing with it."""

import json

from pyscript.js_modules import bridge

import fmt
import notices
import state
import wire
from dom import el, number, on, show, swap, text, value
from token_tip import visible

TOKENS = 80
SIGN = "−"

_index = None
_most = 0.0
_writing = False
_own = False  # what to begin with is the person's


def ask(index):
    wire.send("features.feature", {"index": index}, "features", answered=_draw)


def begin_with(opening):
    """The beginning of the text that the features were found in, where the person has typed nothing."""
    if opening and not (_own and value("feature-prompt")):
        el("feature-prompt").value = opening


def _typed(event):
    global _own
    _own = True


def drop():
    global _index
    _index = None
    show("feature-box", False)


def _draw(event):
    global _index, _most
    if event["kind"] == "failed":
        return
    _index, _most = event["index"], event["most"]
    show("feature-box", True)
    text("feature-title", "Feature " + str(_index))
    text("feature-says", "Fires at " + fmt.fixed(100 * event["density"], 2) + fmt.SPACE + "% of tokens, with " + fmt.fixed(_most, 2) + " at most. The stronger the colour, the more it fires there:")
    bridge.insideContexts.draw("feature-contexts", json.dumps(event["contexts"]), _most, _read)
    text("feature-promotes", _tokens("Makes likelier: ", event["promotes"]))
    text("feature-suppresses", _tokens("Makes less likely: ", event["suppresses"]))
    _strength()


def _tokens(before, pairs):
    if not pairs:
        return ""
    return before + ", ".join(["“" + visible(label) + "” " + ("+" if gain >= 0 else SIGN) + fmt.fixed(abs(gain), 2) for label, gain in pairs])


def _read(label, activation, pinned):
    line = "At “" + visible(label) + "” it fires with " + fmt.fixed(activation, 2) + "." if activation > 0 else "At “" + visible(label) + "” it does not fire."
    text("feature-readout", line)
    if pinned:
        notices.announce(line)


def _strength(event=None):
    """The slider counts in the feature's own strongest activation."""
    times = number("feature-strength")
    shown = (SIGN if times < 0 else "") + fmt.fixed(abs(times), 2) + " times the most it fires by itself"
    text("feature-shown", shown)
    el("feature-strength").setAttribute("aria-valuetext", shown)


def _write(event):
    global _writing
    notices.clear("features")
    if not value("feature-prompt"):
        return notices.error("features", "Type something to begin with first.")
    _writing = True
    text("feature-echo", value("feature-prompt"))
    text("feature-text", "")
    show("feature-output", True)
    text("feature-stats", "Writing…")
    _buttons()
    fields = {"prompt": value("feature-prompt"), "index": _index, "strength": number("feature-strength") * _most, "tokens": TOKENS, "temperature": 0.8, "seed": 1}
    return wire.send("features.write", fields, "features", answered=_answered)


def _answered(event):
    if event["kind"] == "failed":
        _done("")


def _token(event):
    if _writing:
        el("feature-text").append(event["text"])


def _wrote(event):
    if _writing:
        _done("Stopped." if event["reason"] == "stopped" else fmt.plural(event["tokens"], "token") + ".")


def _done(line):
    global _writing
    _writing = False
    text("feature-stats", line)
    _buttons()


def _changed():
    if _writing and state.lost:
        _done("")


def _buttons():
    swap(_writing, "feature-write", "feature-write-stop")


def start():
    on("feature-strength", "input", _strength)
    on("feature-prompt", "input", _typed)
    on("feature-write", "click", _write)
    on("feature-write-stop", "click", lambda event: wire.send("features.write_stop", {}, "features"))
    wire.on("features.token", _token)
    wire.on("features.wrote", _wrote)
    state.watch(_changed)
