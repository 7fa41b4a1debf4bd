"""The Write view: a prompt goes in, text streams out, also while the model trains."""

import js
from pyscript.js_modules import bridge

import fmt
import notices
import state
import wire
import write_draft
import write_rule
from dom import el, number, on, show, swap, text, value

WHY = {"stop": "met the stop text", "complete": "the rule is kept", "stopped": "stopped by you", "interrupted": "ended for something else", "failed": "ended by a fault"}
SLIDERS = [("temperature", 2), ("top-k", 0), ("top-p", 2), ("min-p", 2), ("repetition-penalty", 2)]
TOLD = 10  # of the likeliest tokens, where they are shown

_writing = False
_received = False
_unit = "byte"
_context = _prompt_tokens = _out_of_sight = 0
_watchers = []  # (a text stands there, another begins)


def watch(written, begins):
    _watchers.append((written, begins))


def finished():
    """Whether a text stands there, and none is being written."""
    return _received and not _writing


def again():
    _start()


def _slider(name, places):
    def moved(event=None):
        text("write-" + name + "-value", fmt.fixed(float(value("write-" + name)), places))

    return moved


def _unescape(typed):
    """\\n, \\t and \\\\ as a person types them in a one-line field."""
    out = ""
    at = 0
    while at < len(typed):
        pair = typed[at:at + 2]
        if pair in ("\\n", "\\t", "\\\\"):
            out += {"n": "\n", "t": "\t", "\\": "\\"}[pair[1]]
            at += 2
        else:
            out += typed[at]
            at += 1
    return out


def _start(event=None):
    global _writing, _received
    if _writing:
        return
    notices.clear("write")
    if not state.model:
        return notices.error("write", "There is no model yet. Press Train, or open a saved run under Runs.")
    tokens = number("write-tokens")
    if tokens is None or tokens < 1 or tokens != int(tokens):
        return notices.error("write", "The length needs a whole number above 0.")
    seed = number("write-seed")
    if seed is None:
        seed = int(js.Math.random() * 2147483647)
    elif seed < 0 or seed != int(seed):
        return notices.error("write", "The seed needs a whole number, 0 or more.")
    stops = [_unescape(line) for line in value("write-stop-text").split("\n") if line]
    prompt = value("write-prompt")
    request = {
        "prompt": prompt, "tokens": tokens, "temperature": float(value("write-temperature")), "top_k": int(float(value("write-top-k"))),
        "top_p": float(value("write-top-p")), "min_p": float(value("write-min-p")), "repetition_penalty": float(value("write-repetition-penalty")),
        "seed": seed, "stop": stops, "choices": TOLD if el("write-choices").checked else 0,
    }
    if el("write-ask").checked:
        request["ask"] = True
    rule = write_rule.constraint()
    if rule:
        if bridge.isBlank("rule-text"):
            return notices.error("write", "The rule is empty: type one, or choose None.")
        request["constraint"] = rule
    try:
        request.update(write_draft.fields())
    except ValueError as problem:
        return notices.error("write", str(problem))
    _writing = True
    _received = False
    for _, begins in _watchers:
        begins()
    text("write-echo", prompt)
    bridge.spans.drop()
    bridge.spans.clear("write-text")
    el("write-text").className = ""
    show("write-tokens-hint", False)
    write_draft.figures(None)
    text("write-window", "")
    text("write-stats", "Writing…")
    _buttons()
    return wire.send("write.start", request, "write")


def _failed(event):
    if _writing and event["place"] == "write":
        _done("")


def _token(event):
    global _received
    if not _writing:
        return
    _received = True
    if event.get("told"):
        bridge.spans.write("write-text")
        show("write-tokens-hint", True)
    else:
        el("write-text").append(event.get("text") or "")
    output = el("write-output")
    if output.scrollHeight - output.scrollTop - output.clientHeight < 60:  # follow, unless the reader has scrolled back
        output.scrollTop = output.scrollHeight
    speed = event.get("tokens_per_second")
    text("write-stats", fmt.plural(event.get("tokens") or 0, _unit) + (", " + fmt.count(speed) + " a second" if fmt.finite(speed) else ""))
    write_draft.figures(event.get("speculation"))
    _window(event.get("forgotten") or 0)


def _begun(event):
    """How much of the prompt the model sees."""
    global _unit, _context, _prompt_tokens, _out_of_sight
    _unit, _context, _prompt_tokens = event.get("unit") or "byte", event.get("context") or 0, event.get("prompt_tokens") or 0
    _out_of_sight = 0
    _window(event.get("forgotten") or 0)


def _window(forgotten):
    """Said openly: what stands too far back for the model to see."""
    global _out_of_sight
    if forgotten == _out_of_sight:
        return
    _out_of_sight = forgotten
    sees = "This model sees " + fmt.plural(_context, _unit) + " at most. "
    if _prompt_tokens > _context:
        text("write-window", sees + "The prompt has " + fmt.count(_prompt_tokens) + ", so its beginning does not count: the first "
             + fmt.count(forgotten) + " of prompt and text are out of its sight by now.")
    else:
        text("write-window", sees + "Prompt and text are longer by now: the first " + fmt.count(forgotten) + " are out of its sight.")


def _wrote(event):
    why = WHY.get(event.get("reason"), "")
    write_draft.figures(event.get("speculation"))
    parts = [fmt.plural(event.get("tokens") or 0, _unit), fmt.count(event.get("tokens_per_second")) + " a second"]
    first = event.get("first_token_seconds")
    if fmt.finite(first):
        parts.append("first after " + fmt.count(round(first * 1000)) + " ms")
    if why:
        parts.append(why)
    _done(" · ".join(parts))


def _done(line):
    global _writing
    _writing = False
    text("write-stats", line)
    _buttons()
    for written, _ in _watchers:
        written()


def _stop(event):
    wire.send("write.stop", {}, "write")
    text("write-stats", "Stopping…")


def _copy(event):
    whole = str(el("write-echo").textContent) + str(el("write-text").textContent)
    bridge.copy(whole, lambda worked: text("write-stats", "Copied." if worked else "Copying is blocked here: select the text and copy it."))


def _buttons():
    swap(_writing, "write-start", "write-stop")
    el("write-copy").disabled = not _received


def _model_line():
    model = state.model
    if not model:
        text("write-model", "Train a model, or open a saved run, and it can write here.")
        return
    unit = "bytes" if (model.get("tokenizer") or {}).get("name", "bytes") == "bytes" else "tokens"
    text("write-tokens-name", "Length, in " + unit)
    line = "Writing with " + str(model.get("name") or "the model") + ", at step " + fmt.count(model.get("step"))
    if state.adapter:
        line += ", with the adapter “" + str(state.adapter["name"]) + "”"
    if state.phase in ("running", "starting"):
        line += ", while it trains"
    text("write-model", line + ".")


def worker_lost():
    if _writing:
        _done("")


def _prompt_key(event):
    if event.key == "Enter" and (event.ctrlKey or event.metaKey):
        event.preventDefault()
        _start()


def start():
    for name, places in SLIDERS:
        moved = _slider(name, places)
        on("write-" + name, "input", moved)
        moved()
    on("write-start", "click", _start)
    on("write-stop", "click", _stop)
    on("write-copy", "click", _copy)
    on("write-prompt", "keydown", _prompt_key)
    wire.on("writing", _begun)
    wire.on("token", _token)
    wire.on("wrote", _wrote)
    wire.on("failed", _failed)
    wire.on("step", lambda event: _model_line() if js.document.body.dataset.view == "write" else None)
    state.watch(_model_line)
