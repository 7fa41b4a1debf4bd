"""Inside, Features: a sparse autoencoder's settings, its progress, and a list of what it found. inside_feature.py shows one of them."""

import js

import fmt
import inside
import inside_feature
import notices
import state
import wire
from dom import button, el, empty, make, number, on, show, swap, text, value
from inside_attention import percent

PAGE = 20
WHAT = {"reading": "Reading the text", "training": "Training, step", "looking": "Looking through the text",
        "judging": "Trying them in the model on text it has not seen"}
FIELDS = (("features", "features-width", "How many features"), ("steps", "features-steps", "Steps"))

_going = False
_first = _total = 0
_of = None  # the run that what is shown was found in
_stale = False


def draw(event):
    show("features-result", _of is not None and _of == (state.model or {}).get("run_id"))


def _start(event=None):
    global _going
    notices.clear("features")
    if not state.model:
        return notices.error("features", "There is no model yet. Press Train, or open a saved run under Runs.")
    if state.busy():
        return notices.error("features", "A run is going. Stop it first: features are of weights that stand still.")
    how = value("features-how")
    fields = {"how": how}
    for key, name, label in FIELDS + ((("k", "features-k", "At each token"),) if how == "topk" else ()):
        found = number(name)
        if found is None or found < 1 or found != int(found):
            return notices.error("features", "“" + label + "” needs a whole number above 0.")
        fields[key] = found
    if how == "l1":
        fields["l1"] = number("features-l1")
        if fields["l1"] is None or fields["l1"] < 0:
            return notices.error("features", "The price needs a number, 0 or more.")
    layer, where = number("features-layer"), value("features-where")
    if layer is not None:
        fields["address"] = "blocks." + str(layer) + "." + where
    elif str(value("features-layer")).strip() or where != "resid_post":
        return notices.error("features", "Give the layer’s number: the first is 0.")
    _going = True
    _drop()
    text("features-stats", "Reading the text…")
    el("features-progress").removeAttribute("value")
    _buttons()
    return wire.send("features.train", fields, "features")


def _failed(event):
    if event.get("place") == "features" and _going:
        _done("")


def _progress(event):
    if not _going:
        return
    bar = el("features-progress")
    bar.max = event["total"]
    bar.value = event["done"]
    line = WHAT[event["what"]] + " " + fmt.count(event["done"]) + " of " + fmt.count(event["total"])
    if event["what"] == "training":
        line += ": " + _figures(event)
    text("features-stats", line)


def _figures(event):
    return (fmt.fixed(event["l0"], 1) + " fire at a token, " + percent(event["explained"]) + " explained, error " + fmt.significant(event["squared_error"])
            + ", " + percent(event["dead"]) + " of features dead")


def _stop(event):
    wire.send("features.stop", {}, "features")
    text("features-stats", "Stopping…")


def _trained(event):
    global _of
    if not event.get("features"):
        if _going:
            _done("Ended: the model is not what it was when the search began." if event.get("changed") else "Stopped before there was anything to show.")
        return
    _of = (state.model or {}).get("run_id")
    _outdated({"outdated": False})
    inside_feature.begin_with(event.get("opening"))
    found = event["recovered"]
    line = "With these features in place of the numbers the model keeps " + percent(found["recovered"]) + " of what the numbers gave it."
    if not fmt.finite(found["recovered"]):
        line = "How much the features keep cannot be told: with nothing there the model does no worse."
    text("features-says", line)
    text("features-facts", "Of " + event["address"] + ": " + fmt.count(event["alive"]) + " of " + fmt.count(event["features"]) + " features fire in " + fmt.count(event["seen_tokens"])
         + " tokens. On text it has not seen the loss is " + fmt.fixed(found["loss_nats"], 3) + " nats; through the features " + fmt.fixed(found["replaced_nats"], 3) + ", with nothing there "
         + fmt.fixed(found["zeroed_nats"], 3) + "; " + fmt.fixed(found["l0"], 1) + " fire at a token, " + percent(found["explained"]) + " explained." + inside.elsewhere(event, "Read on"))
    _done(("Stopped by you at step " if event["stopped"] else "Done: step ") + fmt.count(event["training"]["step"]) + ".")
    show("features-result", True)
    show("features-export", True)
    notices.announce(line)
    _page(0)


def _outdated(event):
    """The model has other weights than those the features are of; or, as before, those."""
    global _stale
    stale = event["outdated"]
    again, _stale = _stale and not stale, stale
    show("features-outdated", stale)
    if stale:
        of = "step " + fmt.count(event["step"]) if event.get("step") is not None else "the model as it was"
        why = "of " + of + ", and the model has been trained on" if event["trained"] else "of the model with another adapter, or at another strength"
        text("features-outdated", "Out of date: these features are " + why + ". Find them anew to see it as it is now. What is shown, and the file, stay true of " + (of if event["trained"] else "what it was") + ".")
    for each in js.document.querySelectorAll("#features-result :is(button, select, input, textarea)"):
        if each.id != "feature-write-stop":
            each.disabled = stale
    if again:
        _ends()


def _done(line):
    global _going
    _going = False
    text("features-stats", line)
    _buttons()


def _buttons():
    swap(_going, "features-start", "features-stop")
    show("features-progress", _going)


def _drop():
    """What was found is of another model, or is being found anew."""
    global _of
    _of = None
    show("features-result", False)
    show("features-export", False)
    inside_feature.drop()


def _page(first):
    wire.send("features.list", {"by": value("features-by"), "first": first, "count": PAGE}, "features", answered=_listed)


def _listed(event):
    global _first, _total
    if event["kind"] == "failed":
        return None if _stale else _drop()
    _first, _total = event["first"], event["total"]
    empty("features-rows")
    for row in event["rows"]:
        line = make("tr")
        head = make("th", scope="row")
        head.appendChild(button(str(row["index"]), lambda event, row=row: inside_feature.ask(row["index"]), cls="quiet-button", id="feature-" + str(row["index"]), aria_label="Feature " + str(row["index"])))
        line.appendChild(head)
        line.appendChild(make("td", percent(row["density"], 2)))
        line.appendChild(make("td", fmt.fixed(row["most"], 2)))
        el("features-rows").appendChild(line)
    last = _first + len(event["rows"])
    text("features-page", (fmt.count(_first + 1) + " to " + fmt.count(last) + " of " + fmt.count(_total)) if last else "None fires.")
    _ends()
    if event["rows"]:
        inside_feature.ask(event["rows"][0]["index"])


def _ends():
    el("features-back").disabled = _first == 0
    el("features-more").disabled = _first + PAGE >= _total


def _changed():
    if _going and state.lost:
        _done("")
    if _of is not None and _of != (state.model or {}).get("run_id"):
        _drop()
        text("features-stats", "")


def _how(event):
    show("features-k-box", value("features-how") == "topk")
    show("features-l1-box", value("features-how") == "l1")


def start():
    inside.add("features", None, draw)
    on("features-start", "click", _start)
    on("features-stop", "click", _stop)
    on("features-how", "change", _how)
    on("features-by", "change", lambda event: _page(0))
    on("features-back", "click", lambda event: _page(max(0, _first - PAGE)))
    on("features-more", "click", lambda event: _page(_first + PAGE))
    on("features-export", "click", lambda event: wire.send("features.export", {}, "features"))
    wire.on("features.progress", _progress)
    wire.on("features.trained", _trained)
    wire.on("features.outdated", _outdated)
    wire.on("failed", _failed)
    state.watch(_changed)
    inside_feature.start()
