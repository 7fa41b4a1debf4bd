"""Workers that share a batch of 16 rows: what each holds under DDP or FSDP, and a step in five stages."""

import fmt
import lesson_draw as draw
from dom import button, make

WEIGHTS = 473244160
ROWS = 16
STAGES = (
    ("Before a step all workers agree that nobody was asked to stop, and each takes its rows.", 0),
    ("Each goes forward with its rows, and has the sum of their losses.", 1),
    ("Each goes backward, and has a gradient of its own rows. They differ.", 2),
    ("The gradients are added up over all workers, and divided once.", 3),
    ("The length of the whole gradient is known, and everyone takes the same AdamW step. The weights are alike again.", 4),
)
HEIGHT = 250


def held(workers, shared):
    """Bytes of weights and both moments that one worker keeps."""
    return 12 * WEIGHTS // (workers if shared else 1)


def build(place, settings):
    now = {"workers": 2, "shared": 0, "stage": 0}
    picture = draw.drawing(480, HEIGHT, "Workers with their rows, their gradients and what they hold")
    place.appendChild(picture)
    marks = []

    def add(mark):
        picture.appendChild(mark)
        marks.append(mark)

    def show():
        for mark in marks:
            mark.remove()
        marks.clear()
        workers, shared, stage = now["workers"], bool(now["shared"]), now["stage"]
        each, wide = ROWS // workers, 460 / workers
        for worker in range(workers):
            left, width = 10 + worker * wide, wide - 8
            add(draw.svg("text", "worker " + str(worker) if workers < 8 else str(worker), "name", x=round(left + width / 2, 1), y=14, text_anchor="middle"))
            for row in range(each):
                cls = "score past" if stage == 1 else "score now" if stage == 2 else "score"
                add(draw.svg("rect", cls=cls, x=round(left + row * width / each, 1), y=24, width=round(max(2.0, width / each - 2), 1), height=26, rx=2))
            if stage >= 2:
                own = 30 + 22 * ((worker * 5 + 3) % 4)
                tall = own if stage == 2 else 52
                add(draw.svg("rect", cls="torch-own" if stage == 2 else "torch-sum", x=round(left + width / 4, 1), y=160 - tall, width=round(width / 2, 1), height=tall, rx=3))
            if stage == 3 and worker + 1 < workers:
                add(draw.svg("line", cls="edge", x1=round(left + width * 0.75 + 2, 1), y1=134, x2=round(left + wide + width / 4 - 2, 1), y2=134))
            part = 1 / workers if shared else 1.0
            add(draw.svg("rect", cls="matrix-box", x=round(left, 1), y=180, width=round(width, 1), height=22, rx=3))
            start = left + (worker * width / workers if shared else 0)
            add(draw.svg("rect", cls="tile-got" if stage == 4 else "tile-out", x=round(start, 1), y=180, width=round(width * part, 1), height=22, rx=3))
            if workers < 8:
                add(draw.svg("text", fmt.fixed(held(workers, shared) / 1e9, 2) + " GB", "number", x=round(left + width / 2, 1), y=220, text_anchor="middle"))
        add(draw.svg("text", "rows above, gradients between, weights and moments kept below", "name", x=240, y=242, text_anchor="middle"))
        words, _ = STAGES[stage]
        if shared and stage in (1, 2):
            words += " Pieces of the weights come from the others just before they are used, and are dropped after."
        if shared and stage == 3:
            words += " Each gets the sum of its own share only."
        if workers == 1:
            words += " Alone, there is nobody to send to."
        say(words + " " + str(each) + (" row" if each == 1 else " rows") + " and " + fmt.fixed(held(workers, shared) / 1e9, 2) + " GB of weights and moments in each, for 473 million parameters.")
        go.textContent = "Next step" if stage == len(STAGES) - 1 else "Go on"

    def next_stage(event=None):
        now["stage"] = (now["stage"] + 1) % len(STAGES)
        show()

    def workers_moved(value):
        now["workers"] = 2 ** int(value)
        show()

    def shared_moved(value):
        now["shared"] = int(value)
        show()

    go = button("Go on", next_stage)
    row = make("div", cls="row")
    row.appendChild(go)
    place.appendChild(row)
    draw.knob(place, "Workers", 0, 3, 1, 1, workers_moved, lambda value: str(2 ** int(value)))
    draw.knob(place, "The model is", 0, 1, 1, 0, shared_moved, lambda value: "shared" if value else "in each")
    say = draw.said(place)
    show()
