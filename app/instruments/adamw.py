"""The way of one weight through a valley, by plain descent and by Adam, side by side."""

import math

import lesson_draw as draw

START, BEST, STEPS = -2.5, 1.0, 40


def ways(rate, scale):
    """(plain, adam): where the weight is after each step of both."""
    plain, adam = [START], [START]
    m = v = 0.0
    for step in range(1, STEPS + 1):
        gradient = scale * 2 * (plain[-1] - BEST)
        plain.append(max(-1e6, min(1e6, plain[-1] - rate * gradient)))
        gradient = scale * 2 * (adam[-1] - BEST)
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient * gradient
        adam.append(adam[-1] - rate * (m / (1 - 0.9**step)) / (math.sqrt(v / (1 - 0.99**step)) + 1e-8))
    return plain, adam


def build(place, settings):
    now = {"rate": 0.1, "scale": 0.0}
    picture = draw.drawing(480, 220, "A valley, with the ways of plain descent and of Adam into it")

    def x(weight):
        return 240 + 60 * max(-4.0, min(4.0, weight))

    def y(weight):
        return 200 - 10 * min(18.0, (max(-4.0, min(4.0, weight)) - BEST) ** 2)

    curve = "M" + " L".join([str(round(x(at / 10), 1)) + " " + str(round(y(at / 10), 1)) for at in range(-40, 41)])
    picture.appendChild(draw.svg("path", cls="edge", d=curve, fill="none"))
    dots = {name: [draw.svg("circle", cls="dot-" + name, r=4) for _ in range(STEPS + 1)] for name in ("plain", "adam")}
    for name in ("plain", "adam"):
        for dot in dots[name]:
            picture.appendChild(dot)
    place.appendChild(picture)
    say = draw.said(place)

    def words(name, way):
        last = way[-1]
        if abs(last) > 100 or last != last:
            return name + " flies apart"
        return name + " ends at " + draw.plain(round(last, 2))

    def show():
        plain, adam = ways(now["rate"], 10 ** now["scale"])
        for name, way, lift in (("plain", plain, 6), ("adam", adam, -6)):
            for dot, weight in zip(dots[name], way):
                dot.setAttribute("cx", str(round(x(weight), 1)))
                dot.setAttribute("cy", str(round(y(weight) - 8 + lift, 1)))
        say("The best is 1. After 40 steps " + words("plain descent (blue, below)", plain) + ", " + words("Adam (orange, above)", adam) + ".")

    def rate(value):
        now["rate"] = 10**value
        show()

    def scale(value):
        now["scale"] = value
        show()

    draw.knob(place, "Learning rate", -3, 0.3, 0.1, -1, rate, lambda value: draw.plain(round(10**value, 4)))
    draw.knob(place, "Size of the gradients", -3, 1.5, 0.5, 0, scale, lambda value: "× " + draw.plain(round(10**value, 3)))
    show()
