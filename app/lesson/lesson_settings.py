"""A teacher's link: #learn/NAME?preset=small&steps=500&learning_rate=0.001 opens the lesson with the Train view set up so. Settings
only: a link carries no text and no model."""

import js
from pyscript.js_modules import bridge

import notices
from dom import button, chosen, document, el, make, value

FIELDS = (("steps", "setting-steps"), ("learning_rate", "setting-learning_rate"), ("batch", "size-batch"))
_state = {"used": ""}


def _given(asked):
    found = {}
    for pair in asked.split("&"):
        name, _, said = pair.partition("=")
        if said:
            found[name] = str(js.decodeURIComponent(said))
    return found


def use(asked):
    """Set the Train view up as a link asks; what it does not know it says and leaves."""
    if not asked or asked == _state["used"]:
        return
    _state["used"] = asked
    wanted, done, left = _given(asked), [], []
    preset = wanted.pop("preset", None)
    if preset is not None:
        _pick("preset", preset, done, left)
    text = wanted.pop("text", None)
    if text is not None:
        _pick("corpus", {"shakespeare": "bundled"}.get(text, ""), done, left, "text")
    for name, field in FIELDS:
        said = wanted.pop(name, None)
        if said is None:
            continue
        place = el(field)
        try:
            fine = float(said) > 0
        except ValueError:
            fine = False
        if place is None or not fine or place.disabled:
            left.append(name)
            continue
        place.value = said
        for kind in ("input", "change"):
            place.dispatchEvent(js.Event.new(kind, js.JSON.parse('{"bubbles": true}')))
        done.append(name.replace("_", " ") + " " + said)
    left += list(wanted)
    if done:
        notices.notice("learn", "This link set up Train: " + ", ".join(done) + ".")
    if left:
        notices.error("learn", "The link also named " + ", ".join(left)[:80] + ", which this page could not use as given.")


def _pick(group, wanted, done, left, said=None):
    for mark in document.querySelectorAll("input[name=" + group + "]"):
        if str(mark.value) == wanted and not mark.disabled:
            mark.click()
            done.append(str(mark.parentElement.textContent).strip())
            return
    left.append(said or group)


def link(name):
    """The address of a lesson with the settings that Train shows now."""
    asked = ["preset=" + str(chosen("preset") or "medium")]
    if chosen("corpus") == "bundled":
        asked.append("text=shakespeare")
    for key, field in FIELDS[:2]:
        if el(field) is not None and str(value(field)).strip():
            asked.append(key + "=" + str(js.encodeURIComponent(str(value(field)).strip())))
    return str(bridge.learn.here()) + "#learn/" + name + "?" + "&".join(asked)


def share(name):
    """A fold with the link and a button that copies it."""
    box = make("details", cls="plain share")
    box.appendChild(make("summary", "A link for a class"))
    box.appendChild(make("p", "It opens this lesson with the size, steps and learning rate that Train shows now. It carries settings only, no text and no model.", "hint"))
    row = make("div", cls="row")
    field = make("input", type="text", readonly="", aria_label="Link to this lesson")
    row.appendChild(field)
    row.appendChild(button("Copy", lambda event: bridge.copy(str(field.value), lambda done: notices.announce("Copied." if done else "Select the link and copy it."))))
    box.appendChild(row)

    def opened(event):
        field.value = link(name)

    box.addEventListener("toggle", opened)
    return box
