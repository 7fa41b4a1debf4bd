"""One attention head over six words: knobs set what its queries look for; a grid of shares, and one row of it as bars."""

import math

import lesson_draw as draw

WORDS = ("to", "be", "or", "not", "to", "be")
SIDE, LEFT, TOP = 40, 60, 30


def shares(same, before, near, causal):
    """Rows of softmax of the scores: the parts of q · k for the same word, for the place before, and for being close."""
    rows = []
    for i, asking in enumerate(WORDS):
        scores = []
        for j, asked in enumerate(WORDS):
            if causal and j > i:
                scores.append(None)
                continue
            scores.append((same if asked == asking and i != j else 0) + (before if j == i - 1 else 0) - near * abs(i - j))
        top = max([score for score in scores if score is not None])
        powers = [0.0 if score is None else math.exp(score - top) for score in scores]
        rows.append([power / sum(powers) for power in powers])
    return rows


def build(place, settings):
    now = {"same": 3.0, "before": 0.0, "near": 0.0, "causal": 1.0, "row": 5.0}
    picture = draw.drawing(320, 290, "Shares of attention, a row for each word that looks, a column for each that is looked at")
    cells = []
    for i, word in enumerate(WORDS):
        y, x = TOP + SIDE * i, LEFT + SIDE * i
        picture.appendChild(draw.svg("text", word, "name", x=LEFT - 8, y=y + 25, text_anchor="end"))
        picture.appendChild(draw.svg("text", word, "name", x=x + SIDE / 2, y=TOP - 8, text_anchor="middle"))
        for j in range(len(WORDS)):
            x = LEFT + SIDE * j
            picture.appendChild(draw.svg("rect", cls="heat-back", x=x + 1, y=y + 1, width=SIDE - 2, height=SIDE - 2, rx=4))
            cell = draw.svg("rect", cls="heat", x=x + 1, y=y + 1, width=SIDE - 2, height=SIDE - 2, rx=4)
            cells.append(cell)
            picture.appendChild(cell)
    frame = draw.svg("rect", cls="heat-frame", x=LEFT - 2, y=0, width=SIDE * len(WORDS) + 4, height=SIDE + 1, rx=5)
    picture.appendChild(frame)
    place.appendChild(picture)
    update = draw.bars(place, [("", 0, "") for _ in WORDS])
    say = draw.said(place)

    def show():
        found = shares(now["same"], now["before"], now["near"], now["causal"] > 0)
        for at, cell in enumerate(cells):
            cell.setAttribute("fill-opacity", str(round(found[at // len(WORDS)][at % len(WORDS)], 3)))
        row = int(now["row"])
        frame.setAttribute("y", str(TOP + SIDE * row - 0.5))
        update([(str(j + 1) + " " + word, share, draw.percent(share)) for j, (word, share) in enumerate(zip(WORDS, found[row]))])
        best = max(range(len(WORDS)), key=lambda j: found[row][j])
        words = "Word " + str(row + 1) + ", " + WORDS[row] + ", looks most at word " + str(best + 1) + ", " + WORDS[best] + ": " + draw.percent(found[row][best]) + "."
        ahead = sum(found[row][row + 1 :])
        if now["causal"] <= 0:
            words += " Without the mask " + draw.percent(ahead) + " of what it takes comes from words after it, the answer among them."
        say(words)

    set_ = draw.setter(now, show)
    draw.knob(place, "Word that looks", 0, 5, 1, 5, set_("row"), lambda value: str(int(value) + 1) + " " + WORDS[int(value)])
    draw.knob(place, "Same word", -4, 8, 0.5, 3, set_("same"))
    draw.knob(place, "Place before", -4, 8, 0.5, 0, set_("before"))
    draw.knob(place, "Nearness", -2, 2, 0.25, 0, set_("near"))
    draw.knob(place, "Causal mask", 0, 1, 1, 1, set_("causal"), lambda value: "on" if value else "off")
    show()
