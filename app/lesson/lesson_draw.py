"""What instruments are made of: knobs, bars, drawings, a line that says in words what they show."""

import js

import fmt
from dom import document, make

SVG = "http://www.w3.org/2000/svg"


def svg(tag, content=None, cls=None, **attributes):
    """A new element of a drawing; names with underscores become dashes."""
    made = document.createElementNS(SVG, tag)
    if content is not None:
        made.textContent = str(content)
    if cls:
        made.setAttribute("class", cls)
    for name, value in attributes.items():
        made.setAttribute(name.replace("_", "-") if name != "viewBox" else name, str(value))
    return made


def drawing(width, height, label):
    """An empty drawing of so many units, as wide as its place. `label` says what it is; the numbers stand in words beside it."""
    return svg("svg", cls="drawing", viewBox="0 0 " + str(width) + " " + str(height), role="img", aria_label=label)


def knob(place, label, low, high, step, value, changed, shown=None):
    """A slider with its value beside it; changed(number) on every move. Returns the input."""
    box = make("div", cls="knob")
    name = "knob-" + str(js.crypto.randomUUID())
    words = make("label", label)
    words.htmlFor = name
    slider = make("input", type="range", id=name, min=low, max=high, step=step)
    slider.value = str(value)
    told = make("output", (shown or plain)(value))

    def moved(event):
        number = float(slider.value)
        told.textContent = (shown or plain)(number)
        changed(number)

    slider.addEventListener("input", moved)
    for part in (words, slider, told):
        box.appendChild(part)
    place.appendChild(box)
    return slider


def setter(state, show):
    """A function of a name, giving what a knob calls to put its value there and show it."""

    def of(name):
        def moved(value):
            state[name] = value
            show()

        return moved

    return of


def plain(number):
    """A number in at most three digits after the point."""
    return fmt.significant(number, 3) if number != int(number) else str(int(number))


def percent(share):
    """0.6439 as 64.4 %."""
    return fmt.fixed(100 * share, 1) + " %"


def said(place):
    """A line in words, read out when it changes. Returns a function that sets it."""
    line = make("p", cls="instrument-said", role="status")
    place.appendChild(line)

    def say(words):
        line.textContent = words

    return say


def bars(place, rows):
    """Horizontal bars: rows of (label, share from 0 to 1, words). Returns a function that sets new rows of as many."""
    table = make("ol", cls="instrument-bars")
    made = []
    for _ in rows:
        item, label, track, bar, words = make("li"), make("span", cls="piece"), make("span", cls="track", aria_hidden="true"), make("span"), make("span", cls="share")
        track.appendChild(bar)
        for part in (label, track, words):
            item.appendChild(part)
        table.appendChild(item)
        made.append((label, bar, words))
    place.appendChild(table)

    def update(rows):
        for (label, bar, words), (name, share, told) in zip(made, rows):
            label.textContent, words.textContent = str(name), str(told)
            bar.style.width = str(round(100 * max(0.0, min(1.0, share)), 2)) + "%"

    update(rows)
    return update


def numbers(settings, name, usual):
    """A setting such as `scores = 2 1 0 -1` as numbers."""
    try:
        return [float(part) for part in settings[name].split()]
    except (KeyError, ValueError):
        return usual


_asked = {}  # request id -> what gets the answer


def ask(name, code, done):
    """Run a few lines of Python in the worker, on the real package; the last one's value is JSON and goes to done(event).

    done gets {"kind": "failed", "message"} where the code raised or the trainer is not there.
    """
    import wire

    if not _asked.get("listening"):
        _asked["listening"] = True
        wire.on("cell.value", _answered)
        wire.on("cell.ended", _ended)

    def refused(event):
        if event["kind"] == "failed":
            _asked.pop(number, None)
            done({"kind": "failed", "message": event.get("message") or ""})

    number = wire.send("cells.run", {"code": code, "space": "instrument:" + name, "cell": name}, "learn", answered=refused)
    _asked[number] = done


def _answered(event):
    import json

    done = _asked.pop(event.get("reply_to"), None)
    if done is not None:
        found = json.loads(event["plain"])
        found["kind"] = "answer"
        done(found)


def _ended(event):
    done = _asked.pop(event.get("reply_to"), None)
    if done is not None:
        done({"kind": "failed", "message": event.get("message") or "Stopped."})
