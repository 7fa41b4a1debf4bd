"""Tiles of a table of scores that is never made, with the running maximum and sum of one query. Setting: tile."""

import math

import lesson_draw as draw
from dom import button, make

TOKENS = 16
SIDE = 288
UNIT = SIDE // TOKENS


def score(query, key):
    """A made-up score, the same at every visit."""
    return round(2.2 * math.sin(1.7 * key + 0.6 * query) + 0.12 * key, 1)


def build(place, settings):
    state = {"tile": int(settings.get("tile", "4")), "query": 13, "at": 0}
    picture = draw.drawing(SIDE + 90, SIDE + 24, "Scores of 16 queries against 16 keys, in tiles")
    place.appendChild(picture)
    cells = []
    for query in range(TOKENS):
        for key in range(query + 1):
            cell = draw.svg("rect", cls="score", x=20 + key * UNIT, y=20 + query * UNIT, width=UNIT - 1, height=UNIT - 1)
            picture.appendChild(cell)
            cells.append((query, key, cell))
    picture.appendChild(draw.svg("text", "keys", "name", x=20, y=14))
    marker = draw.svg("text", "◂ query", "slope", x=24 + SIDE, y=0)
    picture.appendChild(marker)
    table = make("p", cls="instrument-said")
    place.appendChild(table)
    say = draw.said(place)

    def tiles():
        """(first query, first key) of every tile that is not wholly in the future, row of tiles by row."""
        tile = state["tile"]
        return [(i, j) for i in range(0, TOKENS, tile) for j in range(0, i + tile, tile)]

    def show():
        tile, query, order = state["tile"], state["query"], tiles()
        done, now = order[: state["at"]], order[state["at"]] if state["at"] < len(order) else None
        for q, k, cell in cells:
            home = (q // tile * tile, k // tile * tile)
            cls = "score now" if home == now else "score past" if home in done else "score"
            cell.setAttribute("class", cls + (" mine" if q == query else ""))
        marker.setAttribute("y", str(20 + query * UNIT + UNIT - 5))
        words, top, total = [], None, 0.0
        for i, j in order[: state["at"] + 1]:
            if i != query // tile * tile:
                continue
            seen = [score(query, key) for key in range(j, min(j + tile, query + 1))]
            new = max(seen) if top is None else max(top, max(seen))
            fade = 1.0 if top is None else math.exp(top - new)
            total = total * fade + sum([math.exp(each - new) for each in seen])
            words.append("keys " + str(j) + "–" + str(j + len(seen) - 1) + ": maximum " + draw.plain(new) + (", the sum so far fades by " + draw.plain(round(fade, 3)) if fade < 1 else "") + ", sum " + draw.plain(round(total, 3)))
            top = new
        table.textContent = "Query " + str(query) + ". " + ("; ".join(words) + "." if words else "Its tiles come later.")
        if now is None:
            say("Done. " + str(TOKENS * (TOKENS + 1) // 2) + " scores were made, " + str(tile * tile) + " at a time; a table would have held " + str(TOKENS * TOKENS) + ".")
        else:
            say("Tile " + str(state["at"] + 1) + " of " + str(len(order)) + ": " + str(tile) + " queries against " + str(tile) + " keys. Only its scores are in memory.")

    def step(event=None):
        state["at"] = 0 if state["at"] >= len(tiles()) else state["at"] + 1
        show()

    def size(value):
        state["tile"], state["at"] = 2 ** int(value), 0
        show()

    def choose(value):
        state["query"] = int(value)
        show()

    row = make("div", cls="row")
    row.appendChild(button("Next tile", step))
    place.appendChild(row)
    power = {2: 1, 4: 2, 8: 3}.get(state["tile"], 2)
    state["tile"] = 2**power
    draw.knob(place, "Tile", 1, 3, 1, power, size, lambda value: str(2 ** int(value)) + " × " + str(2 ** int(value)))
    draw.knob(place, "Query", 0, TOKENS - 1, 1, state["query"], choose, lambda value: str(int(value)))
    show()
