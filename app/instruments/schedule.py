"""A learning rate's schedule, and what a toy of six weights makes of it: Adam on a bowl, with noise in the gradients."""

import math

import lesson_draw as draw

STEPS = 200
PEAKS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
STARTS = (2.0, -1.6, 1.2, -0.9, 0.6, -0.3)
LEFT, WIDE, HIGH = 40, 430, 100


def rate(step, peak, warmup, floor):
    """As train/schedule.py has it: a linear rise, then a cosine down to `floor` of the peak."""
    if step <= warmup:
        return peak * step / (warmup + 1)
    share = (step - 1 - warmup) / max(1, STEPS - 1 - warmup)
    return peak * (floor + 0.5 * (1 - floor) * (1 + math.cos(math.pi * min(1.0, share))))


def run(peak, warmup, floor):
    """Distance from the best weights by step, as a root mean square; the gradient of a weight is its distance and noise."""
    x, m, v = list(STARTS), [0.0] * 6, [0.0] * 6
    dice, distances = 12345, []
    for step in range(1, STEPS + 1):
        distances.append(math.sqrt(sum([each * each for each in x]) / 6))
        now = rate(step, peak, warmup, floor)
        for at in range(6):
            dice = (1103515245 * dice + 12345) % 2147483648
            g = x[at] + 1.2 * (dice / 1073741824 - 1)
            m[at] = 0.9 * m[at] + 0.1 * g
            v[at] = 0.99 * v[at] + 0.01 * g * g
            x[at] -= now * (m[at] / (1 - 0.9**step)) / (math.sqrt(v[at] / (1 - 0.99**step)) + 1e-8)
    return distances


def end(distances):
    return sum(distances[-20:]) / 20


def path(values, top, bottom):
    """A curve of values from 0 at the bottom to `top`."""
    points = []
    for at, value in enumerate(values):
        x = LEFT + WIDE * at / (len(values) - 1)
        points.append(str(round(x, 1)) + " " + str(round(bottom - HIGH * min(1.0, value / top), 1)))
    return "M" + " L".join(points)


def build(place, settings):
    now = {"peak": 3, "warmup": 20, "floor": 0.1}
    picture = draw.drawing(480, 268, "Above the rate by step, below the distance from the best weights")
    for name, bottom in (("rate", 120), ("distance", 250)):
        picture.appendChild(draw.svg("line", cls="edge", x1=LEFT, x2=LEFT + WIDE, y1=bottom, y2=bottom))
        picture.appendChild(draw.svg("text", name, "name", x=8, y=bottom - HIGH + 4))
    picture.appendChild(draw.svg("text", "step " + str(STEPS), "name", x=LEFT + WIDE, y=265, text_anchor="end"))
    curves = (draw.svg("path", cls="curve first"), draw.svg("path", cls="curve second"))
    peak_said = draw.svg("text", cls="name", x=LEFT + WIDE, y=14, text_anchor="end")
    for part in curves + (peak_said,):
        picture.appendChild(part)
    place.appendChild(picture)
    say = draw.said(place)

    def show():
        peak, warmup, floor = PEAKS[int(now["peak"])], int(now["warmup"]), now["floor"]
        curves[0].setAttribute("d", path([rate(step, peak, warmup, floor) for step in range(1, STEPS + 1)], peak * 1.05, 120))
        distances = run(peak, warmup, floor)
        curves[1].setAttribute("d", path(distances, 1.4, 250))
        peak_said.textContent = "peak " + draw.plain(peak)
        own, less, more = end(distances), end(run(peak / 2, warmup, floor)), end(run(peak * 2, warmup, floor))
        words = "It ends " + draw.plain(round(own, 4)) + " from the best. With half the peak it would be " + draw.plain(round(less, 4)) + ", with twice the peak " + draw.plain(round(more, 4)) + ". "
        if less < 0.8 * own:
            say(words + "Too hot.")
        elif more < 0.8 * own or own > 1:
            say(words + "Too cold.")
        else:
            say(words + "About right.")

    set_ = draw.setter(now, show)
    draw.knob(place, "Peak", 0, len(PEAKS) - 1, 1, 3, set_("peak"), lambda value: draw.plain(PEAKS[int(value)]))
    draw.knob(place, "Warm-up", 0, 100, 5, 20, set_("warmup"))
    draw.knob(place, "Floor", 0, 1, 0.1, 0.1, set_("floor"), lambda value: draw.percent(value))
    show()
