"""How a run may spare memory: the choices that a plan offers, in words, and the one that a person takes."""

import fmt
from dom import chosen, el, empty, make, show, text

AUTO = "auto"

_choices = []  # as the last plan offered them
_on_change = None


def fields():
    """The part of a request: nothing where the trainer may choose, else {"saving": …}."""
    name = chosen("saving") or AUTO
    for choice in _choices:
        if choice["name"] == name:
            return {"saving": choice["saving"]}
    return {}


def what(saving, layers):
    """What a way of sparing does, in words; "" where it does nothing."""
    parts = []
    blocks = saving.get("recompute") or 0
    if blocks:
        which = "all blocks" if layers and blocks >= layers else fmt.count(blocks) + (" of " + fmt.count(layers) if layers else "") + " blocks"
        parts.append("computes the activations of " + which + " again")
    if (saving.get("micro_batches") or 1) > 1:
        parts.append("takes each batch in " + fmt.count(saving["micro_batches"]) + " parts")
    moments = saving.get("moments") or "f32"
    if moments != "f32":
        parts.append("keeps AdamW’s moments in " + ("16" if moments == "bf16" else "8") + " bits")
    return ", ".join(parts)


def _title(choice, layers):
    words = what(choice["saving"], layers)
    if choice["name"] == "smallest":
        return "As small as it gets: " + words if words else "As small as it gets"
    return words[0].upper() + words[1:] if words else "Keeps everything"


def _cost(choice):
    extra = choice.get("extra_time")
    words = fmt.size(choice.get("total_bytes"))
    if fmt.finite(extra):
        percent = round(100 * extra)
        words += " · " + ("no slower" if percent <= 0 else "about " + str(percent) + fmt.SPACE + "% more time a step")
    if not choice.get("fits", True):
        words += " · does not fit here"
    return words


def draw(plan):
    """Offer what a plan says; None: nothing is known, and the last offer goes on."""
    global _choices
    offered = (plan or {}).get("choices") or []
    if plan is None:
        return
    layers = plan.get("layers")
    taken = what(plan.get("saving") or {}, layers)
    text("saving-taken", "So that it fits, this run " + taken + "." if taken and (chosen("saving") or AUTO) == AUTO else "")
    if [_key(choice, layers) for choice in offered] == [_key(choice, layers) for choice in _choices]:
        return  # the same words: a radio button that has the focus must not be replaced
    picked = chosen("saving") or AUTO
    _choices = offered
    names = [choice["name"] for choice in offered]
    focused = str(getattr(_active(), "id", "") or "")
    show("saving-box", bool(offered))
    empty("saving-choices")
    _add(AUTO, "Whatever is quickest and fits", "The default. Moments stay in full.", picked not in names)
    for choice in offered:
        _add(choice["name"], _title(choice, layers), _cost(choice), choice["name"] == picked)
    if focused.startswith("saving-") and el(focused):
        el(focused).focus()
    if any(choice["name"] == picked and choice["saving"] != plan.get("saving") for choice in offered):
        _on_change(None)  # the way has other numbers at this size


def _active():
    import js

    return js.document.activeElement


def _key(choice, layers):
    return (choice["name"], _title(choice, layers), _cost(choice))


def _add(name, title, hint, checked):
    label = make("label", cls="way")
    radio = make("input", type="radio", name="saving", id="saving-" + name, value=name, aria_describedby="saving-" + name + "-hint")
    radio.checked = checked
    radio.addEventListener("change", _on_change)
    label.appendChild(radio)
    words = make("span")
    words.appendChild(make("span", title))
    words.appendChild(make("small", hint, "hint", id="saving-" + name + "-hint"))
    label.appendChild(words)
    el("saving-choices").appendChild(label)


def start(changed):
    """`changed` is called when another way is taken."""
    global _on_change
    _on_change = changed
