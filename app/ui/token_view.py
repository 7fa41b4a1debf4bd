"""The Tokens view: any text split into its tokens, and the merges that made them, in order."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
import tabs
import wire
from dom import chosen, el, empty, make, on, show, text, value
from token_tip import visible

PAGE = 100  # merges of an answer: as many as the trainer sends

_timer = None
_latest = _latest_merges = 0
_first = 0
_due = True  # something has changed since it was shown


def _of():
    return "model" if state.model and chosen("tokens-of") == "model" else "choice"


def _facts(tokenizer):
    if not tokenizer or tokenizer.get("name") != "bpe":
        return "Bytes: 256 different tokens, one for each value of a byte."
    source = tokenizer.get("source")
    return "BPE: " + fmt.count(tokenizer.get("vocabulary")) + " different tokens" + (", from " + str(source) if source else "") + "."


def refresh():
    """Ask anew, once the view is looked at."""
    global _due
    _due = True
    show("tokens-of", bool(state.model))
    model = (state.model or {}).get("tokenizer")
    text("tokens-of-facts", _facts(model if _of() == "model" else state.tokens))
    if tabs.current == "tokens" and state.ready:
        _due = False
        _split()
        _merges(0)


def _split(event=None):
    global _latest
    notices.clear("split")
    _latest = wire.send("tokens.split", {"of": _of()}, "split", area="split-text", answered=_split_answered)


def _split_answered(event):
    if event["reply_to"] != _latest:
        return
    if event["kind"] == "failed":
        bridge.spans.clear("split-output")
        return text("split-facts", "")
    shown = event.get("shown") or 0
    bridge.spans.show("split-output")
    count = event.get("count") or 0
    if not count:
        return text("split-facts", "No text, no tokens.")
    line = fmt.plural(count, "token") + " · " + fmt.size(event.get("bytes")) + " · " + fmt.fixed(event.get("bytes_per_token"), 2) + " bytes per token"
    if shown < count:
        line += " · the first " + fmt.count(shown) + " are shown"
    return text("split-facts", line)


def _merges(first):
    global _latest_merges
    notices.clear("merges")
    _latest_merges = wire.send("tokens.merges", {"of": _of(), "search": value("merges-search").strip("\n"), "first": first}, "merges", answered=_merges_answered)


def _merges_answered(event):
    global _first
    if event["reply_to"] != _latest_merges or event["kind"] == "failed":
        return
    total, found, rows = event.get("total") or 0, event.get("found") or 0, event.get("rows") or []
    show("merges-none", not total)
    show("merges-box", bool(total))
    _first = event.get("first") or 0
    counted = bool(rows) and rows[0].get("count") is not None
    show("merges-counted", counted)
    empty("merges-rows")
    for row in rows:
        line = make("tr")
        line.appendChild(make("th", fmt.count(row["rank"] + 1), scope="row"))
        cell = make("td", cls="pair")
        for piece, cls in ((row["left"], "piece"), (" + ", ""), (row["right"], "piece"), (" = ", ""), (row["text"], "piece made")):
            cell.appendChild(make("span", visible(piece) if cls else piece, cls))
        line.appendChild(cell)
        line.appendChild(make("td", str(row["id"])))
        if counted:
            line.appendChild(make("td", fmt.count(row["count"]) + "×"))
        el("merges-rows").appendChild(line)
    if not found:
        text("merges-facts", "No merge makes that.")
    else:
        of = fmt.count(found) + (" found" if found < total else "")
        text("merges-facts", fmt.count(_first + 1) + "–" + fmt.count(_first + len(rows)) + " of " + of)
    el("merges-back").disabled = _first <= 0
    el("merges-on").disabled = _first + len(rows) >= found


def _later(handler):
    def typed(event):
        global _timer
        bridge.cancel(_timer)
        _timer = bridge.later(200, handler)

    return typed


def _shown(event=None):
    if tabs.current == "tokens" and _due:
        refresh()


def start():
    on("split-text", "input", _later(lambda: _split() if state.ready else None))
    on("merges-search", "input", _later(lambda: _merges(0)))
    on("merges-back", "click", lambda event: _merges(max(0, _first - PAGE)))
    on("merges-on", "click", lambda event: _merges(_first + PAGE))
    for name in ("choice", "model"):
        on("tokens-of-" + name, "change", lambda event: refresh())
    for kind in ("ready", "tokens", "started", "opened"):
        wire.on(kind, lambda event: refresh())
    tabs.watch(_shown)
