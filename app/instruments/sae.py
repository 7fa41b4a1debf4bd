"""A point in a plane as the sum of one or two of six directions, none of them taken less than not at all."""

import math

import fmt
import lesson_draw as draw

ANGLES = (10, 65, 125, 190, 245, 305)
MIDDLE, UNIT = (240, 165), 75


def direction(which):
    angle = math.radians(ANGLES[which])
    return math.cos(angle), math.sin(angle)


def explained(x, y, k):
    """(amounts by direction, where they lead): the choice of k directions that ends nearest to the point."""
    best = (x * x + y * y, {}, (0.0, 0.0))
    for i in range(len(ANGLES)):
        (ax, ay) = direction(i)
        amount = max(0.0, x * ax + y * ay)
        best = nearer(best, x, y, {i: amount})
        if k == 2:
            for j in range(i):
                (bx, by) = direction(j)
                across = ax * by - ay * bx
                if abs(across) > 0.01:
                    first, second = (x * by - y * bx) / across, (ax * y - ay * x) / across
                    if first >= 0 and second >= 0:
                        best = nearer(best, x, y, {i: first, j: second})
    return best[1], best[2]


def nearer(best, x, y, amounts):
    """The better of two choices; of equally good ones that with the smaller amounts."""
    px = sum([amount * direction(which)[0] for which, amount in amounts.items()])
    py = sum([amount * direction(which)[1] for which, amount in amounts.items()])
    off = (x - px) * (x - px) + (y - py) * (y - py)
    if off < best[0] - 1e-9 or (off < best[0] + 1e-9 and sum(amounts.values()) < sum(best[1].values())):
        return off, amounts, (px, py)
    return best


def build(place, settings):
    picture = draw.drawing(480, 330, "Six directions in a plane, a point, and what explains it")
    place.appendChild(picture)
    now = {"angle": 35.0, "length": 1.4, "k": 1}
    arrows = []
    for which in range(len(ANGLES)):
        dx, dy = direction(which)
        arrow = draw.svg("line", cls="edge", x1=MIDDLE[0], y1=MIDDLE[1], x2=MIDDLE[0] + UNIT * dx, y2=MIDDLE[1] - UNIT * dy)
        picture.appendChild(arrow)
        picture.appendChild(draw.svg("text", which + 1, "name", x=round(MIDDLE[0] + 1.15 * UNIT * dx), y=round(MIDDLE[1] - 1.15 * UNIT * dy + 4), text_anchor="middle"))
        arrows.append(arrow)
    path = draw.svg("polyline", cls="curve first")
    miss = draw.svg("line", cls="sae-miss")
    dot = draw.svg("circle", cls="dot-adam", r=7)
    for part in (path, miss, dot):
        picture.appendChild(part)
    update = draw.bars(place, [("", 0, "") for _ in ANGLES])
    say = draw.said(place)

    def at(x, y):
        return round(MIDDLE[0] + UNIT * x, 1), round(MIDDLE[1] - UNIT * y, 1)

    def show():
        angle = math.radians(now["angle"])
        x, y = now["length"] * math.cos(angle), now["length"] * math.sin(angle)
        amounts, (px, py) = explained(x, y, now["k"])
        for which, arrow in enumerate(arrows):
            arrow.setAttribute("class", "arrow first" if amounts.get(which, 0) > 0 else "edge")
        points, cx, cy = [at(0, 0)], 0.0, 0.0
        for which in sorted(amounts):
            dx, dy = direction(which)
            cx, cy = cx + amounts[which] * dx, cy + amounts[which] * dy
            points.append(at(cx, cy))
        path.setAttribute("points", " ".join([str(a) + "," + str(b) for a, b in points]))
        (ex, ey), (mx, my) = at(x, y), at(px, py)
        for key, value in (("x1", mx), ("y1", my), ("x2", ex), ("y2", ey)):
            miss.setAttribute(key, str(value))
        dot.setAttribute("cx", str(ex))
        dot.setAttribute("cy", str(ey))
        update([("feature " + str(which + 1), amounts.get(which, 0) / 2, fmt.fixed(amounts.get(which, 0), 2)) for which in range(len(ANGLES))])
        left = (x - px) * (x - px) + (y - py) * (y - py)
        share = 1 - left / (x * x + y * y)
        used = len([each for each in amounts.values() if each > 0.005])
        say(str(used) + " of 6 features " + ("is" if used == 1 else "are") + " not zero, and " + draw.percent(share) + " of the point is explained. What is missing is dashed.")

    def set_(name, kind):
        def moved(value):
            now[name] = kind(value)
            show()

        return moved

    draw.knob(place, "Angle", 0, 355, 5, now["angle"], set_("angle", float), lambda value: str(int(value)) + "°")
    draw.knob(place, "Length", 0.2, 2, 0.1, now["length"], set_("length", float), lambda value: fmt.fixed(value, 1))
    draw.knob(place, "Features (k)", 1, 2, 1, now["k"], set_("k", int))
    show()
