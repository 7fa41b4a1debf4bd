"""The check for reciting: how many words of its training text the model writes verbatim, with and without the adapter."""

import fmt
import notices
import state
import wire
from dom import el, empty, make, number, on, show, swap, text, value

FIELDS = (("prefixes", "memorise-prefixes", "Passages of each kind", True), ("prefix_tokens", "memorise-length", "Tokens given", False),
          ("tokens", "memorise-tokens", "Tokens to continue", False))
ENDS = {"stopped": "Stopped by you.", "interrupted": "Ended: the model was needed for something else.", "failed": "Ended by a fault."}
GROUPS = {"seen": "it has learned from", "unseen": "it never saw"}

_going = False


def _start(event=None):
    global _going
    notices.clear("memorise")
    if not state.model:
        return notices.error("memorise", "There is no model yet. Press Train, or open a saved run under Runs.")
    fields = {}
    for key, name, label, needed in FIELDS:
        found = number(name)
        if found is None and not needed and not str(value(name)).strip():
            continue  # the trainer's own choice
        if found is None or found < 1 or found != int(found):
            return notices.error("memorise", "“" + label + "” needs a whole number above 0.")
        fields[key] = found
    if value("memorise-of"):
        fields["of"] = value("memorise-of")
    _going = True
    text("memorise-stats", "Reading the passages…")
    el("memorise-progress").removeAttribute("value")
    _buttons()
    return wire.send("memorise.start", fields, "memorise", answered=_answered)


def _answered(event):
    if event["kind"] == "failed":
        _done("")


def _progress(event):
    if not _going:
        return
    bar = el("memorise-progress")
    bar.max = max(1, event.get("total") or 1)
    bar.value = event.get("done") or 0
    text("memorise-stats", str(event.get("what") or "") + " " + fmt.count(event.get("done")) + " of " + fmt.count(event.get("total")))


def _stop(event):
    wire.send("memorise.stop", {}, "memorise")
    text("memorise-stats", "Stopping…")


def _memorised(event):
    if event.get("stopped"):
        return _done(ENDS.get(event.get("reason"), ""))
    show("memorise-result", True)
    text("memorise-verdict", event.get("verdict") or "")
    text("memorise-unit", "in " + str(event.get("unit") or "tokens") + ", of " + fmt.count(event.get("continuation_tokens")) + " written")
    _table(event)
    _bars(event)
    _spans(event)
    _done("Done, on “" + str(event.get("text") or "the text") + "”.")
    return notices.announce(event.get("verdict") or "The check is done.")


def _table(event):
    empty("memorise-rows")
    for model in event.get("models") or []:
        for at, group in enumerate(model["groups"]):
            row = make("tr")
            if at == 0:
                row.appendChild(make("th", model["name"], scope="rowgroup", rowspan=len(model["groups"])))
            row.appendChild(make("td", fmt.count(group["count"]) + (" seen" if group["which"] == "seen" else " unseen")))
            row.appendChild(make("td", fmt.count(group["longest"])))
            row.appendChild(make("td", fmt.fixed(group["mean"], 1)))
            row.appendChild(make("td", fmt.fixed(100 * group["exact_rate"], 0) + " %" if fmt.finite(group["exact_rate"]) else fmt.DASH))
            el("memorise-rows").appendChild(row)


def _bars(event):
    """For each model a row of paired bars: how many passages have a run of that length."""
    empty("memorise-bars")
    buckets = event.get("buckets") or []
    key = make("ul", cls="legend bars-key")
    key.appendChild(make("li", "passages it has learned from", "seen"))
    key.appendChild(make("li", "passages it never saw", "unseen"))
    el("memorise-bars").appendChild(key)
    for model in event.get("models") or []:
        most = max([1] + [n for group in model["groups"] for n in group["histogram"]])
        words = []
        for group in model["groups"]:
            some = [fmt.count(n) + " of length " + buckets[at] for at, n in enumerate(group["histogram"]) if n]
            words.append("Passages " + GROUPS[group["which"]] + ": " + ", ".join(some) + ".")
        chart = make("div", cls="bars", role="img", aria_label=model["name"] + ". " + " ".join(words))
        for at, label in enumerate(buckets):
            column = make("div", cls="bar-column")
            pair = make("div", cls="bar-pair")
            for group in model["groups"]:
                bar = make("span", cls="bar " + group["which"])
                bar.style.height = str(round(100 * group["histogram"][at] / most)) + "%"
                pair.appendChild(bar)
            column.appendChild(pair)
            column.appendChild(make("span", label, "bar-label"))
            chart.appendChild(column)
        el("memorise-bars").appendChild(make("h4", model["name"]))
        el("memorise-bars").appendChild(chart)


def _spans(event):
    """The copied spans in what was written, each with where it stands in the text."""
    empty("memorise-spans")
    spans = event.get("spans") or []
    show("memorise-spans-box", bool(spans))
    for span in spans:
        item = make("li")
        line = span["model"] + ": " + fmt.plural(span["length_bytes"], "byte") + " as in “" + str(span.get("text")) + "” from byte " + fmt.count(span["at"])
        line += " on (line " + fmt.count(span["line"]) + ")"
        if (span.get("places") or 1) > 1:
            line += " and in " + fmt.plural(span["places"] - 1, "other place")
        item.appendChild(make("p", line + ".", "hint"))
        body = make("p", cls="prose")
        body.appendChild(make("span", span.get("prefix") or "", "prompt"))
        body.appendChild(make("span", span.get("before") or ""))
        body.appendChild(make("mark", span.get("copied") or ""))
        body.appendChild(make("span", span.get("after") or ""))
        item.appendChild(body)
        el("memorise-spans").appendChild(item)


def _done(line):
    global _going
    _going = False
    text("memorise-stats", line)
    _buttons()


def _buttons():
    swap(_going, "memorise-start", "memorise-stop")
    show("memorise-progress", _going)


def worker_lost():
    if _going:
        _done("")


def start():
    on("memorise-start", "click", _start)
    on("memorise-stop", "click", _stop)
    wire.on("memorise.progress", _progress)
    wire.on("memorised", _memorised)
