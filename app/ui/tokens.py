"""Which tokens the coming runs use: bytes, BPE learned from the text, or a tokenizer.json. Under Text on the Train view."""

from pyscript.js_modules import bridge

import fmt
import notices
import sizes
import state
import tabs
import wire
from dom import chosen, el, number, on, show, text

LARGEST_FILE_MB = 64
BYTES = "Each byte of the text is a token: 256 different ones."

_timer = None
_file = None
_latest = 0
_waiting = False  # for the answer to the choice
_refused = False  # it cannot be used as it is
_sent = None  # the choice as the trainer knows it: there a new one has bytes


def request(event=None):
    """Tell the trainer the present choice, unless it knows it."""
    global _latest, _waiting, _refused, _sent
    bridge.cancel(_timer)
    notices.clear("tokens")
    _refused = False
    which = chosen("tokens")
    if not state.ready:
        return None
    if which == "bpe":
        size = number("tokens-vocabulary")
        if size is None or size != int(size) or size < 256:
            return _refuse("“Different tokens” needs a whole number, 256 or more: each byte is one.")
        if _sent == ("bpe", size):
            return None if _waiting else _tell(state.tokens)
        _sent = ("bpe", size)
        text("tokens-facts", "Learning tokens from the text…")
        fields, file = ("tokens.use", {"name": "bpe", "vocabulary": size}), None
    elif which == "file":
        if _file is None:
            return _refuse("", "Choose a tokenizer.json.")
        _sent = ("file",)
        text("tokens-facts", "Reading " + str(_file.name) + "…")
        fields, file = ("tokens.load", {"name": _file.name}), _file
    else:
        if _sent == ("bytes",):
            return _tell(None)
        _sent = ("bytes",)
        fields, file = ("tokens.use", {"name": "bytes"}), None
    _latest = wire.send(fields[0], fields[1], "tokens", file=file, answered=_answered)
    _waiting = True
    return state.changed()


def _refuse(sentence, facts=""):
    global _refused, _waiting
    _refused, _waiting = True, False
    show("tokens-progress", False)
    text("tokens-facts", facts)
    if sentence:
        notices.error("tokens", sentence)
    state.changed()


def _answered(event):
    global _waiting, _refused, _sent
    if event["reply_to"] != _latest:
        return
    _waiting = False
    show("tokens-progress", False)
    if event["kind"] == "failed":
        _refused, _sent = True, None
        text("tokens-facts", "")
    state.changed()


def waiting():
    """Whether the trainer has yet to say what it makes of the choice."""
    return _waiting


def missing():
    """Why training cannot start with the choice, or None."""
    if _refused:
        return "The tokens cannot be used as they are (see under Text)."
    return None


def _tell(event):
    """What came of it; None for bytes."""
    global _refused
    _refused = False
    state.tokens = event
    show("tokens-progress", False)
    show("tokens-save", event is not None)
    if event is None:
        text("tokens-facts", BYTES)
    else:
        parts = [fmt.count(event.get("vocabulary")) + " different tokens"]
        if fmt.finite(event.get("bytes_per_token")):
            parts.append(fmt.fixed(event["bytes_per_token"], 2) + " bytes each in this text")
            parts.append("the text is " + fmt.count(event.get("tokens")) + " tokens long")
        wanted = number("tokens-vocabulary") if event.get("learned") else None
        line = ", ".join(parts) + "."
        if wanted and event.get("vocabulary") < wanted:
            line += " No other pair comes twice."
        if not event.get("learned"):
            line = "From " + str(event.get("source")) + ": " + line
        text("tokens-facts", line)
    state.changed()


def _tokens(event):
    _tell(event if event.get("name") == "bpe" else None)
    sizes.request()  # another vocabulary costs other weights


def _learning(event):
    total = event.get("total_bytes") or 1
    bar = el("tokens-progress")
    show(bar, True)
    if event["done_bytes"] >= total:
        bar.removeAttribute("value")  # what comes now has no measure: the bar only moves
        text("tokens-facts", "Joining the commonest pairs…")
    else:
        bar.value = event["done_bytes"] / total
        text("tokens-facts", "Counting words: " + str(100 * event["done_bytes"] // total) + " %")


def _changed(event=None):
    which = chosen("tokens")
    show("tokens-bpe-box", which == "bpe")
    show("tokens-file-box", which == "file")
    request()


def _typed(event):
    global _timer
    bridge.cancel(_timer)
    _timer = bridge.later(600, request)


def _picked(event):
    global _file
    files = el("tokens-json").files
    if not files.length:
        return
    file = files.item(0)
    if bridge.megabytes(file) > LARGEST_FILE_MB:
        _file = None
        return _refuse("“" + str(file.name) + "” is too large for a tokenizer: " + fmt.size(bridge.megabytes(file) * 1e6) + ".")
    _file = file
    return request()


def _ready(event):
    global _sent
    _sent = ("bytes",)
    request()


def _failed(event):
    """Learning anew, for another text, went wrong: an answer to a request that had been answered."""
    global _refused, _sent
    if event["place"] == "tokens" and not _waiting:
        _refused, _sent = True, None
        show("tokens-progress", False)
        text("tokens-facts", "")
        state.changed()


def start():
    for name in ("bytes", "bpe", "file"):
        on("tokens-" + name, "change", _changed)
    on("tokens-vocabulary", "input", _typed)
    on("tokens-json", "change", _picked)
    on("tokens-save", "click", lambda event: wire.send("tokens.save", {"of": "choice"}, "tokens"))
    on("tokens-see", "click", lambda event: tabs.go("tokens", focus=True))
    wire.on("tokens", _tokens)
    wire.on("learning", _learning)
    wire.on("failed", _failed)
    wire.on("ready", _ready)
    show("tokens-bpe-box", chosen("tokens") == "bpe")
    show("tokens-file-box", chosen("tokens") == "file")
