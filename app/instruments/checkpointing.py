"""Six blocks going forward and back, and the activations held at each moment. Setting: forget."""

import lesson_draw as draw
from dom import button, make

BLOCKS = 6
WHOLE, INPUT = 16, 1  # megabytes that a block of medium makes, and those of its input


def walk(forget):
    """Moments of a step: (words, state of each block, block at work). A state is empty, input or whole."""
    state, moments = ["empty"] * BLOCKS, []

    def moment(words, at):
        moments.append((words, list(state), at))

    for at in range(BLOCKS):
        state[at] = "whole"
        moment("Forward through block " + str(at), at)
        if at < forget:
            state[at] = "input"
    moment("The loss: everything that is held now is kept for the backward", None)
    for at in range(BLOCKS - 1, -1, -1):
        if at < forget:
            state[at] = "whole"
            moment("Block " + str(at) + " forward again, from its input", at)
        moment("Backward through block " + str(at), at)
        state[at] = "empty"
    moment("Done", None)
    return moments


def held(states):
    """Megabytes of all blocks together."""
    return sum([WHOLE if each == "whole" else INPUT if each == "input" else 0 for each in states])


def build(place, settings):
    now = {"forget": int(settings.get("forget", "3")), "at": 6}
    picture = draw.drawing(480, 190, "Six blocks, and the memory held over a step")
    place.appendChild(picture)
    frames, fills = [], []
    for at in range(BLOCKS):
        x = 10 + at * 78
        frame = draw.svg("rect", cls="block", x=x, y=20, width=66, height=50)
        fill = draw.svg("rect", cls="block-fill", x=x, y=70, width=66, height=0)
        name = draw.svg("text", "block " + str(at), "name", x=x + 33, y=14, text_anchor="middle")
        for part in (fill, frame, name):
            picture.appendChild(part)
        frames.append(frame)
        fills.append(fill)
    bars = []
    for at in range(2 * BLOCKS + 2 + BLOCKS):
        bar = draw.svg("rect", cls="held", x=10 + at * 23, y=180, width=19, height=0)
        picture.appendChild(bar)
        bars.append(bar)
    say = draw.said(place)

    def show():
        moments = walk(now["forget"])
        now["at"] = min(now["at"], len(moments) - 1)
        words, states, busy = moments[now["at"]]
        for at in range(BLOCKS):
            high = 50 if states[at] == "whole" else 5 if states[at] == "input" else 0
            fills[at].setAttribute("height", str(high))
            fills[at].setAttribute("y", str(70 - high))
            frames[at].setAttribute("class", "block busy" if at == busy else "block")
        for at, bar in enumerate(bars):
            high = held(moments[at][1]) if at < len(moments) else 0
            bar.setAttribute("height", str(high))
            bar.setAttribute("y", str(182 - high))
            bar.setAttribute("class", "held now" if at == now["at"] else "held")
        most = max([held(each) for _, each, _ in moments])
        say(words + ". Held: " + str(held(states)) + " MB; at most " + str(most) + " MB in the whole step, with " + str(now["forget"]) + " forward passes of a block done twice.")

    def step(event=None):
        now["at"] = (now["at"] + 1) % len(walk(now["forget"]))
        show()

    def change(value):
        now["forget"] = int(value)
        show()

    row = make("div", cls="row")
    row.appendChild(button("Next moment", step))
    place.appendChild(row)
    draw.knob(place, "Blocks that forget", 0, BLOCKS, 1, now["forget"], change)
    show()
