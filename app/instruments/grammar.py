"""A clock time, letter by letter: what would break the rule cannot be pressed."""

import lesson_draw as draw
from dom import button, make

KEYS = "0123456789:"


def allowed(text):
    """The letters that may follow in HH:MM, from 00:00 to 23:59."""
    at = len(text)
    if at == 0:
        return "012"
    if at == 1:
        return "0123" if text[0] == "2" else "0123456789"
    if at == 2:
        return ":"
    if at == 3:
        return "012345"
    return "0123456789" if at == 4 else ""


def build(place, settings):
    state = {"text": ""}
    shown = make("p", cls="prose clock-text")
    place.appendChild(shown)
    keys = make("div", cls="row clock-keys")
    made = {}
    say = draw.said(place)

    def show():
        text = state["text"]
        shown.textContent = text + "_" * (5 - len(text))
        may = allowed(text)
        for key, press in made.items():
            press.setAttribute("aria-disabled", "false" if key in may else "true")
        if may:
            say("Allowed now: " + " ".join(may) + ". All others have no chance, however much the model likes them.")
        else:
            say("The rule is kept: " + text + " is a time. Nothing may follow.")

    def pressed(key):
        def press(event):
            if key in allowed(state["text"]):
                state["text"] += key
                show()

        return press

    for key in KEYS:
        made[key] = button(key, pressed(key), "clock-key")
        keys.appendChild(made[key])
    place.appendChild(keys)

    def again(event):
        state["text"] = ""
        show()

    row = make("div", cls="row")
    row.appendChild(button("Begin again", again, "quiet-button"))
    place.appendChild(row)
    show()
