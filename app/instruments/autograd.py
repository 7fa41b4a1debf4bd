"""A small graph, loss = (a · b + c)², stepped through forward and backward."""

import lesson_draw as draw
from dom import button, make

NODES = {"a": (50, 40), "b": (50, 110), "c": (50, 180), "p": (170, 75), "s": (290, 125), "loss": (410, 125)}
NAMES = {"a": "a", "b": "b", "c": "c", "p": "a · b", "s": "a · b + c", "loss": "loss = square"}
EDGES = (("a", "p"), ("b", "p"), ("p", "s"), ("c", "s"), ("s", "loss"))


def forward(a, b, c):
    p = a * b
    s = p + c
    return {"a": a, "b": b, "c": c, "p": p, "s": s, "loss": s * s}


def backward(values):
    """Gradients in the order they come, each with its reason."""
    s, a, b = values["s"], values["a"], values["b"]
    n = draw.plain
    return [
        ("loss", 1.0, "The loss changes as much as itself: its gradient is 1."),
        ("s", 2 * s, "The slope of a square is twice the value: 2 × " + n(s) + " = " + n(2 * s) + "."),
        ("p", 2 * s, "A sum hands its gradient on as it is: " + n(2 * s) + " to the product."),
        ("c", 2 * s, "And the same to c: " + n(2 * s) + "."),
        ("a", 2 * s * b, "A product multiplies by the other side: " + n(2 * s) + " × b = " + n(2 * s * b) + "."),
        ("b", 2 * s * a, "And to b it goes times a: " + n(2 * s) + " × " + n(a) + " = " + n(2 * s * a) + "."),
    ]


def build(place, settings):
    inputs = {"a": 2.0, "b": -1.0, "c": 3.0}
    picture = draw.drawing(480, 220, "A graph of a product, a sum and a square")
    for begin, end in EDGES:
        (x1, y1), (x2, y2) = NODES[begin], NODES[end]
        picture.appendChild(draw.svg("line", cls="edge", x1=x1, y1=y1, x2=x2, y2=y2))
    circles, numbers, slopes = {}, {}, {}
    for name, (x, y) in NODES.items():
        circles[name] = draw.svg("circle", cls="node", cx=x, cy=y, r=26)
        numbers[name] = draw.svg("text", cls="number", x=x, y=y + 4, text_anchor="middle")
        slopes[name] = draw.svg("text", cls="slope", x=x, y=y + 44, text_anchor="middle")
        for part in (circles[name], numbers[name], slopes[name], draw.svg("text", NAMES[name], "name", x=x, y=y - 32, text_anchor="middle")):
            picture.appendChild(part)
    place.appendChild(picture)
    say = draw.said(place)
    state = {"at": 0}

    def clear():
        state["at"] = 0
        values = forward(inputs["a"], inputs["b"], inputs["c"])
        for name in NODES:
            numbers[name].textContent = draw.plain(values[name])
            slopes[name].textContent = ""
            circles[name].setAttribute("class", "node")
        go.textContent = "Step back"
        say("Forward is done: the loss is " + draw.plain(values["loss"]) + ". Press Step back for the first gradient.")

    def step(event=None):
        steps = backward(forward(inputs["a"], inputs["b"], inputs["c"]))
        if state["at"] == len(steps):
            clear()
            return
        for name in NODES:
            circles[name].setAttribute("class", "node")
        name, slope, why = steps[state["at"]]
        slopes[name].textContent = "grad " + draw.plain(slope)
        circles[name].setAttribute("class", "node lit")
        say(why)
        state["at"] += 1
        if state["at"] == len(steps):
            go.textContent = "Begin again"

    def change(name):
        def moved(value):
            inputs[name] = value
            clear()

        return moved

    go = button("Step back", step)
    row = make("div", cls="row")
    row.appendChild(go)
    place.appendChild(row)
    for name in ("a", "b", "c"):
        draw.knob(place, name, -3, 3, 0.5, inputs[name], change(name))
    clear()
