"""Two to eight saved runs side by side: one chart, the same figures as a table, and the settings that differ."""

from pyscript.js_modules import bridge

import fmt
import notices
import wire
from dom import chosen, document, el, empty, make, on, sentences, show, text

MOST = 8
METRICS = {"loss": "Training loss", "validation": "Validation loss", "rate": "Learning rate"}
ALONG = {"step": "Step", "tokens": "Tokens", "seconds": "Time"}

_picked = []  # run ids in the order they were chosen
_found = None  # the last `compared` event, without its curves


def box(run):
    """The box in a run's line that chooses it."""
    run_id = run["run_id"]
    label = make("label", cls="pick")
    check = make("input", type="checkbox", id="run-" + run_id + "-pick", aria_label="Compare " + str(run.get("name") or run_id))
    check.checked = run_id in _picked

    def changed(event):
        if not check.checked:
            _picked.remove(run_id)
        elif len(_picked) >= MOST:
            check.checked = False
            return notices.error("runs", "At most " + str(MOST) + " runs fit on one chart. Take one away first.")
        else:
            _picked.append(run_id)
        return _count()

    check.addEventListener("change", changed)
    label.appendChild(check)
    label.appendChild(make("span", "Compare", aria_hidden="true"))
    return label


def keep(runs):
    """What was chosen, as far as it is still there."""
    there = [run["run_id"] for run in runs if _can(run)]
    _picked[:] = [run_id for run_id in _picked if run_id in there]
    _count()


def _can(run):
    return not run.get("corrupt") and bool(run.get("step"))


def offered(run, runs):
    """Whether a run can be chosen: it has something to show, and there is another."""
    return _can(run) and len([each for each in runs if _can(each)]) > 1


def _count():
    show("beside-bar", bool(_picked))
    many = len(_picked)
    text("beside-count", "1 run chosen. Choose another to compare." if many == 1 else str(many) + " runs chosen.")
    el("beside-go").disabled = many < 2


def _go(event):
    notices.clear("runs")
    notices.announce("Comparing…")
    wire.send("runs.compare", {"run_ids": list(_picked)}, "runs")


def _none(event):
    for run_id in list(_picked):
        check = el("run-" + run_id + "-pick")
        if check:
            check.checked = False
    _picked[:] = []
    _count()
    el("runs-list").setAttribute("tabindex", "-1")
    el("runs-list").focus()


def _compared(event):
    global _found
    _found = event
    show("beside-card", True)
    sentences("beside-notes", event.get("notes"))
    along = event.get("along") or ["step"]
    for name in ("tokens", "seconds"):
        show("beside-" + name + "-box", name in along)
    if chosen("beside-along") not in along:
        el("beside-step").checked = True
    empty("beside-legend")
    for number, name in enumerate(event["names"]):
        item = make("li")
        item.appendChild(make("b", str(number + 1)))
        item.appendChild(bridge.runsChart.sample(number))
        item.appendChild(make("span", name, dir="auto"))
        item.appendChild(make("output", "", id="beside-value-" + str(number + 1)))
        el("beside-legend").appendChild(item)
    _settings()
    _draw()
    el("beside-title").focus()
    el("beside-card").scrollIntoView()


def _draw(event=None):
    if not _found:
        return
    metric, along = chosen("beside-metric"), chosen("beside-along")
    unit = "" if metric == "rate" else " in " + _found["unit"]
    text("beside-about", METRICS[metric] + unit + (", as a running mean" if metric == "loss" else "") + ", "
         + {"step": "by step", "tokens": "by tokens learned from", "seconds": "by time of training"}[along] + ".")
    _table(metric, along)
    ends = _found["tables"][metric][along]["ends"]
    said = [name + " ends at " + _figure(metric, end) for name, end in zip(_found["names"], ends) if end is not None]
    bridge.runsChart.describe(METRICS[metric] + " of " + fmt.plural(len(ends), "run") + ". " + "; ".join(said) + ".")
    bridge.runsChart.show(metric, along)


def _figure(metric, figure):
    return fmt.DASH if figure is None else fmt.significant(figure) if metric == "rate" else fmt.fixed(figure, 3)


def _grid(caption, first, names):
    table = make("table", cls="beside-grid")
    table.appendChild(make("caption", caption, "visually-hidden"))
    head, row = make("thead"), make("tr")
    row.appendChild(make("th", first, scope="col"))
    for number, name in enumerate(names):
        row.appendChild(make("th", str(number + 1) + " · " + name, scope="col", dir="auto"))
    head.appendChild(row)
    table.appendChild(head)
    body = make("tbody")
    table.appendChild(body)
    return table, body


def _row(body, first, cells):
    row = make("tr")
    row.appendChild(make("th", first, scope="row"))
    for cell in cells:
        row.appendChild(make("td", cell, dir="auto"))
    body.appendChild(row)


def _table(metric, along):
    figures = _found["tables"][metric][along]
    table, body = _grid(METRICS[metric] + " by " + ALONG[along].lower(), ALONG[along], _found["names"])
    for place, row in zip(figures["places"], figures["rows"]):
        _row(body, fmt.duration(place) if along == "seconds" else fmt.count(place), [_figure(metric, value) for value in row])
    _row(body, "At its end", [_figure(metric, value) for value in figures["ends"]])
    el("beside-table-box").replaceChildren(table)


def _settings():
    place = el("beside-settings")
    place.replaceChildren()
    if not _found.get("settings"):
        place.appendChild(make("p", "None: these runs were made with the same settings.", "hint"))
        return
    table, body = _grid("Settings that differ", "Setting", _found["names"])
    for setting in _found["settings"]:
        _row(body, setting["group"] + ": " + setting["label"], [each or fmt.DASH for each in setting["values"]])
    place.appendChild(table)


def _close(event=None):
    global _found
    _found = None
    show("beside-card", False)
    bridge.runsChart.close()
    (el("beside-go") if _picked else el("runs-list")).focus()


def _key(event):
    if bridge.runsChart.key(event.key):
        event.preventDefault()


def start():
    wire.on("compared", _compared)
    on("beside-go", "click", _go)
    on("beside-none", "click", _none)
    on("beside-close", "click", _close)
    on("beside-chart", "keydown", _key)
    for name in ("beside-metric", "beside-along"):
        for radio in document.querySelectorAll("input[name=" + name + "]"):
            on(radio, "change", _draw)
