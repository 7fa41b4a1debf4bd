"""The adapter to come: rank, alpha, what it may change, steps and rate; with how much of the model that is."""

from pyscript.js_modules import bridge

import fmt
import notices
import state
import tune_data
import wire
from dom import el, empty, make, number, on, text

TARGETS = (("attn.q", "Queries"), ("attn.k", "Keys"), ("attn.v", "Values"), ("attn.qkv", "Queries, keys and values as one"),
           ("attn.proj", "Attention’s output"), ("mlp.fc", "MLP, in"), ("mlp.proj", "MLP, out"))
FIELDS = {"rank": "tune-rank", "alpha": "tune-alpha"}
LABELS = {"tune-rank": "Rank", "tune-alpha": "Alpha", "tune-steps": "Steps", "tune-learning-rate": "Learning rate", "tune-beta": "Beta"}

_timer = None
_latest = 0
_defaults = {}
_filled = {}  # field -> what was put there last by us


def _needed(name, whole=False, zero=False):
    found = number(name)
    if found is None or found < 0 or (found == 0 and not zero) or (whole and found != int(found)):
        raise ValueError("“" + LABELS[name] + "” needs a " + ("whole " if whole else "") + "number above 0.")
    return found


def adapter():
    """Rank, alpha, targets and rslora of the adapter. Raises ValueError with a sentence."""
    targets = [name for name, _ in TARGETS if el("target-" + name) and el("target-" + name).checked]
    if not targets:
        raise ValueError("The adapter may change nothing yet: tick at least one part of the model.")
    return {"rank": _needed("tune-rank", whole=True), "alpha": _needed("tune-alpha"), "targets": targets, "rslora": bool(el("tune-rslora").checked)}


def training():
    """Steps, learning rate and (for preferences) beta. Raises ValueError with a sentence."""
    settings = {"steps": _needed("tune-steps", whole=True), "learning_rate": _needed("tune-learning-rate")}
    if tune_data.how() == "preferences":
        settings["beta"] = _needed("tune-beta")
    return settings


def request(event=None):
    """Ask how large the adapter would be."""
    global _latest
    if not state.ready or not state.model:
        text("tune-facts", "Known once a model is open.")
        return
    notices.clear("tune-plan")
    try:
        fields = {"adapter": adapter()}
    except ValueError as problem:
        text("tune-facts", str(problem))
        return
    _latest = wire.send("tune.plan", fields, "tune-plan", answered=_planned)


def _soon(event=None):
    global _timer
    bridge.cancel(_timer)
    _timer = bridge.later(150, request)


def _planned(event):
    if event["reply_to"] != _latest:
        return
    if event["kind"] == "failed":
        text("tune-facts", "")
        return
    share = event["trainable"] / max(1, event["parameters"]) * 100
    text("tune-facts", fmt.plural(event["trainable"], "trainable parameter") + ", " + fmt.significant(share, 2) + " % of the model’s "
         + fmt.count(event["parameters"]) + "; " + fmt.size(event["bytes"]) + " as a file.")


def _ready(event):
    """The defaults live with the trainer."""
    global _defaults
    _defaults = event.get("tuning") or {}
    given = _defaults.get("adapter") or {}
    for key, name in FIELDS.items():
        if given.get(key) is not None and name not in _filled:
            _put(name, given[key])
    empty("tune-targets")
    for name, words in TARGETS:
        label = make("label", cls="check")
        box = make("input", type="checkbox", id="target-" + name)
        box.checked = name in (given.get("targets") or ["attn.q", "attn.v"])
        box.addEventListener("change", _target)
        label.appendChild(box)
        label.appendChild(make("span", words))
        el("tune-targets").appendChild(label)
    _suit()
    request()


def _target(event):
    """All of qkv as one and its thirds exclude each other."""
    name = str(event.target.id)[7:]
    others = ("attn.q", "attn.k", "attn.v") if name == "attn.qkv" else ("attn.qkv",) if name in ("attn.q", "attn.k", "attn.v") else ()
    if event.target.checked:
        for other in others:
            if el("target-" + other):
                el("target-" + other).checked = False
    _soon()


def _put(name, value):
    _filled[name] = _plain(value)
    el(name).value = _filled[name]


def _plain(value):
    if value == int(value):
        return str(int(value))
    return fmt.significant(value, 4).rstrip("0")


def _suit():
    """Each kind of learning has its own usual steps and rate: an untouched field follows, a typed one stays."""
    given = (_defaults.get("training") or {}).get(tune_data.how()) or {}
    for key, name in (("steps", "tune-steps"), ("learning_rate", "tune-learning-rate"), ("beta", "tune-beta")):
        if given.get(key) is not None and (name not in _filled or str(el(name).value) == _filled[name]):
            _put(name, given[key])


_model_seen = None


def _changed():
    global _model_seen
    _suit()
    model = (state.model or {}).get("run_id")
    if model != _model_seen:
        _model_seen = model
        request()


def start():
    wire.on("ready", _ready)
    for name in ("tune-rank", "tune-alpha"):
        on(name, "input", _soon)
    on("tune-rslora", "change", _soon)
    state.watch(_changed)
    text("tune-facts", "Known once a model is open.")
