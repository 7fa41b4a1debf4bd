"""A clock that the page keeps, and a second of work in the page or in the worker."""

import js

import lesson_draw as draw
from dom import button, make

CODE = """
import asyncio, json, time
_until, _count = time.perf_counter() + 1.0, 0
while time.perf_counter() < _until:
    for _ in range(1000):
        _count += 1
json.dumps({"count": _count})
"""
BARS = 120


def build(place, settings):
    picture = draw.drawing(480, 90, "Time between two beats of the page")
    place.appendChild(picture)
    bars = []
    for at in range(BARS):
        bar = draw.svg("rect", cls="frame", x=4 * at, y=88, width=3, height=2)
        picture.appendChild(bar)
        bars.append(bar)
    say = draw.said(place)
    state = {"last": js.performance.now(), "gaps": [50.0] * BARS, "longest": 0.0, "watching": False}

    def beat(*event):
        if not place.isConnected:
            js.clearInterval(state["timer"])
            return
        now = float(js.performance.now())
        gap = now - state["last"]
        state["last"] = now
        state["gaps"] = state["gaps"][1:] + [gap]
        if state["watching"]:
            state["longest"] = max(state["longest"], gap)
        for bar, each in zip(bars, state["gaps"]):
            high = max(2, min(86, int(each / 12)))
            bar.setAttribute("y", str(88 - high))
            bar.setAttribute("height", str(high))
            bar.setAttribute("class", "frame long" if each > 300 else "frame")

    def tell(where, count):
        state["watching"] = False
        say("A second of work " + where + ": it counted to " + str(count) + ", and the longest pause between two beats of the page was " + str(int(state["longest"])) + " ms.")

    def here(event=None):
        state["watching"], state["longest"] = True, 0.0
        count, until = 0, js.performance.now() + 1000
        while js.performance.now() < until:
            for _ in range(1000):
                count += 1
        js.setTimeout(lambda *event: tell("in the page", count), 200)

    def there(event=None):
        state["watching"], state["longest"] = True, 0.0
        say("The worker counts …")

        def told(event):
            if event["kind"] == "failed":
                state["watching"] = False
                say("The trainer is not there yet. Try again in a moment.")
                return
            tell("in the worker", event["count"])

        draw.ask("worker", CODE, told)

    row = make("div", cls="row")
    row.appendChild(button("Work in the page", here))
    row.appendChild(button("Work in the worker", there))
    place.appendChild(row)
    say("Each bar is the time from one beat of the page to the next, wanted every 50 ms; the newest is at the right.")
    state["timer"] = js.setInterval(beat, 50)
