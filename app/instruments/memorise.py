"""A curve with a chosen number of numbers through ten noisy points, and its error there and at ten points it has not seen."""

import math

import lesson_draw as draw

COUNT = 10
NOISE = (0.21, -0.33, 0.12, 0.35, -0.27, 0.08, -0.36, 0.29, -0.14, 0.22)
OTHER = (-0.25, 0.18, 0.31, -0.12, 0.26, -0.34, 0.15, -0.2, 0.33, -0.09)
LEFT, WIDE, MIDDLE, UNIT = 20, 440, 120, 62


def truth(x):
    return math.sin(3 * x)


SEEN = [(-1 + 2 * at / 9, truth(-1 + 2 * at / 9) + NOISE[at]) for at in range(COUNT)]
UNSEEN = [(-0.94 + 1.88 * at / 9 + (0.05 if at % 2 else -0.03), truth(-0.94 + 1.88 * at / 9 + (0.05 if at % 2 else -0.03)) + OTHER[at]) for at in range(COUNT)]


def powers(x, numbers):
    """Chebyshev's polynomials at x: a basis in which a fit of many numbers stays exact."""
    found = [1.0, x]
    while len(found) < numbers:
        found.append(2 * x * found[-1] - found[-2])
    return found[:numbers]


def fit(numbers):
    """Least squares over the ten seen points: normal equations, solved with pivots."""
    rows = [powers(x, numbers) for x, _ in SEEN]
    table = [[sum([row[i] * row[j] for row in rows]) for j in range(numbers)] + [sum([row[i] * y for row, (_, y) in zip(rows, SEEN)])] for i in range(numbers)]
    for at in range(numbers):
        best = max(range(at, numbers), key=lambda i: abs(table[i][at]))
        table[at], table[best] = table[best], table[at]
        for i in range(numbers):
            if i != at:
                share = table[i][at] / table[at][at]
                table[i] = [a - share * b for a, b in zip(table[i], table[at])]
    return [table[at][numbers] / table[at][at] for at in range(numbers)]


def value(weights, x):
    return sum([weight * power for weight, power in zip(weights, powers(x, len(weights)))])


def error(weights, points):
    """Root mean square of what it is off."""
    return math.sqrt(sum([(value(weights, x) - y) ** 2 for x, y in points]) / len(points))


def at_place(x, y):
    return round(LEFT + WIDE * (x + 1.02) / 2.04, 1), round(MIDDLE - UNIT * max(-1.9, min(1.9, y)), 1)


def build(place, settings):
    picture = draw.drawing(480, 240, "Ten points a curve is fitted to, ten it has not seen, and the curve")
    curve = draw.svg("path", cls="curve first")
    picture.appendChild(curve)
    for points, cls in ((SEEN, "seen-dot"), (UNSEEN, "unseen-dot")):
        for x, y in points:
            cx, cy = at_place(x, y)
            picture.appendChild(draw.svg("circle", cls=cls, cx=cx, cy=cy, r=5))
    place.appendChild(picture)
    update = draw.bars(place, [("", 0, ""), ("", 0, "")])
    say = draw.said(place)

    def show(number):
        weights = fit(int(number))
        points = []
        for at in range(121):
            x = -1 + 2 * at / 120
            px, py = at_place(x, value(weights, x))
            points.append(str(px) + " " + str(py))
        curve.setAttribute("d", "M" + " L".join(points))
        seen, unseen = error(weights, SEEN), error(weights, UNSEEN)
        update([("seen", seen, draw.plain(round(seen, 3))), ("held out", unseen, draw.plain(round(unseen, 3)))])
        words = str(int(number)) + (" number: " if number == 1 else " numbers: ")
        if number >= COUNT:
            say(words + "as many as points. The curve goes through every one, noise and all, and is far off between them.")
        elif unseen > 1.4 * seen:
            say(words + "it is off by " + draw.plain(round(seen, 2)) + " where it was fitted and by " + draw.plain(round(unseen, 2)) + " elsewhere. It begins to learn the noise.")
        elif seen > 0.4:
            say(words + "too few to bend as the points do. It is as wrong where it was fitted as elsewhere.")
        else:
            say(words + "it follows the bend and leaves the noise alone.")

    draw.knob(place, "Numbers", 1, COUNT, 1, 4, show)
    show(4)
