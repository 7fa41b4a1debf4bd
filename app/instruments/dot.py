"""Two arrows in a plane and their dot product."""

import math

import lesson_draw as draw

FIRST = (80.0, 0.0)
SCALE = 0.05  # drawing units to numbers


def build(place, settings):
    now = {"angle": 40.0, "length": 80.0}
    picture = draw.drawing(240, 200, "Two arrows from one point")
    lines = [draw.svg("line", cls=name, x1=120, y1=100) for name in ("arrow first", "arrow second")]
    ends = [draw.svg("circle", cls=name, r=5) for name in ("tip first", "tip second")]
    shadow = draw.svg("line", cls="shadow", x1=120, y1=100)
    for part in [shadow] + lines + ends:
        picture.appendChild(part)
    place.appendChild(picture)
    say = draw.said(place)

    def point(line, end, x, y):
        line.setAttribute("x2", str(round(120 + x, 1)))
        line.setAttribute("y2", str(round(100 - y, 1)))
        if end is not None:
            end.setAttribute("cx", str(round(120 + x, 1)))
            end.setAttribute("cy", str(round(100 - y, 1)))

    def show():
        x = now["length"] * math.cos(math.radians(now["angle"]))
        y = now["length"] * math.sin(math.radians(now["angle"]))
        point(lines[0], ends[0], *FIRST)
        point(lines[1], ends[1], x, y)
        point(shadow, None, x, 0.0)
        dot = FIRST[0] * SCALE * x * SCALE
        cosine = math.cos(math.radians(now["angle"]))
        much = "They point the same way, more or less." if cosine > 0.1 else "They point opposite ways." if cosine < -0.1 else "Neither with nor against each other."
        say("Dot product " + draw.plain(round(dot, 2)) + ", cosine " + draw.plain(round(cosine, 2)) + ". " + much)

    def turn(value):
        now["angle"] = value
        show()

    def stretch(value):
        now["length"] = value / SCALE
        show()

    draw.knob(place, "Angle", 0, 180, 5, 40, turn, lambda value: draw.plain(value) + "°")
    draw.knob(place, "Length", 1, 5, 0.5, 4, stretch)
    show()
