"""Three candidates, measured in the lesson's cells, before a gate whose bounds are knobs."""

import fmt
import lesson_draw as draw
from dom import make

# Name, and in nats: held-out corrections before and after, their distance a byte from the base's own text after, that text's rise, the worst passage's rise.
CANDIDATES = (
    ("a style, with old text mixed in", 4.96, 0.87, 0.47, -0.013, 0.235),
    ("random letters, with old text", 10.842, 4.792, 4.392, 0.052, 0.466),
    ("a style, without old text", 4.96, 0.864, 0.464, 2.766, 3.273),
)
# What is asked, knob's label, low, high, step, its usual value, whether more is better.
BOUNDS = (
    ("gain", "Gain, least", 0.0, 8.0, 0.1, 0.1, True),
    ("above", "Above, most", 0.0, 6.0, 0.1, 1.0, False),
    ("base", "Old text, most", 0.0, 4.0, 0.05, 0.05, False),
    ("worst", "Passage, most", 0.0, 4.0, 0.1, 0.4, False),
)


def figures(candidate):
    return {"gain": candidate[1] - candidate[2], "above": candidate[3], "base": candidate[4], "worst": candidate[5]}


def broken(candidate, bounds):
    """Names of the bounds that a candidate does not keep."""
    found, said = figures(candidate), []
    for name, _, _, _, _, _, more in BOUNDS:
        if (found[name] < bounds[name]) if more else (found[name] > bounds[name]):
            said.append(name)
    return said


def build(place, settings):
    bounds = {bound[0]: bound[5] for bound in BOUNDS}
    box = make("div", cls="lens-box", tabindex="0", role="region", aria_label="Candidates and their figures")
    table = make("table", cls="gate-table wide")
    head = make("tr")
    for words in ("candidate", "gain on held-out", "above normal text", "rise of old text", "worst passage", "gate"):
        head.appendChild(make("th", words))
    table.appendChild(head)
    rows = []
    for candidate in CANDIDATES:
        line, cells = make("tr"), {}
        line.appendChild(make("th", candidate[0]))
        found = figures(candidate)
        for name in ("gain", "above", "base", "worst"):
            cells[name] = make("td", ("+" if found[name] > 0 and name != "gain" else "") + fmt.fixed(found[name], 3))
            line.appendChild(cells[name])
        cells["gate"] = make("td")
        line.appendChild(cells["gate"])
        table.appendChild(line)
        rows.append((candidate, cells))
    box.appendChild(table)
    place.appendChild(box)
    say = draw.said(place)

    def show():
        passed = []
        for candidate, cells in rows:
            said = broken(candidate, bounds)
            for name in ("gain", "above", "base", "worst"):
                cells[name].className = "gate-broken" if name in said else "gate-kept"
            cells["gate"].textContent = "kept aside" if said else "promoted"
            cells["gate"].className = "gate-broken" if said else "gate-kept"
            if not said:
                passed.append(candidate[0])
        say("Promoted: " + ("; ".join(passed) if passed else "none of the three") + ". All figures are nats, from the cells above.")

    set_ = draw.setter(bounds, show)
    for name, label, low, high, step, usual, _ in BOUNDS:
        draw.knob(place, label, low, high, step, usual, set_(name), lambda value: fmt.fixed(value, 2))
    show()
