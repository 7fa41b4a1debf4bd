"""A rule that the written text keeps to: a regular expression, a JSON Schema or a grammar. Checked while it is typed."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
import wire
from dom import chosen, el, on, show, text, value

KINDS = {  # kind -> what the box holds, and an example
    "regex": ("The whole text matches", r"(\w+ ){3,8}\w+[.!?]"),
    "json_schema": ("The text is JSON that this schema allows",
                    '{\n  "type": "object",\n  "properties": {\n    "name": {"type": "string", "maxLength": 20},\n    "age": {"type": "integer", "minimum": 0, "maximum": 120}\n'
                    '  },\n  "required": ["name", "age"],\n  "additionalProperties": false\n}'),
    "grammar": ("The text follows this grammar (lark’s notation)", 'start: greeting " " name "!"\ngreeting: "Hail" | "Farewell"\nname: /[A-Z][a-z]{2,9}/'),
}

_timer = None
_latest = 0
_typed = {}  # kind -> what was last in the box, so that another kind does not lose it
_kind = ""


def constraint():
    """The rule as a request's field; None without one."""
    if not _kind:
        return None
    return {"kind": _kind, "text": value("rule-text"), "end": value("rule-end"), "whitespace": value("rule-whitespace")}


def _check():
    global _latest
    notices.clear("rule")
    if not _kind or not state.ready:
        return text("rule-facts", "")
    if bridge.isBlank("rule-text"):
        return text("rule-facts", "There is no rule yet.")
    _latest = wire.send("write.check", {"constraint": constraint()}, "rule", answered=_checked)
    return text("rule-facts", "Reading the rule…")


def _checked(event):
    if event["reply_to"] != _latest:
        return
    if event["kind"] == "failed":
        return text("rule-facts", "")
    shortest = event.get("shortest_tokens")
    unit = "byte" if ((state.model or {}).get("tokenizer") or {}).get("name", "bytes") == "bytes" else "token"
    text("rule-facts", "The rule is sound. The shortest text takes " + fmt.plural(shortest or 0, unit) + ".")


def _changed(event=None):
    global _kind
    if _kind:
        _typed[_kind] = value("rule-text")
    _kind = chosen("rule") or ""
    show("rule-box", bool(_kind))
    show("rule-whitespace-box", _kind == "json_schema")
    if _kind:
        label, example = KINDS[_kind]
        text("rule-text-name", label)
        el("rule-text").value = _typed.get(_kind, example)
        el("rule-text").rows = min(12, max(3, str(el("rule-text").value).count("\n") + 1))
    _check()


def _input(event):
    global _timer
    text("rule-facts", "")
    bridge.cancel(_timer)
    _timer = bridge.later(400, _check)


def start():
    for name in ("none", "regex", "json", "grammar"):
        on("rule-" + name, "change", _changed)
    on("rule-text", "input", _input)
    on("rule-whitespace", "change", lambda event: _check())
    for kind in ("ready", "started", "opened"):
        wire.on(kind, lambda event: _check())
    kept = value("rule-text")
    if chosen("rule") and kept:  # the browser has restored what was typed
        _typed[chosen("rule")] = kept
    _changed()
