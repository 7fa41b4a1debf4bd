"""Training settings: the worker's defaults as fields. What a person leaves alone is not sent, so the defaults live in one place."""

import fmt
import state
import wire
from dom import el, empty, make, number, on

# key -> (label, hint). Keys not named here still get a field, under their own name.
KNOWN = {
    "learning_rate": ("Learning rate", "How far one step moves the weights, at most"),
    "minimum_learning_rate_fraction": ("Final share of the rate", "What the learning rate fades to"),
    "warmup_steps": ("Warm-up steps", "The rate rises from zero; at most a tenth of the run"),
    "decay_steps": ("Fade-out ends at step", "Follows the number of steps"),
    "batch": ("Batch", "How many pieces of text one step reads"),
    "seed": ("Seed", "The same seed repeats the same run exactly"),
    "weight_decay": ("Weight decay", "Pulls weights to zero, against learning by heart"),
    "clip": ("Gradient clip", "Limits one step’s pull; 0 turns it off"),
    "beta1": ("Beta 1", "Memory of AdamW’s running mean"),
    "beta2": ("Beta 2", "Memory of AdamW’s running square"),
    "eps": ("Epsilon", "Keeps AdamW from dividing by zero"),
    "validation_fraction": ("Share for validation", "The end of the text, never trained on"),
    "evaluate_every_steps": ("Steps between validations", "Each draws one dot in the chart"),
    "evaluation_tokens": ("Tokens in a validation", "More is steadier and slower"),
}
ORDER = ["learning_rate", "minimum_learning_rate_fraction", "warmup_steps", "decay_steps", "batch", "seed", "weight_decay", "clip",
         "validation_fraction", "evaluate_every_steps", "evaluation_tokens", "beta1", "beta2", "eps"]
SEPARATE = ("steps",)  # has its own field beside the size

_fields = []  # keys drawn as fields
_default_batch = None
_followed = {}  # key -> what a field that follows the number of steps was set to last by us


def defaults():
    return (state.ready or {}).get("training") or {}


def steps():
    found = number("setting-steps")
    return found if found is not None else defaults().get("steps")


def batch():
    return number("setting-batch") if el("setting-batch") else None


def set_batch(size):
    """A preset brings its batch along; a changed field stays as it was typed only until the next preset."""
    global _default_batch
    _default_batch = size
    if el("setting-batch"):
        el("setting-batch").value = str(size)


def training():
    """The settings that differ from the defaults, always with steps. Raises ValueError with a sentence."""
    chosen = {}
    standard = defaults()
    for key in _fields:
        box = el("setting-" + key)
        if key == "batch":
            continue  # part of the model's size in a request
        if box.type == "checkbox":
            if bool(box.checked) != standard.get(key):
                chosen[key] = bool(box.checked)
            continue
        if not str(box.value).strip():
            if box.validity.badInput:
                raise ValueError("“" + _label(key) + "” needs a number.")
            continue
        found = number(box)
        if found is None:
            raise ValueError("“" + _label(key) + "” needs a number.")
        if found != standard.get(key):
            chosen[key] = found
    count = number("setting-steps")
    if count is None and el("setting-steps").validity.badInput:
        raise ValueError("“Steps” needs a number.")
    if count is None:
        count = standard.get("steps")
    if count is not None:
        chosen["steps"] = count
    return chosen


def _label(key):
    if key in KNOWN:
        return KNOWN[key][0]
    words = key.replace("_", " ")
    return words[0].upper() + words[1:]


def _draw(event=None):
    global _fields
    _followed.clear()
    standard = defaults()
    known = [key for key in ORDER if key in standard or key == "batch"]
    others = sorted(key for key in standard if key not in known and key not in SEPARATE)  # MicroPython's dicts keep no order
    _fields = [key for key in known + others if key == "batch" or isinstance(standard[key], (int, float, bool))]
    empty("settings-fields")
    for key in _fields:
        default = _default_batch or 16 if key == "batch" else standard[key]
        field = make("div", cls="field")
        hint = KNOWN.get(key, ("", ""))[1]
        field.appendChild(make("label", _label(key), **{"for": "setting-" + key}))
        if isinstance(default, bool):
            box = make("input", type="checkbox", id="setting-" + key)
            box.checked = default
        else:
            whole = isinstance(default, int)
            box = make("input", type="number", id="setting-" + key, min="0", step="1" if whole and key != "clip" else "any",
                       inputmode="numeric" if whole else "decimal", value=_plain(default))
        if hint:
            box.setAttribute("aria-describedby", "setting-" + key + "-hint")
        field.appendChild(box)
        if hint:
            field.appendChild(make("p", hint, "hint", id="setting-" + key + "-hint"))
        el("settings-fields").appendChild(field)
    if not str(el("setting-steps").value).strip():  # may have been typed before the trainer was ready
        el("setting-steps").value = _plain(standard.get("steps", ""))
    _follow(None)


def _suit(event):
    """The default rate suits the width: an untouched field follows it, a typed one stays."""
    rate, standard, box = event.get("default_learning_rate"), defaults(), el("setting-learning_rate")
    if rate is None or box is None or "learning_rate" not in standard:
        return
    if number(box) == float(_plain(standard["learning_rate"])):
        box.value = _plain(rate)
        standard["learning_rate"] = number(box)


def _plain(value):
    """0.0003 as 0.0003, not 3e-04."""
    if isinstance(value, float):
        if value == int(value):
            return str(int(value))
        return fmt.significant(value, 6).rstrip("0") if 1e-7 <= abs(value) < 1e6 else str(value)
    return str(value)


def _reset(event):
    el("setting-steps").value = ""
    _draw()
    import sizes

    sizes.request()


def _follow(event):
    """By default the fade-out ends with the run and the warm-up is a small part of it: keep that so, unless the person has set them apart."""
    standard, count = defaults(), steps()
    if count is None:
        return
    if standard.get("decay_steps") == standard.get("steps"):
        _set("decay_steps", count)
    if "warmup_steps" in standard:
        end = number("setting-decay_steps") if el("setting-decay_steps") else None
        _set("warmup_steps", max(0, min(standard["warmup_steps"], int(count if end is None else min(end, count)) // 10)))


def _set(key, wanted):
    """Set a field that nobody has touched."""
    box = el("setting-" + key)
    if box and number(box) == _followed.get(key, defaults()[key]):
        _followed[key] = wanted
        box.value = str(wanted)


def start():
    wire.on("ready", _draw)
    wire.on("planned", _suit)
    on("setting-steps", "input", _follow)
    on("settings-fields", "input", _follow)
    on("settings-reset", "click", _reset)
