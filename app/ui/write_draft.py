"""Speculation: which smaller saved run guesses ahead for the model that writes, and what that brings."""

import fmt
import state
import tabs
import wire
from dom import el, empty, make, number, show, text, value

_runs = []
_drawn = None


def fields():
    """What a request takes beside the rest: {} without a draft. Raises ValueError with a sentence."""
    run_id = value("write-draft")
    if not run_id:
        return {}
    ahead = number("write-ahead")
    if ahead is None or ahead != int(ahead) or not 1 <= ahead <= 16:
        raise ValueError("“Guesses ahead” needs a whole number from 1 to 16.")
    return {"draft": run_id, "ahead": ahead}


def _suits(run):
    model = state.model or {}
    mine = model.get("tokenizer") or {}
    return (not run.get("corrupt") and run.get("run_id") != model.get("run_id") and run.get("step") is not None
            and (run.get("tokenizer") or "bytes") == mine.get("name") and (run.get("tokenizer_sha256") or "") == (mine.get("sha256") or "")
            and (run.get("parameters") or 0) < (model.get("parameters") or 0))


def _draw():
    """The choices; drawn anew only when they are others, so that nobody's choice is lost."""
    global _drawn
    suitable = [run for run in _runs if _suits(run)] if state.model else []
    now = [(run["run_id"], run.get("name"), run.get("parameters")) for run in suitable]
    text("draft-hint", _hint(now))
    if now == _drawn:
        return
    _drawn = now
    box = el("write-draft")
    before = str(box.value)
    empty(box)
    box.appendChild(make("option", "none", value=""))
    for run_id, name, parameters in now:
        box.appendChild(make("option", str(name) + " · " + fmt.count(parameters) + " parameters", value=run_id))
    box.value = before if before in [run_id for run_id, _, _ in now] else ""


def _hint(suitable):
    if not state.model:
        return "Needs a model to write with first."
    if not suitable:
        return "No saved run is smaller than this model and uses the same tokens. Train a tiny one on the same text, then open the large one again."
    return ""


def _listed(event):
    global _runs
    _runs = event.get("runs") or []
    _draw()


def figures(found):
    """What the draft brings, live; None hides it."""
    show("draft-figures", bool(found))
    if not found:
        return
    proposed, accepted = found.get("proposed") or 0, found.get("accepted") or 0
    share = str(round(100 * accepted / proposed)) + fmt.SPACE + "% of " + fmt.count(proposed) if proposed else fmt.DASH
    text("draft-accepted", share)
    text("draft-per-pass", fmt.fixed(found.get("tokens_per_pass"), 2))
    speed_up, plain = found.get("speed_up"), found.get("plain_tokens_per_second")
    if fmt.finite(speed_up):
        line = fmt.fixed(speed_up, 2) + " ×"
        if fmt.finite(plain):
            line += " (" + fmt.count(plain) + " a second without)"
        text("draft-speed-up", line)
    else:
        text("draft-speed-up", fmt.DASH)


def _shown():
    if tabs.current == "write" and state.ready:
        wire.send("runs.list", {}, "write")


def start():
    wire.on("ready", _listed)
    wire.on("runs", _listed)
    state.watch(_draw)
    tabs.watch(_shown)
