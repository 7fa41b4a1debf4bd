"""The parts of a GPT from bottom to top, with their weights; knobs for its sizes and for the part to look at."""

import lesson_draw as draw

PRESETS = {"tiny": (2, 48, 32, 256), "medium": (4, 128, 128, 256), "gpt2": (12, 768, 1024, 50257)}
WIDTHS = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1280)
CONTEXTS = (32, 64, 128, 256, 512, 1024)
VOCABULARIES = (256, 512, 1024, 4096, 50257)
PARTS = ("Tokens", "Places", "Attention", "MLP", "Norms", "Head")


def parts(layers, c, context, vocabulary):
    """(name, weights, what it is) of each part, as model/config.py counts them."""
    n = grouped
    return [
        ("Tokens", vocabulary * c, "A table of " + n(vocabulary) + " rows, one a token, " + n(c) + " numbers each."),
        ("Places", context * c, "A row for each of " + n(context) + " places, added to the token's."),
        ("Attention", layers * (4 * c * c + 4 * c), "In each block " + n(c) + " to " + n(3 * c) + " for query, key and value, and " + n(c) + " to " + n(c) + " back into the stream."),
        ("MLP", layers * (8 * c * c + 5 * c), "In each block " + n(c) + " to " + n(4 * c) + ", a GELU, and back to " + n(c) + "."),
        ("Norms", (2 * layers + 1) * 2 * c, "Two in each block and one at the end, each a gain and a shift of " + n(c) + "."),
        ("Head", 0, "The table of tokens once more: a score for each of " + n(vocabulary) + ". No weights of its own."),
    ]


def grouped(number):
    """124439808 as 124,439,808."""
    text, found = str(int(number)), ""
    while len(text) > 3:
        found = "," + text[-3:] + found
        text = text[:-3]
    return text + found


def build(place, settings):
    layers, c, context, vocabulary = PRESETS.get(settings.get("preset", "medium"), PRESETS["medium"])
    now = {"layers": layers, "channels": WIDTHS.index(c), "context": CONTEXTS.index(context), "vocabulary": VOCABULARIES.index(vocabulary), "part": 3}
    picture = draw.drawing(420, 304, "A GPT from the tokens at the bottom to the scores at the top")
    picture.appendChild(draw.svg("line", cls="edge", x1=130, x2=130, y1=24, y2=246))
    picture.appendChild(draw.svg("rect", cls="map-block", x=24, y=92, width=372, height=142, rx=10))
    times = draw.svg("text", cls="name", x=384, y=110, text_anchor="end")
    picture.appendChild(times)
    boxes = {}
    # Each box: name, part, x, y, width; the stream runs up at x = 130, what adds to it stands beside.
    for name, part, x, y, wide in (
        ("scores", "Head", 70, 8, 120),
        ("norm", "Norms", 70, 50, 120),
        ("MLP", "MLP", 240, 112, 100),
        ("norm", "Norms", 180, 112, 52),
        ("attention", "Attention", 240, 182, 100),
        ("norm", "Norms", 180, 182, 52),
        ("tokens", "Tokens", 40, 262, 84),
        ("places", "Places", 136, 262, 84),
    ):
        box = draw.svg("rect", cls="node", x=x, y=y, width=wide, height=32, rx=6)
        picture.appendChild(box)
        picture.appendChild(draw.svg("text", name, "number", x=x + wide / 2, y=y + 20, text_anchor="middle"))
        boxes[part] = boxes.get(part, []) + [box]
    for x in (82, 178):
        picture.appendChild(draw.svg("line", cls="edge", x1=x, x2=130, y1=262, y2=246))
    for y in (128, 198):
        picture.appendChild(draw.svg("line", cls="edge", x1=130, x2=180, y1=y, y2=y))
        picture.appendChild(draw.svg("line", cls="edge", x1=232, x2=240, y1=y, y2=y))
        picture.appendChild(draw.svg("path", cls="edge map-back", d="M290 " + str(y - 16) + " V" + str(y - 26) + " H140"))
        picture.appendChild(draw.svg("circle", cls="node", cx=130, cy=y - 26, r=10))
        picture.appendChild(draw.svg("text", "+", "number", x=130, y=y - 22, text_anchor="middle"))
    picture.appendChild(draw.svg("text", "the stream", "name", x=120, y=165, text_anchor="end"))
    place.appendChild(picture)
    update = draw.bars(place, [("", 0, "") for _ in PARTS])
    say = draw.said(place)

    def show():
        sizes = (int(now["layers"]), WIDTHS[int(now["channels"])], CONTEXTS[int(now["context"])], VOCABULARIES[int(now["vocabulary"])])
        found = parts(sizes[0], sizes[1], sizes[2], sizes[3])
        total = sum([count for _, count, _ in found])
        times.textContent = "block, " + str(sizes[0]) + " times" if sizes[0] > 1 else "block, once"
        update([(name, count / total, draw.percent(count / total)) for name, count, _ in found])
        name, count, what = found[int(now["part"])]
        for part, drawn in boxes.items():
            for box in drawn:
                box.setAttribute("class", "node lit" if part == name else "node")
        say(grouped(total) + " weights in all. " + name + ": " + grouped(count) + ". " + what)

    set_ = draw.setter(now, show)
    draw.knob(place, "Part", 0, 5, 1, 3, set_("part"), lambda value: PARTS[int(value)])
    draw.knob(place, "Layers", 1, 24, 1, layers, set_("layers"))
    draw.knob(place, "Channels", 0, len(WIDTHS) - 1, 1, now["channels"], set_("channels"), lambda value: str(WIDTHS[int(value)]))
    draw.knob(place, "Context", 0, len(CONTEXTS) - 1, 1, now["context"], set_("context"), lambda value: str(CONTEXTS[int(value)]))
    draw.knob(place, "Vocabulary", 0, len(VOCABULARIES) - 1, 1, now["vocabulary"], set_("vocabulary"), lambda value: grouped(VOCABULARIES[int(value)]))
    show()
