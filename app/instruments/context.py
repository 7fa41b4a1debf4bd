"""A text with one place marked: what the model sees from there, what it must guess, what is out of sight. Settings: text, context."""

import lesson_draw as draw
from dom import make


def build(place, settings):
    text = settings.get("text", "To be, or not to be")
    context = int(draw.numbers(settings, "context", [8])[0])
    line = make("p", cls="context-line prose")
    letters = []
    for letter in text:
        made = make("span", "␣" if letter == " " else letter, "context-letter")
        line.appendChild(made)
        letters.append(made)
    place.appendChild(line)
    say = draw.said(place)

    def show(value):
        at = int(value)
        start = max(0, at - context)
        for index, made in enumerate(letters):
            kind = "seen" if start <= index < at else "guess" if index == at else "forgotten" if index < start else "hidden"
            made.className = "context-letter " + kind
        before = text[start:at]
        say(
            "The model sees “" + before + "” and must guess “" + text[at] + "”. "
            + ("What stands to the right is hidden." if at < len(text) - 1 else "")
            + (" Before that, " + str(start) + " letters are out of its context." if start else "")
        )

    draw.knob(place, "Place", 1, len(text) - 1, 1, 4, show, lambda value: str(int(value) + 1))
    show(4)
