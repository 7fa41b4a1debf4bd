"""The text to learn from: bundled, pasted, or a file (chosen or dropped anywhere on the page)."""

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import tabs
import wire
from dom import chosen, el, on, sentences, show, text

LARGEST_FILE_MB = 256  # more would not fit a tab twice over; the trainer has its own, finer limits

_timer = None
_latest = 0  # id of the newest request: an answer to an older one is out of date
_waiting = False  # for the answer to it
_refused = False  # the chosen text cannot be used; dismissing the message does not change that
_elsewhere = []  # warnings that stand under Size
_pending_paste = False
_file = None
_dragging = 0
_replaced = False  # the worker has opened a run, with its own text: the choice here must be told again before it counts


def request():
    """Tell the worker which text is chosen now. Returns False where there is none yet."""
    global _latest, _waiting, _refused, _pending_paste, _replaced
    _waiting = _refused = _replaced = False
    source = chosen("corpus")
    notices.clear("corpus")
    _pending_paste = False
    if source == "paste":
        if bridge.isBlank("corpus-text"):
            _facts(None, "Paste a text to train on.")
            return False
        _latest = wire.send("corpus.text", {"name": "Pasted text"}, "corpus", area="corpus-text", answered=_answered)
    elif source == "file":
        if _file is None:
            _facts(None, "Choose a .txt or .md file.")
            return False
        _latest = wire.send("corpus.file", {"name": _file.name}, "corpus", file=_file, answered=_answered)
        text("corpus-facts", "Reading " + str(_file.name) + "…")
    else:
        _latest = wire.send("corpus.bundled", {}, "corpus", answered=_answered)
    _waiting = True
    return True


def waiting():
    """Whether the trainer has yet to say what it makes of the chosen text."""
    return _waiting


def missing():
    """Why training cannot start with the chosen text, or None. A text that the worker has not yet, or no more, is sent first."""
    if _pending_paste or _replaced and state.ready:
        bridge.cancel(_timer)
        request()
    source = chosen("corpus")
    if source == "paste" and bridge.isBlank("corpus-text"):
        return "There is no text yet: paste one, or go back to Shakespeare."
    if source == "file" and _file is None:
        return "There is no file yet: choose one, or go back to Shakespeare."
    if _refused:
        return "The text cannot be used as it is (see under Text): choose another."
    return None


def _answered(event):
    global _waiting, _refused
    if event["reply_to"] != _latest:
        return
    _waiting = False
    _refused = event["kind"] == "failed"
    if event["kind"] == "corpus":
        _facts(event)
    else:
        _facts(None, "No text to train on.")
    state.changed()


def _facts(event, instead=""):
    state.corpus = event
    if event is None:
        text("corpus-facts", instead)
        sentences("corpus-notes", [])
        _warn()
        show("corpus-preview-box", False)
        return
    parts = [fmt.size(event.get("bytes")), fmt.count(event.get("characters")) + " characters",
             fmt.plural(event.get("lines") or 0, "line"), fmt.count(event.get("distinct_bytes")) + " different bytes"]
    text("corpus-facts", " · ".join(parts))
    notes = list(event.get("notes") or [])
    if event.get("validation_tokens"):
        notes.append("The last " + fmt.count(event["validation_tokens"]) + " bytes are kept aside to measure how it does on unseen text.")
    sentences("corpus-notes", notes)
    _warn()
    preview = event.get("preview") or ""
    text("corpus-preview", preview)
    show("corpus-preview-box", bool(preview))


def _warn():
    """Warnings about the text, but for those that Size repeats with the chosen model's own numbers (alike up to the colon)."""
    said = [sentence.split(":")[0] for sentence in _elsewhere]
    sentences("corpus-warnings", [each for each in (state.corpus or {}).get("warnings") or [] if each.split(":")[0] not in said])


def warned_elsewhere(warnings):
    global _elsewhere
    _elsewhere = warnings
    _warn()


def _source_changed(event=None):
    source = chosen("corpus")
    show("corpus-paste-box", source == "paste")
    show("corpus-file-box", source == "file")
    if not request():
        state.changed()


def _typed(event):
    global _timer, _pending_paste
    bridge.cancel(_timer)
    _pending_paste = True
    _timer = bridge.later(500, request)


def use_file(file):
    """Take a File as the text, or give it to Tune where it belongs there."""
    global _file
    name = str(file.name)
    if name.lower().endswith(".zip") or tabs.current == "tune":
        import adapters
        import tune_data

        tabs.go("tune")
        adapters.import_file(file) if name.lower().endswith((".zip", ".safetensors")) else tune_data.take(file)
        return
    if state.busy():
        notices.error("train", "A run is going. Stop it before choosing another text.")
        return
    tabs.go("train")
    el("corpus-upload").checked = True
    megabytes = bridge.megabytes(file)
    if megabytes > LARGEST_FILE_MB:
        _file = None
        _source_changed()
        notices.error("corpus", "“{}” has {}; this page takes texts up to {}. Cut it into parts.".format(
            name, fmt.size(megabytes * 1e6), fmt.size(LARGEST_FILE_MB * 1e6)))
        return
    _file = file
    _source_changed()


def _take(files):
    """Files that were chosen or dropped: a model for Runs, else a text."""
    import imports

    if imports.meant(imports.names_of(files), tabs.current):
        tabs.go("runs")
        imports.bring(files)
        return
    use_file(files.item(0))
    if files.length > 1:
        notices.announce("Only the first of the files is used.")


def _picked(event):
    files = el("corpus-file").files
    if files.length:
        _take(files)


def _drag(event):
    global _dragging
    if "Files" not in list(event.dataTransfer.types):
        return
    event.preventDefault()
    if event.type == "dragenter":
        _dragging += 1
    elif event.type == "dragleave":
        _dragging -= 1
    show("drop", _dragging > 0)


def _drop(event):
    global _dragging
    _dragging = 0
    show("drop", False)
    if event.dataTransfer.files.length:
        event.preventDefault()
        _take(event.dataTransfer.files)


def _opened(event):
    global _replaced
    _replaced = True


def lock(locked):
    el("setup").disabled = locked
    show("setup-locked", locked)


def start():
    for name in ("corpus-bundled", "corpus-paste", "corpus-upload"):
        on(name, "change", _source_changed)
    on("corpus-text", "input", _typed)
    on("corpus-file", "change", _picked)
    for kind in ("dragenter", "dragover", "dragleave"):
        js.window.addEventListener(kind, _drag)
    js.window.addEventListener("drop", _drop)
    wire.on("ready", lambda event: request())
    wire.on("opened", _opened)
    _source_changed_quietly()


def _source_changed_quietly():
    """After a reload the browser may have restored another choice: show its box, ask nothing yet."""
    source = chosen("corpus")
    show("corpus-paste-box", source == "paste")
    show("corpus-file-box", source == "file")
