"""Five versions of a gradient beside slopes that are measured; four have a fault, one of them only for some inputs."""

import math

import fmt
import lesson_draw as draw
from dom import button, make

WEIGHTS = (1.0, -2.0, 0.5, 3.0)
NAMES = "ABCDE"
RIGHT = 3
TOLERANCE = 1e-6
FAULTS = (
    "A forgot that the probabilities share a sum: it lacks a term.",
    "B is a hundredth too large. It would train, as with a slightly higher rate.",
    "C gives no gradient where a score is above 2. Below that it is right, and a check with small scores finds nothing.",
    "D is right.",
    "E took the weight of the neighbour.",
)


def probabilities(x):
    top = max(x)
    powers = [math.exp(score - top) for score in x]
    return [power / sum(powers) for power in powers]


def value(x):
    """f(x): the mean of the weights under softmax of the scores."""
    return sum([share * weight for share, weight in zip(probabilities(x), WEIGHTS)])


def claimed(version, x):
    p, f = probabilities(x), value(x)
    right = [p[i] * (WEIGHTS[i] - f) for i in range(4)]
    if version == 0:
        return [p[i] * WEIGHTS[i] for i in range(4)]
    if version == 1:
        return [1.01 * slope for slope in right]
    if version == 2:
        return [0.0 if x[i] > 2 else right[i] for i in range(4)]
    if version == 4:
        return [p[i] * (WEIGHTS[(i + 1) % 4] - f) for i in range(4)]
    return right


def measured(x, h):
    found = []
    for i in range(4):
        up, down = list(x), list(x)
        up[i] += h
        down[i] -= h
        found.append((value(up) - value(down)) / (2 * h))
    return found


def build(place, settings):
    now = {"version": 0, "x": [0.5, -1.0, 1.0, 0.0], "power": 4}
    note = make("p", "f(x) is a mean of the weights 1, −2, 0.5 and 3 by the softmax of four scores. Each version claims to be its gradient.", cls="prose")
    table = make("table", cls="gate-table")
    head = make("tr")
    for words in ("score", "claimed", "measured", "apart"):
        head.appendChild(make("th", words))
    table.appendChild(head)
    rows = []
    for _ in range(4):
        line, cells = make("tr"), [make("th"), make("td"), make("td"), make("td")]
        for cell in cells:
            line.appendChild(cell)
        table.appendChild(line)
        rows.append(cells)
    box = make("div", cls="lens-box", tabindex="0", role="region", aria_label="Claimed and measured slopes")
    box.appendChild(table)
    for part in (note, box):
        place.appendChild(part)

    def short(number):
        if number == 0:
            return "0"
        power = math.floor(math.log10(abs(number)))
        return fmt.fixed(number, 5) if power >= -4 else fmt.fixed(number / 10.0**power, 1) + " · 10^" + str(power)

    def show():
        claims, slopes = claimed(now["version"], now["x"]), measured(now["x"], 10.0 ** -now["power"])
        worst = 0.0
        for i, cells in enumerate(rows):
            apart = abs(claims[i] - slopes[i])
            worst = max(worst, apart)
            for cell, words in zip(cells, (fmt.fixed(now["x"][i], 1), short(claims[i]), short(slopes[i]), short(apart))):
                cell.textContent = words
            cells[3].className = "gate-broken" if apart > TOLERANCE else "gate-kept"
        words = "no number is more than a millionth apart here." if worst <= TOLERANCE else "the largest difference is " + short(worst) + ", where a millionth is allowed."
        say("Version " + NAMES[now["version"]] + ": " + words)

    def set_(name, kind):
        def moved(number):
            now[name] = kind(number)
            show()

        return moved

    def score(which):
        def moved(number):
            now["x"][which] = number
            show()

        return moved

    def call(event=None):
        chosen = now["version"]
        if chosen == RIGHT:
            say("Yes, D stays. What the others had: " + " ".join([fault for at, fault in enumerate(FAULTS) if at != RIGHT]))
        else:
            say("Not this one. " + FAULTS[chosen])

    draw.knob(place, "Version", 0, 4, 1, 0, set_("version", int), lambda number: NAMES[int(number)])
    draw.knob(place, "First score", -4, 4, 0.5, now["x"][0], score(0), lambda number: fmt.fixed(number, 1))
    draw.knob(place, "Third score", -4, 4, 0.5, now["x"][2], score(2), lambda number: fmt.fixed(number, 1))
    draw.knob(place, "Step", 1, 14, 1, now["power"], set_("power", int), lambda number: "10^-" + str(int(number)))
    row = make("div", cls="row")
    row.appendChild(button("This one is right", call))
    place.appendChild(row)
    say = draw.said(place)
    show()
