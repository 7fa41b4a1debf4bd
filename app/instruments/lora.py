"""A change of 12 by 12 numbers, and the best that a product of two thin matrices makes of it; a knob for the rank."""

import math

import lesson_draw as draw

SIDE, CELL, TOP = 12, 13, 30
SIZES = (3.0, 2.2, 1.4, 0.9, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03)
ROWS, COLUMNS = (2, 5, 1, 7, 4, 9, 0, 11, 3, 10, 6, 8), (4, 1, 6, 3, 8, 2, 10, 5, 0, 9, 7, 11)
WIDTHS = (48, 128, 256, 768)


def wave(number):
    """One of twelve directions at right angles to each other, of length 1."""
    size = math.sqrt((1 if number == 0 else 2) / SIDE)
    return [size * math.cos(math.pi * number * (2 * at + 1) / (2 * SIDE)) for at in range(SIDE)]


def product(rank):
    """The sum of the first `rank` pairs of directions, each at its size: the best of that rank."""
    found = [[0.0] * SIDE for _ in range(SIDE)]
    for at in range(rank):
        tall, wide = wave(ROWS[at]), wave(COLUMNS[at])
        for i in range(SIDE):
            for j in range(SIDE):
                found[i][j] += SIZES[at] * tall[i] * wide[j]
    return found


def left(rank):
    """The share of the change, in squares, that a product of this rank leaves out."""
    return sum([size * size for size in SIZES[rank:]]) / sum([size * size for size in SIZES])


def build(place, settings):
    now = {"rank": 2, "width": 1}
    picture = draw.drawing(480, 200, "The change, what the thin product makes of it, and the two thin matrices")
    whole = product(SIDE)
    most = max([max([abs(value) for value in row]) for row in whole])

    def grid(name, x):
        picture.appendChild(draw.svg("text", name, "name", x=x + SIDE * CELL / 2, y=TOP - 10, text_anchor="middle"))
        cells = []
        for i in range(SIDE):
            for j in range(SIDE):
                cell = draw.svg("rect", cls="heat", x=x + CELL * j, y=TOP + CELL * i, width=CELL - 1, height=CELL - 1)
                cells.append(cell)
                picture.appendChild(cell)
        return cells

    def paint(cells, values):
        for at, cell in enumerate(cells):
            value = values[at // SIDE][at % SIDE]
            cell.setAttribute("class", "heat" if value >= 0 else "heat below")
            cell.setAttribute("fill-opacity", str(round(min(1.0, abs(value) / most), 3)))

    paint(grid("the change", 4), whole)
    made = grid("down times up", 312)
    tall = draw.svg("rect", cls="node lit", x=180, y=TOP, height=SIDE * CELL)
    wide = draw.svg("rect", cls="node lit", y=TOP, height=13)
    for part in (tall, wide, draw.svg("text", "down and up", "name", x=236, y=TOP - 10, text_anchor="middle")):
        picture.appendChild(part)
    place.appendChild(picture)
    update = draw.bars(place, [("", 0, ""), ("", 0, "")])
    say = draw.said(place)

    def show():
        rank, width = int(now["rank"]), WIDTHS[int(now["width"])]
        paint(made, product(rank))
        tall.setAttribute("width", str(5 * rank))
        wide.setAttribute("x", str(186 + 5 * rank))
        wide.setAttribute("width", str(max(20, 112 - 5 * rank)))
        wide.setAttribute("height", str(5 * rank))
        thin, full = 2 * rank * width, width * width
        update([("kept", 1 - left(rank), draw.percent(1 - left(rank))), ("numbers", thin / full, draw.percent(thin / full))])
        words = "Rank " + str(rank) + " keeps " + draw.percent(1 - left(rank)) + " of this change. On a matrix of " + str(width) + " by " + str(width)
        words += " it is " + str(thin) + " numbers for " + str(full) + "."
        if thin >= full:
            words += " That is no saving any more."
        say(words)

    set_ = draw.setter(now, show)
    draw.knob(place, "Rank", 1, 12, 1, 2, set_("rank"))
    draw.knob(place, "Width of the matrix", 0, len(WIDTHS) - 1, 1, 1, set_("width"), lambda value: str(WIDTHS[int(value)]))
    show()
