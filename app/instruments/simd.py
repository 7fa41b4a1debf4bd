"""One row of a product by lanes and threads: which numbers an instruction takes, round by round. Settings: lanes, threads."""

import lesson_draw as draw
from dom import button, make

WIDE = 32  # columns of the row


def build(place, settings):
    now = {"lanes": int(settings.get("lanes", "4")), "threads": int(settings.get("threads", "1")), "round": 0}
    cells = make("div", cls="lane-cells")
    boxes = []
    for at in range(WIDE):
        box = make("span", str(at), cls="lane-cell")
        cells.appendChild(box)
        boxes.append(box)
    place.appendChild(cells)
    say = draw.said(place)

    def rounds():
        return WIDE // (now["lanes"] * now["threads"])

    def show():
        lanes, threads, done = now["lanes"], now["threads"], now["round"]
        share = WIDE // threads  # neighbouring columns, one block a thread
        for at, box in enumerate(boxes):
            thread, within = at // share, at % share
            state = "done" if within < done * lanes else "busy" if within < (done + 1) * lanes else "waiting"
            box.className = "lane-cell " + state + " thread-" + str(thread % 4)
        left = rounds() - done
        words = str(lanes) + (" lane" if lanes == 1 else " lanes") + ", " + str(threads) + (" thread" if threads == 1 else " threads") + ": "
        if left:
            say(words + str(rounds()) + " rounds for " + str(WIDE) + " results, " + str(left) + " left. Outlined: what is done in this round.")
        else:
            say(words + "done in " + str(rounds()) + " rounds, " + draw.plain(WIDE / rounds()) + " times as fast as one number at a time.")

    def step(event=None):
        now["round"] = 0 if now["round"] >= rounds() else now["round"] + 1
        show()

    def change(name):
        def moved(value):
            now[name], now["round"] = 2 ** int(value), 0
            show()

        return moved

    row = make("div", cls="row")
    row.appendChild(button("Next round", step))
    place.appendChild(row)
    LANES = {1: "1 (plain)", 4: "4 (tab)", 8: "8 (AVX2)"}

    def lanes_shown(value):
        count = 2 ** int(value)
        return LANES.get(count, str(count))

    draw.knob(place, "Lanes", 0, 3, 1, exponent(now["lanes"]), change("lanes"), lanes_shown)
    draw.knob(place, "Threads", 0, 2, 1, exponent(now["threads"]), change("threads"), lambda value: str(2 ** int(value)))
    show()


def exponent(count):
    """2 for 4."""
    power = 0
    while 2 ** (power + 1) <= count:
        power += 1
    return power
