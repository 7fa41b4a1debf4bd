"""Eight letters with probabilities, the sampler's knobs, and draws that are counted."""

import math
import random

import lesson_draw as draw
from dom import button, make

LETTERS = (("e", 2.4), ("a", 1.9), ("o", 1.6), ("i", 1.4), ("r", 0.6), ("n", 0.3), ("z", -1.6), ("q", -2.2))


def shares(temperature, top_k, top_p):
    """Probabilities after temperature, top-k and top-p, in this order, as the package's sampler has them."""
    top = max(score for _, score in LETTERS)
    powers = [math.exp((score - top) / temperature) for _, score in LETTERS]
    found = [power / sum(powers) for power in powers]
    order = sorted(range(len(found)), key=lambda at: -found[at])[: top_k or None]
    whole, kept, total = sum([found[at] for at in order]), [], 0.0
    for at in order:
        kept.append(at)
        total += found[at] / whole
        if total >= top_p:
            break
    whole = sum([found[at] for at in kept])
    return [found[at] / whole if at in kept else 0.0 for at in range(len(found))]


def build(place, settings):
    now = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    update = draw.bars(place, [("", 0, "") for _ in LETTERS])
    line = make("p", cls="prose instrument-draws")
    say = draw.said(place)

    def show():
        found = shares(now["temperature"], int(now["top_k"]), now["top_p"])
        update([(name, share, draw.percent(share)) for (name, _), share in zip(LETTERS, found)])
        kept = [name for (name, _), share in zip(LETTERS, found) if share > 0]
        say(str(len(kept)) + " letters may be drawn: " + " ".join(kept) + ".")

    set_ = draw.setter(now, show)
    draw.knob(place, "Temperature", 0.1, 3, 0.1, 1, set_("temperature"))
    draw.knob(place, "Top-k", 0, 8, 1, 0, set_("top_k"), lambda value: "off" if value == 0 else str(int(value)))
    draw.knob(place, "Top-p", 0.1, 1, 0.05, 1, set_("top_p"), lambda value: "off" if value >= 1 else draw.plain(round(value, 2)))

    def press(event=None):
        found = shares(now["temperature"], int(now["top_k"]), now["top_p"])
        drawn = ""
        for _ in range(24):
            left = random.random()
            for (name, _), share in zip(LETTERS, found):
                left -= share
                if left < 0 and share > 0:
                    drawn += name
                    break
        line.textContent = drawn

    row = make("div", cls="row")
    row.appendChild(button("Draw 24", press))
    place.appendChild(row)
    place.appendChild(line)
    show()
