"""How large a model: a preset or custom numbers, with what it costs before anything starts."""

from pyscript.js_modules import bridge

import corpus
import fmt
import notices
import recipe
import saving
import state
import wire
from dom import chosen, el, empty, make, number, on, sentences, show, text

# Names only, so that the buttons are there at once; the numbers come from the worker's presets.
EARLY_NAMES = ["tiny", "small", "medium", "large", "xl", "huge", "massive", "mega"]
FIELDS = [("layers", "Layers", 4), ("channels", "Width (channels)", 128), ("heads", "Heads", 4), ("context", "Context, in tokens", 128)]
MEMORY = [("weights_bytes", "Weights"), ("gradients_bytes", "Gradients"), ("moments_bytes", "AdamW’s two moments"),
          ("activations_bytes", "Activations"), ("scratch_bytes", "Scratch"), ("other_bytes", "Other"), ("total_bytes", "Together")]

_timer = None
_latest = 0
_shown_names = None
_refused = False  # the worker, or a field, says no to the present choice; dismissing the message does not change that


def choice():
    """The size part of a request: {"preset": name} or {"config": {…}}, and how memory is spared. Raises ValueError with a sentence."""
    fields = _model()
    fields.update(saving.fields())
    return fields


def _model():
    name = chosen("preset") or "medium"
    batch = recipe.batch()
    if name == "custom":
        config = {}
        for key, label, _ in FIELDS:
            found = number("size-" + key)
            if found is None:
                raise ValueError("“" + label + "” needs a number.")
            config[key] = found
        config["batch"] = batch or 16
        return {"config": config}
    preset = preset_numbers(name)
    if batch is not None and preset and batch != preset["batch"]:
        config = {}
        for key, _, _ in FIELDS:
            config[key] = preset[key]
        config["batch"] = batch
        return {"config": config, "preset": name}
    return {"preset": name}


def preset_numbers(name):
    return ((state.ready or {}).get("presets") or {}).get(name)


def label():
    return chosen("preset") or "medium"


def request(event=None):
    """Ask what the present choice costs, a moment after the last change. Until the answer the old one counts no more."""
    global _timer, _refused
    _refused = False
    state.plan = None
    notices.clear("plan")
    bridge.cancel(_timer)
    _timer = bridge.later(150, _ask)


def _ask():
    global _latest, _refused
    if not state.ready or state.busy():
        return
    try:
        fields = choice()
        fields["training"] = recipe.training()
    except ValueError as problem:
        _refused = True
        _facts(None)
        notices.error("plan", str(problem))
        return
    _latest = wire.send("plan", fields, "plan", answered=_answered)


def _answered(event):
    global _refused
    if event["reply_to"] != _latest:
        return
    _refused = event["kind"] == "failed"
    _facts(event if event["kind"] == "planned" else None)


def refusal():
    """Why the present choice cannot be trained, or None."""
    if _refused:
        return "The size cannot be used as it is (see under Size)."
    if state.plan and not state.plan.get("fits", True):
        return state.plan.get("reason") or "This model does not fit the memory of this tab."
    return None


def _facts(plan):
    state.plan = plan
    memory = (plan or {}).get("memory") or {}
    show("plan-memory-box", bool(memory))
    saving.draw(plan)
    if plan is None:
        text("plan-facts", fmt.DASH)
        text("plan-estimate", "")
        _warn([])
        state.changed()
        return
    text("plan-facts", fmt.count(plan.get("parameters")) + " parameters · " + fmt.size(memory.get("total_bytes")) + " of memory")
    estimate = ""
    if fmt.finite(plan.get("seconds_estimate")):
        steps = recipe.steps()
        about = fmt.about(plan["seconds_estimate"])
        estimate = about[0].upper() + about[1:] + (" for " + fmt.plural(steps, "step") if steps else "")
        if fmt.finite(plan.get("passes_over_corpus")):
            passes = plan["passes_over_corpus"]
            seen = str(round(passes * 100)) + "\u00a0% of the text" if passes < 1 else "the text " + fmt.significant(passes, 2) + " times"
            estimate += "; it reads " + seen
        estimate += "."
    text("plan-estimate", estimate)
    warnings = list(plan.get("warnings") or [])
    if not plan.get("fits", True) and plan.get("reason"):
        warnings.insert(0, plan["reason"])
    _warn(warnings)
    empty("plan-memory")
    for key, name in MEMORY:
        if memory.get(key) is not None and not (key == "scratch_bytes" and not memory[key]):
            row = make("div")
            row.appendChild(make("dt", name))
            row.appendChild(make("dd", fmt.size(memory[key])))
            el("plan-memory").appendChild(row)
    state.changed()


def _warn(warnings):
    sentences("plan-warnings", warnings)
    corpus.warned_elsewhere(warnings)


def _changed(event=None):
    name = chosen("preset")
    show("custom-box", name == "custom")
    preset = preset_numbers(name)
    if preset:
        for key, _, _ in FIELDS:
            el("size-" + key).value = str(preset[key])
        recipe.set_batch(preset["batch"])
        text("plan-facts", fmt.count(preset.get("parameters")) + " parameters")
    request()


def _draw(names):
    """The row of presets. Redrawn only when the worker knows other names, so nobody's focus is lost."""
    global _shown_names
    if names == _shown_names:
        return
    _shown_names = names
    picked = chosen("preset") or "medium"
    if picked not in names and picked != "custom":
        picked = "medium" if "medium" in names else names[0]
    empty("presets")
    for name in names + ["custom"]:
        choice_label = make("label")
        radio = make("input", type="radio", name="preset", id="preset-" + name, value=name)
        radio.checked = name == picked
        radio.addEventListener("change", _changed)
        choice_label.appendChild(radio)
        choice_label.appendChild(make("span", name))
        el("presets").appendChild(choice_label)


def _ready(event):
    presets = event.get("presets") or {}
    names = sorted(presets, key=lambda name: presets[name].get("parameters") or 0)
    if names:
        _draw(names)
    _changed()


def _engine(event):
    """Another engine is used now: it may have room for other sizes."""
    if state.ready and event.get("presets"):
        state.ready["presets"] = event["presets"]
        _ready(event)


def start():
    _draw(EARLY_NAMES)
    saving.start(request)
    for key, name, default in FIELDS:
        field = make("div", cls="field")
        field.appendChild(make("label", name, **{"for": "size-" + key}))
        box = make("input", type="number", id="size-" + key, min="1", step="1", inputmode="numeric", value=default)
        box.addEventListener("input", request)
        field.appendChild(box)
        el("custom-box").appendChild(field)
    on("setting-steps", "input", request)
    on("settings-fields", "input", request)
    wire.on("ready", _ready)
    wire.on("engine", _engine)
    wire.on("corpus", request)
    wire.on("ready", lambda event: bridge.chart.extend(recipe.steps() or 1))
