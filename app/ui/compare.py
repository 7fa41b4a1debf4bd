"""Base and tuned answer the same prompt with the same seed, one beside the other."""

import fmt
import notices
import state
import wire
from dom import el, number, on, show, swap, text, value

SIDES = ("base", "tuned")
NAMES = {"base": "The base", "tuned": "The tuned model"}
ENDS = {"stopped": "Stopped by you.", "interrupted": "Ended: the model was needed for something else.", "failed": "Ended by a fault."}

_going = False


def _start(event=None):
    global _going
    notices.clear("compare")
    if _going:
        return None
    if not state.model:
        return notices.error("compare", "There is no model yet. Press Train, or open a saved run under Runs.")
    if not state.adapter:
        return notices.error("compare", "There is no adapter on to compare the base with: tune one, or choose one under Adapters.")
    tokens, seed, temperature = number("compare-tokens"), number("compare-seed"), number("compare-temperature")
    if tokens is None or tokens < 1 or tokens != int(tokens):
        return notices.error("compare", "The length needs a whole number above 0.")
    if seed is None or seed < 0 or seed != int(seed):
        return notices.error("compare", "The seed needs a whole number, 0 or more.")
    if temperature is None or temperature < 0:
        return notices.error("compare", "The temperature needs a number, 0 or more.")
    _going = True
    prompt = value("compare-prompt")
    for side in SIDES:
        text("compare-" + side + "-echo", prompt)
        text("compare-" + side + "-text", "")
        el("compare-" + side + "-text").className = ""
    _title()
    text("compare-stats", "The base writes…")
    _buttons()
    fields = {"prompt": prompt, "tokens": tokens, "temperature": temperature, "seed": seed}
    if _asks() and el("compare-ask").checked:
        fields["ask"] = True
    return wire.send("compare.start", fields, "compare", answered=_answered)


def _asks():
    """Whether the adapter that is on has learned from prompts and answers."""
    return bool(state.adapter) and state.adapter.get("how") in ("pairs", "preferences", "corrections")


def _title():
    adapter = state.adapter
    show("compare-ask-box", _asks())
    line = "Tuned"
    if adapter:
        line += ": " + str(adapter["name"]) + ("" if adapter["strength"] == 1 else " at " + fmt.fixed(adapter["strength"]))
    text("compare-tuned-title", line)


def _answered(event):
    if event["kind"] == "failed":
        _done("")


def _token(event):
    if not _going:
        return
    side = event["side"]
    el("compare-" + side + "-text").append(event.get("text") or "")
    output = el("compare-" + side)
    if output.scrollHeight - output.scrollTop - output.clientHeight < 60:
        output.scrollTop = output.scrollHeight


def _wrote(event):
    if not _going:
        return
    if event.get("last"):
        same = str(el("compare-base-text").textContent) == str(el("compare-tuned-text").textContent)
        if event.get("reason") in ENDS:
            _done(ENDS[event["reason"]])
        else:
            _done("Both wrote the very same text." if same else "Done: " + fmt.plural(event.get("tokens") or 0, "token") + " each.")
    else:
        text("compare-stats", "The tuned model writes…")


def _done(line):
    global _going
    _going = False
    text("compare-stats", line)
    _buttons()


def _buttons():
    swap(_going, "compare-start", "compare-stop")


def _stop(event):
    wire.send("compare.stop", {}, "compare")
    text("compare-stats", "Stopping…")


def worker_lost():
    if _going:
        _done("")


def _key(event):
    if event.key == "Enter" and (event.ctrlKey or event.metaKey):
        event.preventDefault()
        _start()


def start():
    on("compare-start", "click", _start)
    on("compare-stop", "click", _stop)
    on("compare-prompt", "keydown", _key)
    wire.on("compare.token", _token)
    wire.on("compare.wrote", _wrote)
    state.watch(lambda: None if _going else _title())
