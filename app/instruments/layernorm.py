"""Four numbers before and after a layernorm, as bars around zero; knobs for the numbers, gain and shift."""

import math

import lesson_draw as draw

MOST = 10.0
EPS = 1e-5


def normed(numbers, gain, shift):
    """(values, mean, spread) of a layernorm, with the package's eps."""
    mean = sum(numbers) / len(numbers)
    variance = sum([(x - mean) ** 2 for x in numbers]) / len(numbers)
    scale = math.sqrt(variance + EPS)
    return [(x - mean) / scale * gain + shift for x in numbers], mean, math.sqrt(variance)


def build(place, settings):
    now = draw.numbers(settings, "numbers", [1.0, 2.0, 3.0, 6.0])
    learned = {"gain": 1.0, "shift": 0.0}
    picture = draw.drawing(420, 220, "The numbers before the norm on the left, after it on the right")
    middle, unit = 110, 9
    columns = []
    for side, (name, left) in enumerate((("before", 20), ("after", 230))):
        picture.appendChild(draw.svg("text", name, "name", x=left + 85, y=14, text_anchor="middle"))
        picture.appendChild(draw.svg("line", cls="edge", x1=left, x2=left + 170, y1=middle, y2=middle))
        for at in range(4):
            bar = draw.svg("rect", cls="second" if side else "first", x=left + 10 + 40 * at, width=30, rx=3)
            told = draw.svg("text", cls="number", x=left + 25 + 40 * at, text_anchor="middle")
            picture.appendChild(bar)
            picture.appendChild(told)
            columns.append((bar, told))
    place.appendChild(picture)
    say = draw.said(place)

    def show():
        after, mean, spread = normed(now, learned["gain"], learned["shift"])
        for (bar, told), value in zip(columns, now + after):
            height = min(MOST, abs(value)) * unit
            bar.setAttribute("height", str(round(height, 1)))
            bar.setAttribute("y", str(round(middle - height if value > 0 else middle, 1)))
            told.setAttribute("y", str(round(middle - height - 5 if value >= 0 else middle + height + 14, 1)))
            told.textContent = draw.plain(round(value, 3))
        words = "Mean " + draw.plain(round(mean, 2)) + ", spread " + draw.plain(round(spread, 2)) + "."
        if spread < 0.001:
            say(words + " All four are the same, so nothing is left but the shift.")
        else:
            say(words + " After the norm the mean is the shift, " + draw.plain(learned["shift"]) + ", and the spread the gain, " + draw.plain(learned["gain"]) + ".")

    def number(at):
        def moved(value):
            now[at] = value
            show()

        return moved

    set_ = draw.setter(learned, show)
    for at in range(4):
        draw.knob(place, "Number " + str(at + 1), -8, 8, 0.5, now[at], number(at))
    draw.knob(place, "Gain", 0, 3, 0.1, 1, set_("gain"))
    draw.knob(place, "Shift", -3, 3, 0.1, 0, set_("shift"))
    show()
