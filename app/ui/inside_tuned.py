"""Inside, layer by layer: a tuned lens, which learns how to read each layer, and the choice between it and the plain one."""

import fmt
import inside
import notices
import state
import wire
from dom import chosen, el, on, show, swap, text

_going = False
_of = None  # the model whose lens there is, as inside.py knows models


def fields():
    """What a request for the lens takes beside the text."""
    return {"which": "tuned" if _of is not None and _of == inside._model() and chosen("lens-which") == "tuned" else "plain"}


def _train(event=None):
    global _going
    notices.clear("inside")
    if state.busy():
        return notices.error("inside", "A run is going. Stop it first: a lens is for weights that stand still.")
    _going = True
    text("lens-tuned-says", "Learning to read each layer…")
    el("lens-progress").removeAttribute("value")
    _buttons()
    return wire.send("lens.train", {}, "inside", answered=_answered)


def _answered(event):
    if event["kind"] == "failed":
        _done("No lens was trained.")


def _step(event):
    if not _going:
        return
    bar = el("lens-progress")
    bar.max = event["steps"]
    bar.value = event["step"]
    worst = event["divergence_nats"][0]
    text("lens-tuned-says", "Step " + fmt.count(event["step"]) + " of " + fmt.count(event["steps"]) + ": at the embedding it is " + fmt.fixed(worst, 2) + " nats from what the model says in the end.")


def _trained(event):
    global _of
    if not event.get("usable"):
        return _done("The model has changed meanwhile, so this lens was let go.")
    _of = inside._model()
    _done("A tuned lens of " + fmt.plural(event["steps"], "step") + ". Training the model on makes it out of date." + inside.elsewhere(event, "It learned on"))
    el("lens-tuned").checked = True
    return inside.look() if chosen("inside-view") == "lens" else None


def _done(line):
    global _going
    _going = False
    text("lens-tuned-says", line)
    _buttons()


def _buttons():
    swap(_going, "lens-train", "lens-stop")
    show("lens-progress", _going)
    usable = _of is not None and _of == inside._model()
    el("lens-tuned").disabled = not usable
    if not usable:
        el("lens-plain").checked = True


def _failed(event):
    """The lens is not of these weights any more."""
    global _of
    if event["place"] == "inside" and fields()["which"] == "tuned" and chosen("inside-view") == "lens":
        _of = None
        _buttons()


def _changed():
    if _going and not state.model:
        _done("")  # the worker has ended
    _buttons()


def start():
    on("lens-train", "click", _train)
    on("lens-stop", "click", lambda event: wire.send("lens.stop", {}, "inside"))
    for name in ("plain", "tuned"):
        on("lens-" + name, "change", lambda event: inside.look())
    wire.on("lens.step", _step)
    wire.on("lens.trained", _trained)
    wire.on("failed", _failed)
    state.watch(_changed)
